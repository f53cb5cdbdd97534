"""Laws of whole jobs under random arrivals and failures, whatever the commit policy, its scope and the rule for failed
ranges."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.commit.policy import RetryFailed, is_retried
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner

URNS = "ab"
laws = settings(max_examples=15)
arrivals = st.fixed_dictionaries({urn: st.integers(0, 12) for urn in URNS})
"""Rows that come to each dataset before a run."""
fails = st.fixed_dictionaries({urn: st.none() | st.integers(0, 30) for urn in URNS})
"""Row at which reading a dataset fails in a run."""
rules = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["full", "successful", "partial"]),
        "scope": st.sampled_from(["dataset", "job"]),
        "retry_failed": st.sampled_from(["always", "never", "onfull", "onpartial"]),
        "packing": st.sampled_from(["single_level", "bi_level"]),
    }
)


class Lake:
    """A project in a folder of its own, whose jobs change from run to run."""

    def __init__(self, root: Path, rules: dict[str, str]) -> None:
        self._root = root
        self._rules = rules

    def job(self, source: dict[str, Any]) -> JobSpec:
        commit = {"policy": self._rules["policy"], "scope": self._rules["scope"], "durability": "fast"}
        execution = {
            "retry_failed": self._rules["retry_failed"],
            "packing": self._rules["packing"],
            "retries": {"count": 0},
        }
        body: dict[str, Any] = {"job": "j", "source": source, "extract": {"namespace": "n", "table": "t"}}
        body |= {"output": {"path": "lake"}, "commit": commit, "execution": execution}
        return JobSpec.model_validate(body)

    def project(self, job: JobSpec) -> Project:
        return Project(self._root, ProjectSpec(project="p"), (job,))

    def run(self, source: dict[str, Any]) -> RunResult:
        job = self.job(source)
        return run_job(self.project(job), job, runner=InlineRunner())

    def has_work(self, source: dict[str, Any]) -> bool:
        job = self.job(source)
        return plan_job(self.project(job), job).has_work

    def states(self, source: dict[str, Any]) -> dict[str, DatasetState]:
        store = self.project(self.job(source)).open_store()
        try:
            return store.load_dataset_states("j")
        finally:
            store.close()

    def ids(self, source: dict[str, Any], urn: str) -> Counter[int]:
        """Count the published ids of a dataset, from the files of its newest snapshot."""
        store = self.project(self.job(source)).open_store()
        try:
            files = store.load_snapshot("j", urn)
        finally:
            store.close()
        return Counter(n for file in files for n in pq.read_table(file.path, columns=["id"])["id"].to_pylist())


def covered(parts: Any) -> Counter[int]:
    """Count the positions in ranges of whole numbers."""
    return Counter(n for low, high in parts for n in range(low, high))


def check_ranges(state: DatasetState, published: Counter[int], there: int) -> None:
    """Require that ranges neither overlap nor touch, that the committed ones are what is published, and no row is
    twice."""
    given_up = state.given_up.ranges.get("", ()) if state.given_up else ()
    for parts in (state.committed.ranges.get("", ()), given_up, state.settled.ranges.get("", ())):
        bounds = [bound for part in parts for bound in part]
        assert bounds == sorted(bounds)
        assert len({*bounds}) >= len(bounds) - 1  # only an empty first range has two equal bounds
    assert published == covered(state.committed.ranges.get("", ()))
    assert not published & covered(given_up)
    assert set((published | covered(given_up)).values()) <= {1}
    assert max([*published, -1]) < there


def made_up(rows: dict[str, int], fail_at: dict[str, int | None]) -> dict[str, Any]:
    datasets = {urn: {"rows": rows[urn], "unit_rows": 4, "fail_at": fail_at[urn]} for urn in rows}
    return {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": datasets, "batch_rows": 2}


@laws
@given(st.lists(st.tuples(arrivals, fails), min_size=1, max_size=5), rules)
def test_watermarks_never_go_back_ranges_partition_and_the_last_plan_is_empty(
    runs: list[tuple[dict[str, int], dict[str, int | None]]], rules: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="gobblin-laws-") as folder:
        lake = Lake(Path(folder), rules)
        rows = dict.fromkeys(URNS, 0)
        before: dict[str, DatasetState] = {}
        for more, fail_at in runs:
            rows = {urn: rows[urn] + more[urn] for urn in URNS}
            source = made_up(rows, fail_at)
            result = lake.run(source)
            after = lake.states(source)
            for urn, state in after.items():
                old = before.get(urn)
                if old is not None and old.watermark is not None:
                    assert state.watermark is not None
                    assert old.watermark <= state.watermark
                    assert state.version in (old.version, old.version + 1)
                check_ranges(state, lake.ids(source, urn), rows[urn])
            check_scope(result, rules)
            before = after
        whole, rule = made_up(rows, dict.fromkeys(URNS)), rules["retry_failed"]
        for _ in range(2):
            lake.run(whole)
        assert not lake.has_work(whole)
        for urn, state in lake.states(whole).items():
            left_out = covered(state.given_up.ranges.get("", ())) if state.given_up else Counter()
            assert lake.ids(whole, urn) + left_out == covered([(0, rows[urn])])
            may_give_up = rules["policy"] != "full" and not is_retried(cast("RetryFailed", rule), rules["policy"])
            assert may_give_up or not left_out


def check_scope(result: RunResult, rules: dict[str, str]) -> None:
    """Require, where a run is one unit and policy full, that it committed all that had work or nothing."""
    if (rules["scope"], rules["policy"]) == ("job", "full"):
        outcomes = {dataset.outcome for dataset in result.datasets} - {DatasetOutcome.IDLE}
        assert len(outcomes) <= 1


# -- the python source -------------------------------------------------------------------------------------------------
_there: dict[str, int] = {}
_fail_at: dict[str, int | None] = {}


def datasets() -> dict[str, int]:
    """Say where each dataset ends by now."""
    return dict(_there)


def read(unit: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a work unit, up to the one at which it fails."""
    for number in range(unit.low, unit.high):
        if _fail_at.get(unit.dataset) == number:
            raise ValueError("is told to fail")
        yield {"id": number}


@laws
@given(st.lists(st.tuples(arrivals, fails), min_size=1, max_size=4), rules)
def test_function_of_a_user_read_in_many_runs_with_faults_is_published_as_in_one(
    runs: list[tuple[dict[str, int], dict[str, int | None]]], rules: dict[str, str]
) -> None:
    source = {"type": "python", "read": f"{__name__}:read", "datasets": f"{__name__}:datasets", "start": 0}
    rules = rules | {"retry_failed": "always"}
    _there.clear()
    with tempfile.TemporaryDirectory(prefix="gobblin-laws-") as folder:
        lake = Lake(Path(folder), rules)
        for more, fail_at in runs:
            _there.update({urn: _there.get(urn, 0) + more[urn] for urn in URNS})
            _fail_at.update(fail_at)
            check_scope(lake.run(source), rules)
            for urn, state in lake.states(source).items():
                check_ranges(state, lake.ids(source, urn), _there[urn])
        _fail_at.clear()
        lake.run(source)
        assert not lake.has_work(source)
        for urn, count in _there.items():
            assert lake.ids(source, urn) == covered([(0, count)])
