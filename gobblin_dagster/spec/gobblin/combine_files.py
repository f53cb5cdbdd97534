"""Fields of the source `files` that are made from several Gobblin keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from gobblin_dagster.spec.gobblin import values

DATES = ("date.partitioned.source.partition.pattern", "date.partitioned.source.partition.granularity")
"""Keys that say how dates are written in paths."""
_DEFAULTS = {"HOUR": "yyyy/MM/dd/HH", "DAY": "yyyy/MM/dd", "MONTH": "yyyy/MM", "YEAR": "yyyy"}
_DEEP = ("TextFileBasedSource", "AvroFileSource")
"""Classes that read the files of all folders below, too."""
_STEPS = {
    "mm": timedelta(minutes=1),
    "HH": timedelta(hours=1),
    "dd": timedelta(days=1),
    "MM": timedelta(days=31),
    "yyyy": timedelta(days=365),
}
"""How far Gobblin goes on from a folder, by the letters of the smallest part of its date."""
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}


def file_path(texts: Mapping[str, str]) -> str:
    """Return the pattern of input files."""
    if given := texts.get("source.filebased.files.to.pull"):
        _require_alone(texts)
        return _files([values.folder(one) for one in values.words(given)]) if "," in given else values.folder(given)
    if "source.filebased.data.directory" not in texts:
        raise ValueError("source.filebased.data.directory is missing")
    folder = values.folder(texts["source.filebased.data.directory"]).rstrip("/")
    system = values.file_system(texts.get("source.filebased.fs.uri", ""))
    if "://" not in folder and system:
        folder = f"{system}/{folder.lstrip('/')}".rstrip("/")
    if "DatePartitioned" not in texts.get("source.class", ""):
        is_deep = texts.get("source.class", "").rpartition(".")[2] in _DEEP and "**" not in folder
        return f"{folder}/**/*" if is_deep else f"{folder}/*"
    prefix = texts.get("date.partitioned.source.partition.prefix", "").strip("/")
    suffix = texts.get("date.partitioned.source.partition.suffix", "").strip("/")
    ending = ".avro" if "Avro" in texts.get("source.class", "") else ".json"  # files with other ends are not read
    parts = [prefix, f"{{date:{_strptime(_pattern(texts))}}}", suffix, f"*{ending}"]
    return "/".join((folder, *filter(None, parts)))


def _require_alone(texts: Mapping[str, str]) -> None:
    """Raise ValueError if other keys say where files are: most of Gobblin's sources would read there instead."""
    if "source.filebased.data.directory" in texts:
        raise ValueError("source.filebased.data.directory names other files; keep one of both")
    if values.file_system(texts.get("source.filebased.fs.uri", "")):
        raise ValueError("write the files as whole URLs here, and remove source.filebased.fs.uri")


def _files(paths: list[str]) -> str:
    """Return a pattern that matches exactly these files."""
    if odd := next((path for path in paths if re.search(r"[${}*]", path)), None):
        raise ValueError(f"expected names of files as they are, or one pattern, got {odd[:60]!r} among others")
    folders = {path.rpartition("/")[0] for path in paths}
    if len(folders) > 1:
        shown = ", ".join(sorted(folders))[:120]
        raise ValueError(f"expected files of one folder, got some of {shown}; write a job for each folder")
    names = list(dict.fromkeys(path.rpartition("/")[2] for path in paths))
    if not all(names):
        raise ValueError("expected files, got a folder; name it in source.filebased.data.directory")
    return f"{paths[0].removesuffix(names[0])}{{{','.join(names)}}}" if len(names) > 1 else paths[0]


def start(texts: Mapping[str, str]) -> str:
    """Return the first day that is read: Gobblin begins with the folder behind the given one."""
    pattern, given = _pattern(texts), texts["date.partitioned.source.min.watermark.value"]
    form = _strptime(pattern)
    try:
        found = datetime.strptime(given.strip("/"), form)
    except ValueError:
        raise ValueError(f"expected a date as {pattern}, got {given[:60]!r}") from None
    # Months are of 31 days there and years of 365: what is found in the next folder's time.
    step = next(step for letters, step in _STEPS.items() if letters in pattern)
    begin = datetime.strptime((found + step).strftime(form), form)
    if (begin.hour, begin.minute) != (0, 0):
        raise ValueError(
            f"expected the last folder of a day, got {given[:60]!r}: Gobblin begins behind it, at {begin:%H:%M}, and "
            "here a day begins"
        )
    return begin.date().isoformat()


def lead_time(texts: Mapping[str, str]) -> str | None:
    """Return the age from which files are read."""
    size = values.count(texts.get("date.partitioned.source.partition.lead_time.size", "0"))
    unit = texts.get("date.partitioned.source.partition.lead_time.granularity", "HOUR").upper()
    if unit not in ("MINUTE", "HOUR", "DAY"):
        raise ValueError(f"expected MINUTE, HOUR or DAY, got {unit[:60]!r}")
    return f"{size}{unit[0].lower()}" if size else None


def _pattern(texts: Mapping[str, str]) -> str:
    granularity = texts.get("date.partitioned.source.partition.granularity", "HOUR").upper()
    pattern = texts.get("date.partitioned.source.partition.pattern", _DEFAULTS.get(granularity))
    if pattern is None:
        raise ValueError(f"expected {', '.join(_DEFAULTS)}, got {granularity[:60]!r}")
    return pattern


def _strptime(pattern: str) -> str:
    """Return the Python format of a Java date pattern."""
    found = pattern.strip("/")
    for theirs, ours in _LETTERS.items():
        found = found.replace(theirs, ours)
    if re.search(r"(?<!%)[A-Za-z]", found):
        raise ValueError(f"expected a pattern of yyyy, MM, dd, HH and mm, got {pattern[:60]!r}")
    return found
