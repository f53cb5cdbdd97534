"""Write a project for the user's own data: look at a folder or a database, and write job files that read it.

What was found is a guess, written down as a job file that people can read and change; the plan shows what it would do.
"""

from __future__ import annotations

import codecs
import glob
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from gobblin_dagster.constructs.formats.base import FormatError, InputFile
from gobblin_dagster.constructs.sources.files.pattern import escaped
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.text import printable

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
_DIALECT: dict[str, str | None] = {
    "delimiter": ",",
    "encoding": "utf-8",
    "comment": None,
    "decimal_point": ".",
    "date_format": None,
}
"""How CSV is written if nothing is declared."""
_VALUE, _YEAR = re.compile(r"[-+]?[\d.,]*\d|\d{4}-\d\d-\d\d.*"), re.compile(r"[12]\d{3}")
_DAY = re.compile(r"(\d\d)([./])(\d\d)\2\d{4}(?:[ T].*)?")
_COMMA_NUMBER, _POINT_NUMBER = re.compile(r"-?\d+,\d+"), re.compile(r"-?(?!\d{1,3}(\.\d{3})+$)\d+\.\d+")
"""Fractions; `1.000` may be a thousand."""
_JSON = ".json"
"""Ending of JSON lines, and of JSON documents."""
_DELIMITERS = ",;\t|"
_SPARK = "spark: {start: when_needed} # little work runs in processes of this machine, without Spark\n"
_MOST_FILES = 20_000
_MOST_OPENED = 1000
_MOST_PARSED = 64 << 20
"""Bytes of a JSON document that is parsed whole to find its list."""
_LEVELS = 2
_LOOKED_AT = 1 << 16
"""Bytes of a file that are looked at."""
_LONGEST = 40
"""Letters of a name at most; endings come behind it, which tell jobs apart."""


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
        remarks = "".join(f"# {printable(remark)}\n" for remark in self.remarks)  # names of files may hold line breaks
        return remarks + yaml.safe_dump(self.body, sort_keys=False, allow_unicode=True, width=110)


def jobs_of_folder(folder: Path, namespace: str) -> list[FoundJob]:
    """Return jobs that read the files of a folder, one or more for each format.

    Raises:
        UsageError: there is no such folder, or no file of a known format in it.
    """
    if not folder.is_dir():
        raise UsageError(problem=f"There is no folder {folder}.", hint="Name the folder that holds your files.")
    groups: dict[str, list[Path]] = defaultdict(list)
    left_out: list[Path] = []
    there = (path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_hidden(path, folder))
    for path in islice(there, _MOST_FILES):
        kind = _kind_of(folder, path.relative_to(folder))
        (groups[kind] if kind else left_out).append(path.relative_to(folder))
    if not groups:
        raise UsageError(
            problem=f"No file in {folder} ends in one of {', '.join(_FORMATS)}."
            + (f" {_told_left_out(left_out)}" if left_out else ""),
            hint="Name another folder, or write the job by hand: docs/start/own-project.md.",
        )
    found: list[FoundJob] = []
    for kind in sorted(groups):
        others = [*left_out, *(path for other, files in groups.items() if other != kind for path in files)]
        found += _of_format(folder, kind, groups[kind], namespace, others)
    jobs = _with_own_names(found)
    if left_out:
        jobs[0].remarks.append(_told_left_out(left_out))
    return jobs


def _told_left_out(files: Sequence[Path]) -> str:
    endings = Counter(
        "one JSON document" if path.suffix.lower() == _JSON else path.suffix or "no ending" for path in files
    )
    told = ", ".join(f"{number} ({ending})" for ending, number in endings.most_common(5))
    remark = f"Left out, {len(files)} file(s) of no known format: {told}, as {files[0]}."
    if endings["one JSON document"]:
        remark += " Documents without one list of objects can be read with `records` of `format: json`."
    return remark


def _kind_of(folder: Path, path: Path) -> str:
    """Return the format of a file, by its ending; of `.json`, by its content; empty if no format fits.

    A document of JSON has the path of its list behind a colon: `json:data.items`.
    """
    if _endings(path)[0].lower() != _JSON:
        return _FORMATS.get(_endings(path)[0].lower().lstrip("."), "")
    beginning = _beginning(folder / path)
    if not _first_fields(beginning):
        return _document(folder / path, beginning)
    # One object alone may hold the list: an answer of an API without line breaks.
    return "jsonl" if beginning.strip().count(b"\n") else _document(folder / path, beginning) or "jsonl"


