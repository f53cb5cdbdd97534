"""A pack of work units inside one Spark task, surviving the death of its Python worker.

Spark runs a task again when its worker dies. The second attempt returns the rows of units that were finished, and runs
units that were begun but not finished alone in a child process: a unit that kills its process ends as its own failure.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from gobblin_dagster.core.errors import WorkerDiedError
from gobblin_dagster.core.serial import from_json, to_json
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState, advance
from gobblin_dagster.engine.lane.board import TaskBoard
from gobblin_dagster.engine.lane.context import LaneContext, LaneTask
from gobblin_dagster.engine.lane.failure import describe_failure
from gobblin_dagster.engine.lane.groups import make_groups
from gobblin_dagster.engine.lane.retry import run_with_retries
from gobblin_dagster.engine.lane.task import run_group, run_work_unit
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import open_storage


def run_pack(
    lane: LaneContext, tasks: Iterator[LaneTask], is_stopped: Callable[[], bool] | None = None
) -> Iterator[TaskState]:
    """Run the work units of a pack one after the other, small ones of a dataset as a group; yields one TaskState each.

    Units that have not begun when the board (or `is_stopped`) asks to stop come back as cancelled.
    """
    spec = lane.spec
    import_from(lane.base_dir)
    storage = open_storage(lane.output_root, durable=spec.commit.durability == "full")
    # The board steers a running job and is worthless after it: it need not survive power loss.
    board = TaskBoard(open_storage(lane.output_root, durable=False), lane.staging_root)

    def must_stop() -> bool:
        return board.is_stop_requested() or (is_stopped is not None and is_stopped())

    for group in make_groups(list(tasks), spec):
        states = _run_group(lane, spec, group, storage, board, must_stop) if len(group) > 1 else []
        yield from states
        done = {state.work_unit_id for state in states}
        for task in group:
            if task.unit.id not in done:
                yield _run_alone(lane, spec, task, storage, board, must_stop)


def _run_group(
    lane: LaneContext,
    spec: JobSpec,
    group: Sequence[LaneTask],
    storage: Storage,
    board: TaskBoard,
    must_stop: Callable[[], bool],
) -> list[TaskState]:
    """Run a group, once: where it killed its worker, or any unit failed, its units are run one by one."""
    first_id = group[0].unit.id
    if states := board.group_results(first_id):
        return states
    if must_stop() or not board.start_group(first_id):
        return []
    states = run_group(lane, spec, group, storage, must_stop)
    if states:
        board.finish_group(states)
    return states


def _run_alone(
    lane: LaneContext,
    spec: JobSpec,
    task: LaneTask,
    storage: Storage,
    board: TaskBoard,
    must_stop: Callable[[], bool],
) -> TaskState:
    finished = board.result(task.unit.id)
    if finished is not None:
        return finished
    if must_stop():
        return board.finish(unrun(task, WorkingState.CANCELLED, None))
    attempt = (
        partial(run_work_unit, lane, spec, task, storage, must_stop)
        if board.start(task.unit.id)
        else partial(_run_isolated, lane, task)
    )
    return board.finish(run_with_retries(attempt, spec.execution.retries, must_stop))


def run_packs_in_arrow(
    lane_json: str, packs: Sequence[Sequence[str]] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run packs by number inside a Spark task; `packs` is None where they lie on staging storage.

    Shape: in, one int64 column of pack numbers; out, one string column `state`, one TaskState as JSON per work unit.
    """
    lane = from_json(LaneContext, lane_json)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            texts = packs[number] if packs is not None else read_pack(lane, number)
            rows = [to_json(state) for state in run_pack(lane, (from_json(LaneTask, text) for text in texts))]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=["state"])


def write_packs(lane: LaneContext, packs: Sequence[Sequence[str]]) -> None:
    """Store packs that are too large to travel with the task's code."""
    storage = open_storage(lane.output_root, durable=False)
    for number, pack in enumerate(packs):
        storage.put_if_absent(_pack_path(lane, number), json.dumps(list(pack)).encode())


def read_pack(lane: LaneContext, number: int) -> list[str]:
    """Return what `write_packs` stored."""
    raw = open_storage(lane.output_root, durable=False).read(_pack_path(lane, number))
    texts: list[str] = json.loads(raw)
    return texts


def _pack_path(lane: LaneContext, number: int) -> str:
    return f"{lane.staging_root}/_packs/{number:05d}.json"


def run_one(lane: LaneContext, task: LaneTask) -> TaskState:
    """Run one work unit in this process, off the board."""
    spec = lane.spec
    import_from(lane.base_dir)
    storage: Storage = open_storage(lane.output_root, durable=spec.commit.durability == "full")
    return run_work_unit(lane, spec, task, storage)


def import_from(folder: str) -> None:
    """Let a job name classes (`module:Class`) of its own project folder."""
    if folder not in sys.path:
        sys.path.append(folder)


def _run_isolated(lane: LaneContext, task: LaneTask) -> TaskState:
    """Run a suspect in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-m", "gobblin_dagster.engine.lane.isolated"],
        input=json.dumps({"lane": to_json(lane), "task": to_json(task)}).encode(),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    if child.returncode == 0:
        return from_json(TaskState, child.stdout.decode())
    unit = task.unit
    error = WorkerDiedError(dataset_urn=unit.dataset_urn, work_unit=unit.id, exit_code=child.returncode)
    return unrun(task, WorkingState.FAILED, describe_failure(error))


def unrun(task: LaneTask, state: WorkingState, failure: TaskFailure | None) -> TaskState:
    """Return the TaskState of a work unit of which nothing was staged."""
    unit = task.unit
    return TaskState(
        work_unit_id=unit.id,
        dataset_urn=unit.dataset_urn,
        state=advance(WorkingState.PENDING, state),
        attempt=secrets.token_hex(6),
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.low,
        failures=(failure,) if failure else (),
    )
