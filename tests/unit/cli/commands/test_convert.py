"""Job files of Gobblin's on the command line: checked, planned, run and converted like those of YAML."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.unit.cli.conftest import Cli

JOB = """\
job.name=old-numbers
source.class=com.shop.NumbersSource
extract.namespace=shop
writer.output.format=PARQUET
job.schedule=0 0 * * * ?
data.publisher.final.dir=out
"""
CLASSES = """
classes:
  com.shop.NumbersSource:
    type: "gobblin_dagster.testing.rows_source:RowsSource"
    datasets: {a: {rows: 5}, b: {rows: 7}}
"""


@pytest.fixture
def old_job(project: Path) -> Path:
    """Put a job file of Gobblin's beside the project's own."""
    with (project / "gobblin.yaml").open("a") as file:
        file.write(CLASSES)
    path = project / "jobs" / "shop" / "numbers.pull"
    path.parent.mkdir()
    path.write_text(JOB)
    return path


def test_check_shows_what_is_not_carried(cli: Cli, old_job: Path) -> None:
    called = cli("check")
    assert called.code == 0, called.out
    assert "ok    jobs/shop/numbers.pull: job old_numbers" in called.out
    assert (
        "note  jobs/shop/numbers.pull:5: job.schedule: is not carried: give the job a schedule in Dagster" in called.out
    )
    (note,) = [one for one in cli("check", "-o", "json").json()["files"][1]["notes"] if one["path"] == "job.schedule"]
    assert note["line"] == 5


def test_check_names_a_key_that_is_not_known_with_file_and_line(cli: Cli, old_job: Path) -> None:
    (old_job.parent / "shop.properties").write_text("\nwriter.codek=x\n")
    called = cli("check")
    assert called.code == 2
    expected = "jobs/shop/shop.properties:2: writer.codek: is no key that is known; did you mean 'writer.codec.type'?"
    assert expected in called.out


def test_plan_and_run_take_such_a_job(cli: Cli, old_job: Path, inline: object) -> None:
    assert "old_numbers" in cli("plan", "old_numbers").out
    called = cli("run", "old_numbers")
    assert called.code == 0, called.err
    files = sorted((old_job.parents[2] / "out").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files if "_gobblin" not in file.parts) == 12


def test_convert_prints_the_job_that_it_is_equal_to(cli: Cli, old_job: Path, inline: object) -> None:
    called = cli("convert", old_job)
    assert called.code == 0, called.err
    assert "job.schedule: is not carried" in called.err
    (before,) = cli("plan", "old_numbers", "-o", "json").json()["jobs"]
    old_job.unlink()
    (old_job.parents[1] / "numbers_too.yaml").write_text(called.out)
    (after,) = cli("plan", "old_numbers", "-o", "json").json()["jobs"]
    assert [after[name] for name in ("job", "branches", "datasets")] == [
        before[name] for name in ("job", "branches", "datasets")
    ]


def test_convert_takes_a_file_outside_of_a_project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKERS", "localhost:9092")
    path = tmp_path / "topics.conf"
    path.write_text(
        "job.name = topics\nsource.class = KafkaSimpleSource\nkafka.brokers = ${BROKERS}\n"
        'data.publisher.final.dir = "/lake"\n'
    )
    called = cli("convert", path)
    assert called.code == 0, called.err
    assert 'brokers: "${BROKERS}"' in called.out
    assert "localhost" not in called.out


def test_convert_refuses_what_is_no_job_of_gobblins(cli: Cli, project: Path) -> None:
    called = cli("convert", project / "jobs" / "numbers.yaml")
    assert called.code == 2
    assert "is not a job file of Gobblin's. Those end in .conf, .job, .json, .pull." in called.err
    assert "Cannot read" in cli("convert", project / "jobs" / "gone.pull").err


def test_convert_shows_all_faults(cli: Cli, old_job: Path) -> None:
    old_job.write_text(JOB.replace("source.class", "source.klass") + "task.maxretries=x\n")
    called = cli("convert", old_job)
    assert called.code == 2
    assert "source.klass: is no key that is known; did you mean 'source.class'?" in called.err
    assert "task.maxretries: expected a whole number, got 'x'" in called.err
