"""Write a project for the user's own data: look at a folder or a database, and write job files that read it.

What was found is a guess, written down as a job file that people can read and change; the plan shows what it would do.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml

from gobblin_dagster.constructs.formats.base import FormatError, InputFile
from gobblin_dagster.constructs.sources.query.database import Database, Table
from gobblin_dagster.core.errors import UsageError

_FORMATS = {
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
    "txt": "text",
    "log": "text",
}
_PACKED = ("gz", "bz2", "zst", "xz")
_DATES = ("%Y-%m-%d", "%Y%m%d", "%Y_%m_%d", "%Y-%m")
_DELIMITERS = ",;\t|"
_MOST_FILES = 20_000
_MOST_OPENED = 1000
_LOOKED_AT = 1 << 16
"""Bytes of a file that are looked at."""
_CHANGES = re.compile(r"(?i)update|modif|chang|last_")
_TIMES = re.compile(r"(?i)creat|insert|add|_at$|time|date|when")


@dataclass(slots=True)
class FoundJob:
    """A job for some of the data."""

    name: str
    body: dict[str, Any]
    remarks: list[str] = field(default_factory=list)
    """What was seen, as comments of the job file."""

    @property
    def text(self) -> str:
        """The content of the job file."""
        remarks = "".join(f"# {remark}\n" for remark in self.remarks)
        return remarks + yaml.safe_dump(self.body, sort_keys=False, allow_unicode=True, width=110)


def jobs_of_folder(folder: Path, namespace: str) -> list[FoundJob]:
    """Return jobs that read the files of a folder, one or more for each format.

    Raises:
        UsageError: there is no such folder, or no file of a known format in it.
    """
    if not folder.is_dir():
        raise UsageError(problem=f"There is no folder {folder}.", hint="Name the folder that holds your files.")
    groups: dict[str, list[Path]] = defaultdict(list)
    there = (path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_hidden(path, folder))
    for path in islice(there, _MOST_FILES):
        if kind := _format_of(path):
            groups[kind].append(path.relative_to(folder))
    if not groups:
        raise UsageError(
            problem=f"No file in {folder} ends in one of {', '.join(_FORMATS)}.",
            hint="Name another folder, or write the job by hand: docs/start/own-project.md.",
        )
    return [job for kind in sorted(groups) for job in _of_format(folder, kind, groups[kind], namespace)]


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _format_of(path: Path) -> str:
    return _FORMATS.get(_endings(path)[0].lower().lstrip("."), "")


def _endings(path: Path) -> tuple[str, str]:
    """Return the ending of the format, and the whole ending of a name: `.csv` and `.csv.gz`."""
    packed = path.suffix if path.suffix.lower().lstrip(".") in _PACKED else ""
    own = path.with_suffix("").suffix if packed else path.suffix
    return own, own + packed


def _of_format(folder: Path, kind: str, files: Sequence[Path], namespace: str) -> Iterator[FoundJob]:
    options, remarks = _csv_options(folder, files) if kind == "csv" else ({}, [])
    by_ending = Counter(_endings(path)[1] for path in files)
    for ending, _ in by_ending.most_common():
        own = [path for path in files if _endings(path)[1] == ending]
        for name, pattern in _patterns(folder, kind, own, ending):
            table = name_of(f"{name or folder.name}{'' if len(by_ending) == 1 else ending.replace('.', '_')}")
            body = {
                "job": table,
                "source": {
                    "type": "files",
                    "path": f"{folder.as_posix()}/{pattern}",
                    "format": {"type": kind, **options},
                },
                "extract": {"namespace": namespace, "table": table},
                "output": {"path": "lake"},
            }
            yield FoundJob(
                table, body, [*remarks, "Each {dataset} has its own watermark, types and folder in the lake."]
            )


def _patterns(folder: Path, kind: str, files: Sequence[Path], ending: str) -> Iterator[tuple[str, str]]:
    """Yield a name and a path pattern for files of one format: by date, a dataset a folder, or a dataset a file."""
    depths = {len(path.parts) - 1 for path in files}
    tree = "" if depths == {0} else "{dataset}/" if depths == {1} else "{dataset:**}/"
    stems = [path.name.removesuffix(ending) for path in files]
    for form in _DATES:
        if all(_is_date(stem, form) for stem in stems) and (0 not in depths or depths == {0}):
            yield "", f"{tree}{{date:{form}}}{ending}"
            return
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        folders[path.parent].append(path)
    if Path() not in folders and all(_have_same_columns(folder, kind, own) for own in folders.values()):
        yield "", f"{tree}*{ending}"
        return
    for place, own in sorted(folders.items()):
        prefix = "" if place == Path() else f"{place.as_posix()}/"
        is_one = len(own) > 1 and _have_same_columns(folder, kind, own)
        yield "_".join(place.parts), f"{prefix}{'*' if is_one else '{dataset}'}{ending}"


def _is_date(text: str, form: str) -> bool:
    try:
        return datetime.strptime(text, form).strftime(form) == text  # only its form counts
    except ValueError:
        return False


def _have_same_columns(folder: Path, kind: str, files: Sequence[Path]) -> bool:
    """Return whether the files look like parts of one dataset; only headers of CSV can tell."""
    return kind != "csv" or len({_beginning(folder / path).partition("\n")[0] for path in files[:_MOST_OPENED]}) == 1


def _beginning(path: Path) -> str:
    try:
        stream = InputFile(str(path)).open_text()
    except (OSError, FormatError):
        return ""
    try:
        return str(stream.stream.read(_LOOKED_AT).decode("utf-8", "replace"))
    except (OSError, ValueError, EOFError):
        return ""
    finally:
        stream.close()


def _csv_options(folder: Path, files: Sequence[Path]) -> tuple[dict[str, Any], list[str]]:
    """Return the options that most files need, with remarks on the others."""
    texts = {path: _beginning(folder / path) for path in files[:_MOST_OPENED]}
    found = {path: _delimiter(text) for path, text in texts.items() if text}
    delimiter = Counter(found.values()).most_common(1)[0][0] if found else ","
    options: dict[str, Any] = {} if delimiter == "," else {"delimiter": delimiter}
    remarks = []
    if others := [str(path) for path, one in found.items() if one != delimiter]:
        remarks.append(f"{len(others)} file(s) seem to have another delimiter: {', '.join(others[:3])}.")
    if odd := [str(path) for path, text in texts.items() if "\ufffd" in text[:-4]]:
        remarks.append(f"{len(odd)} file(s) are not UTF-8; set `encoding`: {', '.join(odd[:3])}.")
    edge = f"(?:^|[{re.escape(delimiter)}])"
    if any(re.search(rf'(?m){edge}"?NA"?(?:$|[{re.escape(delimiter)}\r])', text) for text in texts.values()):
        options["null_values"] = ["", "NA"]
        remarks.append("The value NA is read as null.")
        if any(re.search(rf'(?m){edge}"NA"(?:$|[{re.escape(delimiter)}\r])', text) for text in texts.values()):
            options["quoted_nulls"] = True
    return options, remarks


def _delimiter(text: str) -> str:
    line = text.partition("\n")[0]
    return max(_DELIMITERS, key=lambda one: (line.count(one), -_DELIMITERS.index(one)))


def name_of(text: str) -> str:
    """Return a name for a job and its file."""
    return re.sub(r"\W+", "_", text).strip("_").lower() or "data"


def jobs_of_database(url: str, written: str, base_dir: Path, namespace: str) -> list[FoundJob]:
    """Return a job for the tables that have a watermark column, and one for those that must be read whole.

    Args:
        url: of the database.
        written: the URL as the job file has it, e.g. `${SHOP_URL}`.
        base_dir: folder of a relative SQLite path.
        namespace: of the lake's tables.

    Raises:
        SourceError: the database cannot be reached.
        UsageError: it has no table.
    """
    database = Database(url, str(base_dir), namespace)
    tables = {urn: table for urn, table in sorted(database.tables(None).items()) if not table.problem}
    if not tables:
        raise UsageError(problem=f"Database {database.shown} has no table that we may read.", hint="Check the user.")
    keys = _keys(database, tables)
    cursors = {urn: _cursor(table, keys[urn]) for urn, table in tables.items()}
    jobs = []
    if moving := {urn: cursor for urn, cursor in cursors.items() if cursor}:
        jobs.append(_moving_job(written, namespace, moving, keys, _types(database)))
    if whole := [urn for urn, cursor in cursors.items() if not cursor]:
        body = {
            "job": f"{namespace}_whole",
            "source": {
                "type": "query",
                "url": written,
                "tables": whole,
                "without_watermark": "full",
                **_types(database),
            },
            "extract": {"namespace": namespace, "table": "whole", "type": "snapshot_only"},
            "output": {"path": "lake"},
        }
        remark = "Tables without a column that tells which rows are new: each run reads and replaces them whole."
        jobs.append(FoundJob(f"{namespace}_whole", body, [remark]))
    return jobs


def _types(database: Database) -> dict[str, str]:
    return {"types": "exact"} if database.is_postgresql else {}


def _moving_job(
    written: str,
    namespace: str,
    moving: Mapping[str, tuple[str, str]],
    keys: Mapping[str, list[str]],
    types: Mapping[str, str],
) -> FoundJob:
    usual = Counter(moving.values()).most_common(1)[0][0]
    changes = any(_CHANGES.search(column) for column, _ in moving.values())
    others = {
        urn: {
            **({"watermark": {"column": cursor[0], "type": cursor[1]}} if cursor != usual else {}),
            **({"primary_key": keys[urn]} if changes and keys[urn] else {}),
        }
        for urn, cursor in moving.items()
    }
    others = {urn: options for urn, options in others.items() if options}
    source: dict[str, Any] = {
        "type": "query",
        "url": written,
        "tables": list(moving),
        "watermark": {"column": usual[0], "type": usual[1]},
        **({"table_options": others} if others else {}),
        **types,
    }
    body = {
        "job": namespace,
        "source": source,
        "extract": {"namespace": namespace, "table": "tables", **({"type": "snapshot_append"} if changes else {})},
        "output": {"path": "lake"},
    }
    remark = "The watermark column tells which rows are new; a row that changes must get a higher value in it."
    return FoundJob(namespace, body, [remark])


def _keys(database: Database, tables: Mapping[str, Table]) -> dict[str, list[str]]:
    with database.snapshot() as connection:
        inspector = sa.inspect(connection)
        return {
            urn: list(inspector.get_pk_constraint(table.name, table.schema).get("constrained_columns", ()))
            for urn, table in tables.items()
        }


def _cursor(table: Table, key: Sequence[str]) -> tuple[str, str] | None:
    """Return the column that tells which rows are new, and its type: a time of change, a time, or a whole key."""
    times = [column.name for column in table.columns if column.type.startswith("timestamp")]
    for wanted in (_CHANGES, _TIMES):
        for name in times:
            if wanted.search(name):
                return name, "timestamp"
    if len(key) == 1 and (column := table.column(key[0])) is not None and column.type.startswith("int"):
        return key[0], "long"
    return None


def job_of_broker(brokers: str, namespace: str) -> FoundJob:
    """Return a job that reads all topics of a Kafka cluster from their beginning, each a dataset."""
    source = {"type": "kafka", "brokers": brokers, "topics": [".*"], "bootstrap": "earliest"}
    return FoundJob(
        namespace,
        job_body(namespace, source, "topics"),
        ["Name the topics; say what their messages hold with `value`."],
    )


def job_body(name: str, source: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Return what each job that is written begins with."""
    return {
        "job": name,
        "source": dict(source),
        "extract": {"namespace": name, "table": table},
        "output": {"path": "lake"},
    }


def write_project(target: Path, project: str, jobs: Sequence[FoundJob]) -> list[Path]:
    """Write `gobblin.yaml` and the job files into an empty folder, and return their paths."""
    contents = {target / "gobblin.yaml": f"project: {json.dumps(project)}\n"}
    contents |= {target / "jobs" / f"{job.name}.yaml": job.text for job in jobs}
    (target / "jobs").mkdir(parents=True, exist_ok=True)
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
    return list(contents)
