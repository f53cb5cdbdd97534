"""Notes on datasets that may be known ones under other names."""

from __future__ import annotations

from pathlib import Path

from gobblin_dagster.core.startpoint import Specific
from gobblin_dagster.engine.run.job_run import plan_job
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.engine.plan.test_startpoints import wish


def notes(root: Path, **rows: int) -> dict[str, tuple[str, ...]]:
    job = job_spec({urn: {"rows": number} for urn, number in rows.items()})
    return {one.dataset_urn: one.notes for one in plan_job(project(root, job), job).datasets}


def test_new_datasets_in_place_of_all_that_were_published_are_told(tmp_path: Path) -> None:
    """Another `path` names datasets otherwise, and all that was published is read again."""
    assert notes(tmp_path, a=3) == {"a": ()}
    run(tmp_path, job_spec({"a": {"rows": 3}, "b": {"rows": 3}, "empty": {"rows": 0}}))
    found = notes(tmp_path, **{"2026-a": 3, "2026-b": 3, "none": 0})
    assert "This job has published 2 datasets, such as 'a', and the source has none now" in found["2026-a"][0]
    assert found["2026-b"] == found["2026-a"]
    assert found["none"] == ()
    assert notes(tmp_path, a=3, c=3) == {"a": (), "c": ()}
    wish(tmp_path, job_spec({"c": {"rows": 3}}), Specific("3"), urn="c")
    assert not any("is new" in note for note in notes(tmp_path, c=5)["c"])
