"""Small work units of one dataset in one pack share their files; whatever fails, fails alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task import multi_work_unit as pack
from gobblin_dagster.engine.task.checkpoint import TaskCheckpoints
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.file_groups import make_groups
from gobblin_dagster.engine.task.multi_work_unit import run_pack
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import LocalStorage
from tests.unit.engine.jobs import by_urn, job_spec, published, run

QUARANTINE = [{"type": "sql", "name": "odd", "rule": "id % 50 <> 7"}]
SMALL = {"a": {"rows": 100, "unit_rows": 10}, "b": {"rows": 30, "unit_rows": 10}}


def _files(root: Path, branch: str, urn: str) -> int:
    return len(list((root / "lake/test/numbers" / branch / urn).glob("*.parquet")))


def _tasks(*sizes: int | None, urn: str = "a") -> list[TaskInput]:
    return [
        TaskInput(WorkUnit(f"wu-{n:05d}", urn, LongWatermark(n), LongWatermark(n + 1), size_bytes=size), "c" * 32)
        for n, size in enumerate(sizes)
    ]


def _numbers(groups: list[list[TaskInput]]) -> list[list[int]]:
    return [[int(task.unit.id[3:]) for task in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([10, 20, 30, 40], [[0, 1, 2, 3]]),
        ([60, 40, 1, 99], [[0, 1], [2, 3]]),
        ([200, 10, 10], [[0], [1, 2]]),
        ([None, 10, None, 10], [[0], [1, 3], [2]]),
        ([], []),
    ],
)
def test_groups_are_bounded_by_their_estimated_bytes(sizes: list[int | None], expected: list[list[int]]) -> None:
    job = job_spec({}, execution={"merge_bytes": 100})
    assert sorted(_numbers(make_groups(_tasks(*sizes), job))) == expected


UPSERT = {"type": "sql_table", "url": "sqlite:///a.db", "table": "numbers", "mode": "upsert", "key": ["id"]}


@pytest.mark.parametrize("publisher", [{"type": "merge", "key": ["id"]}, UPSERT], ids=["merge", "upsert"])
def test_units_that_do_not_follow_each_other_share_no_files_if_the_last_row_counts(publisher: dict[str, Any]) -> None:
    merge = {"publisher": publisher}
    tasks = _tasks(9, 8, 1, 1, 1)
    pack = [tasks[number] for number in (0, 2, 4, 3)]  # the other one is in another pack
    assert _numbers(make_groups(pack, job_spec({}, **merge))) == [[0], [2, 3, 4]]
    ordered = {"extract": {"namespace": "test", "table": "numbers", "delta_fields": ["n"]}}
    assert _numbers(make_groups(pack, job_spec({}, **merge, **ordered))) == [[0, 2, 3, 4]]


def test_units_with_ids_of_more_digits_come_after_the_others_if_the_last_row_counts() -> None:
    ids = [f"wu-{number:05d}" for number in range(99_998, 100_002)]
    pack = [replace(task, unit=replace(task.unit, id=one)) for task, one in zip(_tasks(1, 1, 1, 1), ids, strict=True)]
    merge = {"publisher": {"type": "merge", "key": ["id"]}}
    assert _numbers(make_groups(pack, job_spec({}, **merge))) == [[99_998, 99_999, 100_000, 100_001]]


def test_datasets_never_share_files_however_they_lie_in_a_pack() -> None:
    mixed = [task for pair in zip(_tasks(1, 1), _tasks(1, 1, urn="b"), strict=True) for task in pair]
    groups = make_groups(mixed, job_spec({}))
    assert [[task.unit.dataset_urn for task in group] for group in groups] == [["a", "a"], ["b", "b"]]


@pytest.mark.parametrize("parts", [{"execution": {"merge_bytes": 0}}, {"task_policies": [{"type": "row_count"}]}])
def test_nothing_is_merged_where_it_is_turned_off_or_policies_judge_each_unit(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    run(tmp_path, job_spec(SMALL, **parts))
    assert (_files(tmp_path, "all", "a"), _files(tmp_path, "masked", "b")) == (10, 3)


def test_small_units_share_files_per_dataset_and_branch(tmp_path: Path) -> None:
    job = job_spec(SMALL, row_policies=QUARANTINE)
    datasets = by_urn(run(tmp_path, job))
    # Two packs: each holds a part of the dataset.
    assert {_files(tmp_path, branch, "a") for branch in ("all", "masked")} == {2}
    assert published(tmp_path, job, "a") == [n for n in range(100) if n % 50 != 7]
    assert published(tmp_path, job, "b", "masked") == [n for n in range(30) if n != 7]
    assert (datasets["a"].rows_read, datasets["a"].rows_quarantined, datasets["a"].rejected) == (100, 2, {"odd": 2})
    assert datasets["a"].rows_by_branch == {"all": 98, "masked": 98}


def test_each_unit_of_a_group_has_a_state_and_counts_of_its_own(tmp_path: Path) -> None:
    states = _run_pack(tmp_path, job_spec({"a": {"rows": 30}}, row_policies=QUARANTINE))
    assert [state.work_unit_id for state in states] == ["wu-00001", "wu-00002", "wu-00003"]
    assert [str(state.actual_high) for state in states] == ["10", "20", "30"]
    assert [state.rows_read for state in states] == [10, 10, 10]
    assert [state.branches["all"].rows_written for state in states] == [9, 10, 10]
    assert [len(state.files) for state in states] == [3, 0, 0]
    assert {file.branch: file.rows for file in states[0].files} == {"all": 29, "masked": 29, "quarantine": 1}


def _run_pack(
    root: Path, job: JobSpec, units: int = 3, stop: Callable[[], bool] | None = None, run_id: str = "run-1"
) -> list[TaskState]:
    runner = RunContext(job.model_dump_json(), run_id, str(root), str(root / "lake"))
    tasks = [
        TaskInput(WorkUnit(f"wu-{n:05d}", "a", LongWatermark(n * 10 - 10), LongWatermark(n * 10), rows=10), "c" * 32)
        for n in range(1, units + 1)
    ]
    return list(run_pack(runner, iter(tasks), stop))


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
def test_failing_unit_of_a_group_fails_alone(tmp_path: Path, policy: str) -> None:
    job = job_spec({"a": {"rows": 50, "unit_rows": 10, "fail_at": 25}}, commit={"policy": policy})
    dataset = by_urn(run(tmp_path, job))["a"]
    if policy == "full":
        assert dataset.outcome is DatasetOutcome.FAILED
    else:
        assert published(tmp_path, job, "a") == [n for n in range(50) if not 20 <= n < 30]
        assert len(dataset.failures) == 1


def test_files_of_a_failed_group_are_deleted_before_its_units_run_alone(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 30, "fail_at": 25}})
    states = _run_pack(tmp_path, job)
    assert [state.state.value for state in states] == ["successful", "successful", "failed"]
    staged = {str(path) for path in (tmp_path / "lake").rglob("*.parquet")}
    assert staged == {file.path for state in states for file in state.files}


def test_group_that_cannot_be_closed_is_run_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gobblin_dagster.engine.task.shared_files import SharedFiles

    def fail(_: SharedFiles) -> None:
        raise StorageError(operation="sync", path="x", problem="no space left")

    monkeypatch.setattr(SharedFiles, "finish", fail)
    states = _run_pack(tmp_path, job_spec({"a": {"rows": 30}}))
    assert [len(state.files) for state in states] == [2, 2, 2]


def test_finished_group_is_returned_whole_when_its_pack_runs_again(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 30}})
    assert _run_pack(tmp_path, job) == _run_pack(tmp_path, job)


def test_group_that_died_is_run_one_by_one_and_its_files_count_for_nothing(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 30}})
    board = TaskCheckpoints(LocalStorage(durable=False), f"{tmp_path}/lake/_gobblin/staging/run-1")
    assert board.start_group("wu-00001")
    states = _run_pack(tmp_path, job)
    assert [len(state.files) for state in states] == [2, 2, 2]
    assert board.all_results() == {state.work_unit_id: state for state in states}


@pytest.fixture
def isolated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The units that were run in a process of their own, in order; they are run in this one all the same."""
    units: list[str] = []

    def run_here(runner: RunContext, task: TaskInput) -> TaskState:
        units.append(task.unit.id)
        return pack.run_one(runner, task)

    monkeypatch.setattr(pack, "_run_isolated", run_here)
    return units