def _document(path: Path, beginning: bytes) -> str:
    """Return `json:` and the path of the only list of objects in a document, `json` for a list; empty if it is none."""
    if re.match(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|\]\s*$)", beginning):
        return "json"
    try:
        if path.stat().st_size > _MOST_PARSED:
            return ""
        stream = InputFile(str(path)).open_text()
        try:
            document = json.loads(stream.stream.read().decode("utf-8-sig"))
        finally:
            stream.close()
    except (OSError, FormatError, ValueError, EOFError, RecursionError):
        return ""
    lists = list(_lists(document, ""))
    return f"json:{lists[0]}" if len(lists) == 1 else ""


def _lists(value: Any, place: str) -> Iterator[str]:
    """Yield the path of each list of objects below an object, as far as three levels down."""
    for name, one in value.items() if isinstance(value, dict) and place.count(".") < _LEVELS else ():
        if isinstance(one, list) and one and all(isinstance(item, dict) for item in one):
            if name and "." not in name:
                yield f"{place}.{name}".lstrip(".")
        else:
            yield from _lists(one, f"{place}.{name}".lstrip(".")) if "." not in name else ()


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _endings(path: Path) -> tuple[str, str]:
    """Return the ending of the format, and the whole ending of a name: `.csv` and `.csv.gz`."""
    packed = path.suffix if path.suffix.lower().lstrip(".") in _PACKED else ""
    own = path.with_suffix("").suffix if packed else path.suffix
    return own, own + packed


def _of_format(
    folder: Path, kind: str, files: Sequence[Path], namespace: str, others: Sequence[Path]
) -> Iterator[FoundJob]:
    kind, _, records = kind.partition(":")
    found = _csv_looks(folder, files) if kind == "csv" else _CsvLooks({"records": records} if records else {})
    by_ending = Counter(_endings(path)[1] for path in files)
    for ending, _ in by_ending.most_common():
        own = [path for path in files if _endings(path)[1] == ending]
        for name, pattern in _patterns(folder, kind, own, ending, others):
            table = name_of(f"{name or folder.name}{'' if len(by_ending) == 1 else ending.replace('.', '_')}")
            in_place = {path: path.name.removesuffix(ending) for path in own if _is_dataset(path, pattern)}
            dialects = {glob.escape(urn): found.others[path] for path, urn in in_place.items() if path in found.others}
            body = {
                "job": table,
                "source": {
                    "type": "files",
                    "path": f"{escaped(folder.as_posix())}/{pattern}",
                    "format": {"type": kind, **found.options, **({"dialects": dialects} if dialects else {})},
                },
                "extract": {"namespace": namespace, "table": table},
                "output": {"path": "lake"},
            }
            odd = sorted(str(path) for path in found.others if path in own and path not in in_place)
            remarks = [f"{len(odd)} file(s) seem to be written otherwise: {', '.join(odd[:3])}."] if odd else []
            datasets = "Each {dataset} has its own watermark, types and folder in the lake."
            yield FoundJob(table, body, [*found.remarks, *remarks, datasets])


def _is_dataset(path: Path, pattern: str) -> bool:
    """Return whether each file of a path's folder is a dataset by a pattern."""
    folder, _, name = pattern.rpartition("/")
    return name.startswith("{dataset") and (folder or ".") == escaped(path.parent.as_posix())


def _with_own_names(jobs: Sequence[FoundJob]) -> list[FoundJob]:
    """Give each job a name of its own: that of its format too, then a number, if another job has its name."""
    named: dict[str, FoundJob] = {}
    shared = {name for name, times in Counter(job.name for job in jobs).items() if times > 1}
    for job in jobs:
        base = f"{job.name}_{job.body['source']['format']['type']}" if job.name in shared else job.name
        names = (base, *(f"{base}_{number}" for number in range(2, len(jobs) + 2)))
        job.name = next(name for name in names if name not in named)
        job.body["job"] = job.body["extract"]["table"] = job.name
        named[job.name] = job
    return list(named.values())


