"""docs/how-to/read-published-data.md: every example is run, and sees whole commits only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.engine.snapshots.reader import load_published
from tests.unit.engine.jobs import job_spec, project, run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-published-data.md"
EXAMPLES: list[str] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def example(word: str) -> str:
    """Return the only example that holds a word."""
    (found,) = [text for text in EXAMPLES if word in text]
    return found


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake with two commits of 10 and 15 rows, and beside them half of a commit that never became true."""
    for rows in (10, 25):
        job = job_spec({"a": {"rows": rows}})
        run(tmp_path, job)
    published = load_published(project(tmp_path, job), job, "a").paths("all")
    stray = Path(published[0]).with_name("half-a-commit.parquet")
    stray.write_bytes(Path(published[0]).read_bytes())
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "numbers.yaml").write_text(job.model_dump_json(exclude_defaults=True))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "lake"


def run_example(text: str, **names: Any) -> dict[str, Any]:
    exec(compile(text, str(PAGE), "exec"), names)
    return names


def test_page_has_the_examples_that_are_tested_here() -> None:
    assert len(EXAMPLES) == 7


def test_listing_the_folder_sees_what_never_became_true(lake: Path) -> None:
    import pyarrow.dataset as ds

    assert ds.dataset(lake / "test/numbers/all/a").count_rows() > 25


@pytest.mark.parametrize(
    "reader",
    ['"numbers", "a").to_arrow', "load_published", "pd.read_parquet", "duckdb"],
    ids=["arrow", "store", "pandas", "duckdb"],
)
def test_reader_sees_whole_commits_only(lake: Path, reader: str) -> None:
    assert run_example(example(reader))["rows"] == 25


@pytest.mark.spark
def test_spark_sees_whole_commits_only(lake: Path) -> None:
    from gobblin_dagster.engine.spark.runner import SparkRunner

    runner = SparkRunner.start(project(lake.parent).spec.spark, lake / "spark.log")
    try:
        assert run_example(example("spark.read"), spark=runner.session)["rows"] == 25
    finally:
        runner.close()


def test_older_snapshot_is_read_by_its_number(lake: Path) -> None:
    assert run_example(example("snapshot=1"))["older"] == 10


def test_manifests_are_read_without_this_package(lake: Path) -> None:
    import pyarrow.dataset as ds

    text = example("manifests")
    assert "gobblin_dagster" not in text
    assert ds.dataset(run_example(text)["paths"]).count_rows() == 25
