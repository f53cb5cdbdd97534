from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.demo import full
from gobblin_dagster.demo.flights import Period, split
from gobblin_dagster.demo.project import write_demo

LINES = ["year,month,day,carrier,origin", "2013,1,31,UA,EWR", "2013,2,1,UA,EWR", "2013,2,9,UA,EWR", "2013,2,1,AA,JFK"]


def names(period: Period) -> dict[str, int]:
    return {str(path): len(rows) - 1 for path, rows in split(LINES, period).items()}


def test_split_by_day_makes_a_file_per_dataset_and_day() -> None:
    assert names(Period.DAY) == {
        "UA-EWR/2013-01-31.csv": 1,
        "UA-EWR/2013-02-01.csv": 1,
        "UA-EWR/2013-02-09.csv": 1,
        "AA-JFK/2013-02-01.csv": 1,
    }


def test_split_by_month_names_a_file_after_the_first_day() -> None:
    assert names(Period.MONTH) == {"UA-EWR/2013-01-01.csv": 1, "UA-EWR/2013-02-01.csv": 2, "AA-JFK/2013-02-01.csv": 1}


def archive(folder: Path, flights: bytes) -> Path:
    path = folder / f"{full.PACKAGE}-{full.VERSION}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(f"{full.PACKAGE}-{full.VERSION}/{full.PACKAGE}/data/flights.csv.zip")
        member.size = len(flights)
        tar.addfile(member, io.BytesIO(flights))
    return path


def test_archive_with_other_content_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    archive(tmp_path, b"something else")
    with pytest.raises(CorruptRecordError, match="expected SHA-256"):
        full.write_full_demo(tmp_path / "demo", tmp_path)
    assert not (tmp_path / "demo").exists()


def test_target_in_use_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    with pytest.raises(UsageError, match="not an empty folder"):
        full.write_full_demo(tmp_path / "demo", tmp_path / "no-such-cache")