def _patterns(
    folder: Path, kind: str, files: Sequence[Path], ending: str, others: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    """Yield a name and a path pattern for files of one format: by date, a dataset a folder, or a dataset a file."""
    depths = {len(path.parts) - 1 for path in files}
    tree = "" if depths == {0} else "{dataset}/" if depths == {1} else "{dataset:**}/"
    stems = [path.name.removesuffix(ending) for path in files]
    # Files of another kind beside these: a pattern of any name would match them too.
    mixed = {path.parent for path in others if path.name.endswith(ending)}
    for form in () if mixed else _DATES:
        if all(_is_date(stem, form) for stem in stems) and (0 not in depths or depths == {0}):
            yield "", f"{tree}{{date:{form}}}{ending}"
            return
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in files:
        folders[path.parent].append(path)
    if not mixed and Path() not in folders and all(_have_same_columns(folder, kind, own) for own in folders.values()):
        yield "", f"{tree}*{ending}"
        return
    for place, own in sorted(folders.items()):
        prefix = "" if place == Path() else f"{escaped(place.as_posix())}/"
        names = [path.name.removesuffix(ending) for path in own]
        dataset = "{dataset}"
        if place in mixed and not any(re.search(r"[{}*,]", name) for name in names):
            dataset = f"{{dataset:{','.join(names)}}}"
        elif place not in mixed and len(own) > 1 and _have_same_columns(folder, kind, own):
            dataset = "*"
        yield "_".join(place.parts), f"{prefix}{dataset}{ending}"


def _is_date(text: str, form: str) -> bool:
    try:
        return datetime.strptime(text, form).strftime(form) == text  # only its form counts
    except ValueError:
        return False


def _have_same_columns(folder: Path, kind: str, files: Sequence[Path]) -> bool:
    """Return whether the files look like parts of one dataset; headers of CSV and fields of JSON can tell."""
    looked_at = [_beginning(folder / path) for path in files[:_MOST_OPENED]]
    if kind == "csv":
        return len({_header(beginning) for beginning in looked_at}) == 1
    if kind == "jsonl":
        first, *others = [_first_fields(beginning) for beginning in looked_at]
        return all(2 * len(first & fields) >= len(first | fields) for fields in others)
    return True


def _header(beginning: bytes) -> bytes:
    """Return the first line that is no comment, if there is one."""
    lines = beginning.split(b"\n")
    return next((line for line in lines if not line.startswith(b"#")), lines[0])


def _first_fields(beginning: bytes) -> frozenset[str]:
    """Return the names of the fields in the first line of JSON lines; empty if it is no object."""
    line = beginning.decode("utf-8", "replace").lstrip("\ufeff").lstrip().partition("\n")[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(record) if isinstance(record, dict) else frozenset()


def _beginning(path: Path) -> bytes:
    try:
        stream = InputFile(str(path)).open_text()
    except (OSError, FormatError):
        return b""
    try:
        return bytes(stream.stream.read(_LOOKED_AT))
    except (OSError, ValueError, EOFError):
        return b""
    finally:
        stream.close()


@dataclass(slots=True)
class _CsvLooks:
    """How the CSV files of a folder are written."""

    options: dict[str, Any] = field(default_factory=dict)
    """Options that most files need."""
    others: dict[Path, dict[str, str | None]] = field(default_factory=dict)
    """What differs in the files that are written otherwise."""
    remarks: list[str] = field(default_factory=list)


def _csv_looks(folder: Path, files: Sequence[Path]) -> _CsvLooks:
    """Return the options that most files need, and what others need."""
    texts: dict[Path, str] = {}
    dialects: dict[Path, dict[str, str | None]] = {}
    unsure: list[Path] = []
    for path in files[:_MOST_OPENED]:
        if beginning := _beginning(folder / path):
            encoding = _encoding(beginning)
            texts[path] = beginning.decode(encoding, "replace")
            dialects[path], is_unsure = _dialect(texts[path], encoding)
            unsure += [path] * is_unsure
    usual: dict[str, str | None] = {}
    for name, default in _DIALECT.items():
        times = Counter(dialect[name] for dialect in dialects.values())
        ranks = {value: (number, value == default) for value, number in times.items()}
        usual[name] = max(ranks, key=ranks.__getitem__, default=default)
    found = _CsvLooks({name: value for name, value in usual.items() if value != _DIALECT[name]})
    for path, dialect in dialects.items():
        if other := {name: value for name, value in dialect.items() if value != usual[name]}:
            found.others[path] = other
    if bare := [path for path, text in texts.items() if _begins_with_values(text, dialects[path]["delimiter"] or ",")]:
        found.remarks.append(
            f"{len(bare)} file(s), as {bare[0]}, begin with values in place of names: if they have no header, set "
            "`header: false` and `column_names` for them in `dialects`."
        )
    if unsure:
        found.remarks.append(
            f"Days like 01/02/2024 are texts in {len(unsure)} file(s), as {unsure[0]}: set `date_format` to %d/%m/%Y "
            "or %m/%d/%Y."
        )
    delimiters = {path: re.escape(str(dialect["delimiter"])) for path, dialect in dialects.items()}
    edges = {path: f"(?:^|[{delimiter}])" for path, delimiter in delimiters.items()}
    ends = {path: f"(?:$|[{delimiter}\r])" for path, delimiter in delimiters.items()}
    if any(re.search(rf'(?m){edges[path]}"?NA"?{ends[path]}', text) for path, text in texts.items()):
        found.options["null_values"] = ["", "NA"]
        found.remarks.append("The value NA is read as null.")
        if any(re.search(rf'(?m){edges[path]}"NA"{ends[path]}', text) for path, text in texts.items()):
            found.options["quoted_nulls"] = True
    return found


def _encoding(beginning: bytes) -> str:
    """Return the encoding of a text: UTF-8 if it is that, UTF-16 by its mark, else that of Windows in the west."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning)  # the last character may be cut
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _dialect(text: str, encoding: str) -> tuple[dict[str, str | None], bool]:
    """Return how a file is written, and whether its days may have either of two forms."""
    lines = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip() and not line.startswith("sep=")]
    data = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    delimiter = _delimiter(lines[data] if lines else "")
    has_comments = data > 0 and lines[0].count(delimiter) != lines[data].count(delimiter)
    if not has_comments:  # `#id,name` is a header
        delimiter = _delimiter(lines[0] if lines else "")
    cells = {
        cell.strip().strip('"')
        for line in (lines if text.endswith("\n") else lines[:-1])
        for cell in line.split(delimiter)
    }
    has_commas = delimiter != "," and any(map(_COMMA_NUMBER.fullmatch, cells))
    date_format, is_unsure = _date_format(cells)
    dialect: dict[str, str | None] = {
        "delimiter": delimiter,
        "encoding": encoding,
        "comment": "#" if has_comments else None,
        "decimal_point": "," if has_commas and not any(map(_POINT_NUMBER.fullmatch, cells)) else ".",
        "date_format": date_format,
    }
    return dialect, is_unsure


def _begins_with_values(text: str, delimiter: str) -> bool:
    """Return whether at least half of the first line are numbers or days; years are names of columns too."""
    lines = (line for line in text.removeprefix("\ufeff").split("\n") if line.strip() and not line.startswith("#"))
    cells = [cell for part in next(lines, "").split(delimiter) if (cell := part.strip().strip('"'))]
    values = [cell for cell in cells if _VALUE.fullmatch(cell) and not _YEAR.fullmatch(cell)]
    return bool(cells) and len(values) * 2 >= len(cells)


def _date_format(cells: Collection[str]) -> tuple[str | None, bool]:
    """Return the form of the days among the cells that ISO would write otherwise, and whether it may be another one."""
    days = [match for match in map(_DAY.fullmatch, cells) if match]
    forms = [
        form
        for form, day, month in (("%d{0}%m{0}%Y", 1, 3), ("%m{0}%d{0}%Y", 3, 1))
        if days and all(1 <= int(match[day]) <= 31 and 1 <= int(match[month]) <= 12 for match in days)
    ]
    marks = {match[2] for match in days}
    if not forms or len(marks) > 1:
        return None, False
    (mark,) = marks
    if len(forms) > 1 and mark == "/":
        return None, True
    return forms[0].format(mark), False  # nobody writes the month first with points


def _delimiter(header: str) -> str:
    return max(_DELIMITERS, key=lambda one: (header.count(one), -_DELIMITERS.index(one)))


def name_of(text: str) -> str:
    """Return a name for a job and its file."""
    return plain_name(text).lower()


def plain_name(text: str) -> str:
    """Return a name as job files take it: letters of ASCII, digits and `_`, beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_LONGEST]
    # Most folders named otherwise are called by a date or in another script.
    return name if name[:1].isalpha() else f"data_{name}".rstrip("_")


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
    contents = {target / "gobblin.yaml": f"project: {json.dumps(project)}\n{_SPARK}"}
    contents |= {target / "jobs" / f"{job.name}.yaml": job.text for job in jobs}
    (target / "jobs").mkdir(parents=True, exist_ok=True)
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")
    return list(contents)
