"""Flights as text: read from a CSV, sorted into files per dataset and day or month, written whole.

Rows are never parsed beyond the columns that name their file, so that natural faults arrive as they were recorded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

Rows = list[list[str]]
"""Cells of a file, header first."""


class Period(IntEnum):
    """How much time a file holds; the value is the length of its ISO date."""

    DAY = len("2013-02-08")
    MONTH = len("2013-02")


def split(lines: Iterable[str], period: Period) -> dict[Path, Rows]:
    """Sort flights into `<carrier>-<origin>/<date>.csv`, the order of rows kept."""
    reader = csv.reader(lines)
    header = next(reader)
    at = {name: header.index(name) for name in ("year", "month", "day", "carrier", "origin")}
    files: dict[Path, Rows] = {}
    for row in reader:
        date = f"{row[at['year']]}-{row[at['month']]:0>2}-{row[at['day']]:0>2}"[:period]
        path = Path(f"{row[at['carrier']]}-{row[at['origin']]}", f"{date}.csv")
        files.setdefault(path, [header]).append(row)
    return files


def write(folder: Path, files: dict[Path, Rows]) -> list[Path]:
    """Write files below a folder and return them; each appears whole, because a run may be listing the folder."""
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
