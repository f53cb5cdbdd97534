"""Write the demo's project folder, and add further days to it.

The packaged slice holds six datasets over nine days; a new project starts with seven of these days, so that two more
can arrive later.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from os import PathLike
from pathlib import Path

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.arguments import checked
from gobblin_dagster.demo.flights import Period, Rows, split, write

LAST_SHIPPED_DAY = date(2013, 2, 12)
"""Last day that a new project holds; later ones arrive by `add_day`."""

FLIGHTS = Path("data", "flights")
JOB_FILE = Path("jobs", "flights.yaml")

_TEMPLATE = {
    Path("gobblin.yaml"): "gobblin.yaml",
    JOB_FILE: "flights.yaml",
    Path("definitions.py"): "definitions",  # without its suffix in the package, where it would count as a module
    Path("README.md"): "README.md",
    Path(".gitignore"): "gitignore",  # without its dot in the package, where it would hide files from git
}
_SERVICE = {
    Path("gobblin.yaml"): "gobblin.yaml",
    Path("templates", "flights", "landing-to-lake.template"): "landing-to-lake.template",
    Path("templates", "flights", "lake-to-table.template"): "lake-to-table.template",
    Path("README.md"): "README.md",
    Path(".gitignore"): "gitignore",
}


@checked
def write_demo(folder: str | PathLike[str]) -> list[Path]:
    """Make a project folder that `gobblin run` works on at once, and return its files.

    Args:
        folder: a folder that is empty or does not exist yet.

    Raises:
        UsageError: the folder holds something already.
        StorageError: the folder cannot be written.
    """
    target = Path(folder)
    refuse_in_use(target)
    return [*write_template(target), *_write_shipped(target)]


@checked
def write_service(folder: str | PathLike[str]) -> list[Path]:
    """Make a project folder that `gobblin serve` works on at once, and return its files.

    Args:
        folder: a folder that is empty or does not exist yet.

    Raises:
        UsageError: the folder holds something already.
        StorageError: the folder cannot be written.
    """
    target = Path(folder)
    refuse_in_use(target)
    (target / "jobs").mkdir(parents=True)  # for jobs of one's own beside those of flows
    return [*_write_files(target, "service", _SERVICE), *_write_shipped(target)]


@checked
def add_day(folder: str | PathLike[str]) -> list[Path]:
    """Let the files of the next day arrive in a demo project, and return them.

    Raises:
        UsageError: the folder is no demo project, or all days have arrived.
        StorageError: the folder cannot be written.
    """
    target = Path(folder)
    here = [_day(path) for path in (target / FLIGHTS).glob("*/*.csv")]
    if not here:
        raise UsageError(problem=f"{target} holds no flights.", hint="Make the demo first: `gobblin init demo`.")
    later = {path: rows for path, rows in _slice().items() if _day(path) > max(here)}
    if not later:
        raise UsageError(
            problem=f"All days of the demo have arrived in {target}; the last one is {max(here)}.",
            hint="Delete the folder and begin again, or try `make demo-full`.",
        )
    next_day = min(map(_day, later))
    return write(target / FLIGHTS, {path: rows for path, rows in later.items() if _day(path) == next_day})


def refuse_in_use(target: Path) -> None:
    """Raise UsageError where the target is neither absent nor an empty folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(problem=f"{target} is not an empty folder.", hint="Choose another name; nothing was written.")


def write_template(target: Path) -> list[Path]:
    """Write all files of a project but the data."""
    return _write_files(target, "template", _TEMPLATE)


def _write_files(target: Path, folder: str, names: Mapping[Path, str]) -> list[Path]:
    packaged = files(__package__) / folder
    for path, name in names.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((packaged / name).read_bytes())
    return [target / path for path in names]


def _write_shipped(target: Path) -> list[Path]:
    """Write the days of flights that a new project holds."""
    shipped = {path: rows for path, rows in _slice().items() if _day(path) <= LAST_SHIPPED_DAY}
    return write(target / FLIGHTS, shipped)


def _slice() -> dict[Path, Rows]:
    packed = (files(__package__) / "flights.csv.gz").read_bytes()
    return split(gzip.decompress(packed).decode().splitlines(), Period.DAY)


def _day(path: Path) -> date:
    return date.fromisoformat(path.stem)
