"""Input of the benchmarks: the demo's flights repeated under new dates. Written once into a folder that git ignores."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path

COLUMNS = """
year int32, month int32, day int32, dep_time int32, sched_dep_time int32, dep_delay int32, arr_time int32,
sched_arr_time int32, arr_delay int32, carrier string, flight int32, tailnum string, origin string, dest string,
air_time int32, distance int32, hour int32, minute int32, time_hour timestamp
"""
"""Name and type of all columns; both sides read with exactly these."""

DATASETS = 8
DAYS = 4
FIRST_DAY = date(2014, 1, 1)


def columns() -> dict[str, str]:
    """Return type by column."""
    return dict(column.split() for column in COLUMNS.split(","))


def write_flights(cache: Path, rows: int) -> Path:
    """Write `rows` flights as `<dataset>/<date>.csv` (8 datasets, 4 days) and return the folder."""
    folder = cache / f"flights-{rows}"
    if folder.exists():
        return folder
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    per_file, rest = divmod(rows, DATASETS * DAYS)
    for number in range(DATASETS * DAYS):
        file = part / f"d{number % DATASETS}" / f"{_day(number // DATASETS)}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8") as out:
            out.writelines(_lines(_day(number // DATASETS), per_file + (number < rest)))
    part.rename(folder)
    return folder


def write_many_datasets(cache: Path, datasets: int) -> Path:
    """Write a file of one flight for each of many datasets and return the folder."""
    folder = cache / f"datasets-{datasets}"
    if folder.exists():
        return folder
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    text = "".join(_lines(FIRST_DAY, 1))
    for number in range(datasets):
        file = part / f"d{number:06}" / f"{FIRST_DAY}.csv"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    part.rename(folder)
    return folder


def _day(number: int) -> date:
    return FIRST_DAY + timedelta(days=number)


def _lines(day: date, rows: int) -> Iterator[str]:
    """Yield a header and so many flights of one day, the demo's rows over and over."""
    packed = (files("gobblin_dagster.demo") / "flights.csv.gz").read_bytes()
    header, *flights = gzip.decompress(packed).decode().splitlines()
    yield header + "\n"
    # Only the dates are fresh: year, month and day in front, the date of time_hour at the end.
    middles = [(flight.split(",", 3)[3].rpartition(",")[0], flight.rpartition("T")[2]) for flight in flights]
    for number in range(rows):
        middle, time = middles[number % len(middles)]
        yield f"{day.year},{day.month},{day.day},{middle},{day}T{time}\n"