def test_only_the_unit_at_work_is_suspected_when_a_group_dies(tmp_path: Path, isolated: list[str]) -> None:
    board = TaskCheckpoints(LocalStorage(durable=False), f"{tmp_path}/lake/_gobblin/staging/run-1")
    board.start_group("wu-00001")
    board.start("wu-00001")
    board.start("wu-00002")
    states = _run_pack(tmp_path, job_spec({"a": {"rows": 30}}))
    assert isolated == ["wu-00002"]
    assert {state.state for state in states} == {WorkingState.SUCCESSFUL}


def test_unit_that_began_alone_and_died_is_suspected_too(tmp_path: Path, isolated: list[str]) -> None:
    board = TaskCheckpoints(LocalStorage(durable=False), f"{tmp_path}/lake/_gobblin/staging/run-1")
    board.start_group("wu-00001")
    for mark in ("wu-00001", "wu-00002", "wu-00001-alone"):
        board.start(mark)
    _run_pack(tmp_path, job_spec({"a": {"rows": 30}}))
    assert isolated == ["wu-00001", "wu-00002"]


def test_units_of_a_group_that_failed_in_order_are_no_suspects(tmp_path: Path, isolated: list[str]) -> None:
    _run_pack(tmp_path, job_spec({"a": {"rows": 30, "fail_at": 25}}))
    assert isolated == []


