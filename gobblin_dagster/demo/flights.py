"""Flights as text: read from a CSV, sorted into files per dataset and day or month, written whole.

Only the columns that name a row's file are parsed, so that faulty rows arrive as they were recorded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

Rows = list[list[str]]
"""Rows of a file as cells, header first."""


class Period(Enum):
    """The time span of a file."""

    DAY = "day"
    MONTH = "month"


def split(lines: Iterable[str], period: Period) -> dict[Path, Rows]:
    """Sort flights into `<carrier>-<origin>/<first day of the period>.csv`, the order of rows kept."""
    reader = csv.reader(lines)
    header = next(reader)
    at = {name: header.index(name) for name in ("year", "month", "day", "carrier", "origin")}
    files: dict[Path, Rows] = {}
    for row in reader:
        day = "1" if period is Period.MONTH else row[at["day"]]
        name = f"{row[at['year']]}-{row[at['month']]:0>2}-{day:0>2}.csv"
        files.setdefault(Path(f"{row[at['carrier']]}-{row[at['origin']]}", name), [header]).append(row)
    return files


def write(folder: Path, files: dict[Path, Rows]) -> list[Path]:
    """Write files below a folder and return them; each appears complete, because a run may be listing the folder."""
    written = []
    for path, rows in sorted(files.items()):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        with part.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)
        part.rename(file)
        written.append(file)
    return written
