from __future__ import annotations

import pytest

from gobblin_dagster.cli.each_job import for_each_job
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import job_spec


def begin(job: JobSpec) -> str:
    if job.job == "bad":
        raise UsageError(problem="It cannot be done.")
    return job.job.upper()


def test_job_that_fails_is_told_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job_spec({}).model_copy(update={"job": name}) for name in ("one", "bad", "two")]
    outcomes = for_each_job(jobs, begin)
    assert outcomes.results == ["ONE", "TWO"]
    assert outcomes.code == 2
    assert "It cannot be done." in capsys.readouterr().err
    views = outcomes.views(lambda result: {"result": result}, result=None)
    assert [(view["job"], view["result"]) for view in views] == [("one", "ONE"), ("bad", None), ("two", "TWO")]
    assert views[1]["error"]["code"] == "usage"


def test_no_job_that_failed_is_success() -> None:
    assert for_each_job([job_spec({})], begin).code == 0


def test_interrupt_ends_the_jobs_and_leaves_what_the_others_did() -> None:
    def stop(job: JobSpec) -> str:
        if job.job == "two":
            raise KeyboardInterrupt
        return begin(job)

    jobs = [job_spec({}).model_copy(update={"job": name}) for name in ("one", "bad", "two", "three")]
    outcomes = for_each_job(jobs, stop)
    assert (outcomes.results, outcomes.code, outcomes.interrupted) == (["ONE"], 130, "two")
    views = outcomes.views(lambda result: {"result": result}, result=None)
    assert [(view["job"], (view["error"] or {"code": ""})["code"]) for view in views] == [
        ("one", ""),
        ("bad", "usage"),
        ("two", "interrupted"),
    ]
