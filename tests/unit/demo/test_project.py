from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gobblin_dagster.constructs.registry import registry
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.demo import add_day, write_demo
from gobblin_dagster.demo.__main__ import app
from gobblin_dagster.demo.project import write_service
from gobblin_dagster.spec.load import load_jobs, load_project


def days(project: Path, dataset: str) -> list[date]:
    return sorted(date.fromisoformat(file.stem) for file in (project / "data" / "flights" / dataset).iterdir())


def rows(project: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for file in sorted((project / "data" / "flights").glob("*/*.csv")):
        with file.open(newline="", encoding="utf-8") as text:
            found += csv.DictReader(text)
    return found


def test_write_demo_writes_exactly_the_files_that_it_returns(tmp_path: Path) -> None:
    written = write_demo(tmp_path / "demo")
    assert sorted(written) == sorted(path for path in (tmp_path / "demo").rglob("*") if path.is_file())


def test_job_file_of_the_demo_has_no_fault(tmp_path: Path) -> None:
    write_demo(tmp_path)
    jobs, errors = load_jobs(tmp_path, load_project(tmp_path), registry.check)
    assert errors == []
    assert [job.spec.job for job in jobs] == ["flights"]


@pytest.mark.parametrize("write", [write_demo, write_service])
def test_new_projects_start_spark_only_for_runs_that_need_it(
    tmp_path: Path, write: Callable[[Path], list[Path]]
) -> None:
    write(tmp_path / "demo")
    assert load_project(tmp_path / "demo").spark.start == "when_needed"


def test_demo_has_six_datasets_over_seven_days(tmp_path: Path) -> None:
    write_demo(tmp_path)
    datasets = sorted(folder.name for folder in (tmp_path / "data" / "flights").iterdir())
    assert datasets == ["9E-JFK", "B6-JFK", "EV-EWR", "HA-JFK", "UA-EWR", "WN-LGA"]
    week = [date(2013, 2, day) for day in range(6, 13)]
    assert all(days(tmp_path, dataset) == week for dataset in datasets)


def test_rows_lie_in_the_file_of_their_dataset_and_day(tmp_path: Path) -> None:
    write_demo(tmp_path)
    for file in (tmp_path / "data" / "flights").glob("*/*.csv"):
        with file.open(newline="", encoding="utf-8") as text:
            of_file = {
                (f"{row['carrier']}-{row['origin']}", date(int(row["year"]), int(row["month"]), int(row["day"])))
                for row in csv.DictReader(text)
            }
        assert of_file == {(file.parent.name, date.fromisoformat(file.stem))}


def test_natural_faults_are_kept(tmp_path: Path) -> None:
    write_demo(tmp_path)
    flights = rows(tmp_path)
    assert len(flights[0]) == 19
    assert sum(row["dep_time"] == "NA" for row in flights) > 400  # cancelled, most of them in the storm
    assert sum(row["tailnum"] == "NA" for row in flights) > 100


@pytest.mark.parametrize("name", ["file", "folder"])
def test_write_demo_to_a_target_in_use_is_refused_and_changes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=f"{name} is not an empty folder"):
        write_demo(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


def test_add_day_brings_one_day_at_a_time_until_all_have_arrived(tmp_path: Path) -> None:
    write_demo(tmp_path)
    for day in (13, 14):
        assert {file.stem for file in add_day(tmp_path)} == {f"2013-02-{day}"}
        assert max(days(tmp_path, "HA-JFK")) == date(2013, 2, day)
    with pytest.raises(UsageError, match="the last one is 2013-02-14"):
        add_day(tmp_path)


def test_add_day_outside_a_demo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no flights"):
        add_day(tmp_path)


def test_add_day_command_says_what_arrived(tmp_path: Path) -> None:
    write_demo(tmp_path)
    result = CliRunner().invoke(app, ["add-day", str(tmp_path)])
    assert result.exit_code == 0
    assert f"6 files of 2013-02-13 arrived in {tmp_path / 'data'}." in result.output