def test_suspect_is_repeated_where_it_fails_for_a_passing_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def lose_once(runner: RunContext, task: TaskInput) -> TaskState:
        attempts.append(task.unit.id)
        if len(attempts) == 1:
            return pack.unrun(task, WorkingState.FAILED, TaskFailure("transient", "lost", transient=True))
        return pack.run_one(runner, task)

    monkeypatch.setattr(pack, "_run_isolated", lose_once)
    board = TaskCheckpoints(LocalStorage(durable=False), f"{tmp_path}/lake/_gobblin/staging/run-1")
    board.start("wu-00001")
    job = job_spec({"a": {"rows": 10}}, execution={"retries": {"count": 1, "backoff_s": 0}})
    (state,) = _run_pack(tmp_path, job, units=1)
    assert (state.state, attempts) == (WorkingState.SUCCESSFUL, ["wu-00001", "wu-00001"])


def test_result_of_a_group_counts_before_that_of_its_units(tmp_path: Path) -> None:
    # Two attempts of one pack at once: never may rows be counted in the one's files and in the other's.
    job = job_spec({"a": {"rows": 30}})
    grouped = _run_pack(tmp_path, job)
    board = TaskCheckpoints(LocalStorage(durable=False), f"{tmp_path}/lake/_gobblin/staging/run-1")
    for state in _run_pack(tmp_path, job, run_id="run-2"):
        board.finish(state)
    assert board.all_results() == {state.work_unit_id: state for state in grouped}


def test_stop_between_units_keeps_those_that_were_read_and_cancels_the_others(tmp_path: Path) -> None:
    asked = iter([False, False, True])
    states = _run_pack(tmp_path, job_spec({"a": {"rows": 30}}), stop=lambda: next(asked, True))
    assert [state.state for state in states] == [
        WorkingState.SUCCESSFUL,
        WorkingState.SUCCESSFUL,
        WorkingState.CANCELLED,
    ]
    assert [file.rows for file in states[0].files] == [20, 20]


def test_share_of_rejected_rows_is_judged_for_each_unit(tmp_path: Path) -> None:
    policies = [{"type": "sql", "name": "few", "rule": "id < 18", "on_violation": "drop", "max_share": 0.5}]
    states = _run_pack(tmp_path, job_spec({"a": {"rows": 30}}, row_policies=policies))
    assert [state.state.value for state in states] == ["successful", "successful", "failed"]
