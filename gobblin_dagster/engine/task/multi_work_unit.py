"""Run a pack of work units inside one task, and survive the death of its Python worker.

Spark, or `engine.processes`, runs a task again if its worker dies. The second attempt returns the stored results of
finished units. Units that had begun but not finished run alone in a child process, so a unit that kills its process
fails alone.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from gobblin_dagster.core.errors import WorkerDiedError
from gobblin_dagster.core.failure import describe_failure, refused_by_storage
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState, advance
from gobblin_dagster.core.utils.import_target import python_environment, python_for_module
from gobblin_dagster.engine.task.checkpoint import TaskCheckpoints
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.file_groups import make_groups
from gobblin_dagster.engine.task.retry import run_with_retries
from gobblin_dagster.engine.task.work_unit import run_group, run_work_unit
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import open_storage


def run_pack(
    run_context: RunContext, tasks: Iterator[TaskInput], is_stopped: Callable[[], bool] | None = None
) -> Iterator[TaskState]:
    """Run the work units of a pack one after the other, small ones of a dataset as a group; yields one TaskState each.

    After the stop file exists or `is_stopped` returns True, units that have not begun are returned as cancelled.
    """
    spec = run_context.spec
    run_context.find_modules()
    storage = open_storage(run_context.output_root, durable=spec.commit.durability == "full")
    # Checkpoints are needed only while the job runs, so they need not survive power loss.
    checkpoints = TaskCheckpoints(open_storage(run_context.output_root, durable=False), run_context.staging_root)

    def must_stop() -> bool:
        return checkpoints.is_stop_requested() or (is_stopped is not None and is_stopped())

    for group in make_groups(list(tasks), spec):
        yield from _GroupRun(run_context, spec, group, storage, checkpoints, must_stop).run()


class _GroupRun:
    """Runs the work units of a group: first together, then one by one those that did not finish together."""

    def __init__(
        self,
        run_context: RunContext,
        spec: JobSpec,
        group: Sequence[TaskInput],
        storage: Storage,
        checkpoints: TaskCheckpoints,
        must_stop: Callable[[], bool],
    ) -> None:
        self._run_context = run_context
        self._spec = spec
        self._group = group
        self._storage = storage
        self._checkpoints = checkpoints
        self._must_stop = must_stop
        self._suspect = group[0].unit.id
        """The unit that was running when the group killed its worker; empty if the group killed none."""

    def run(self) -> Iterator[TaskState]:
        states: list[TaskState] = []
        if len(self._group) > 1:
            # If the disk refuses the group's files, it refuses the files of each unit too, and each unit then reports
            # it.
            with suppress(OSError):
                states = self._run_together()
        yield from states
        done = {state.work_unit_id for state in states}
        for task in self._group:
            if task.unit.id not in done:
                yield self._run_or_fail(task)

    def _run_or_fail(self, task: TaskInput) -> TaskState:
        """Run a unit alone; if its checkpoint cannot be written (full disk, no permission), the unit fails."""
        try:
            return self._run_alone(task)
        except OSError as error:
            refused = refused_by_storage(error, self._run_context.staging_root)
            return unrun(task, WorkingState.FAILED, describe_failure(refused or error))

    def _run_together(self) -> list[TaskState]:
        checkpoints, ids = self._checkpoints, [task.unit.id for task in self._group]
        if states := checkpoints.group_results(ids[0]):
            return states
        if self._must_stop():
            return []
        if not checkpoints.start_group(ids[0]):
            self._suspect = next((unit_id for unit_id in reversed(ids) if checkpoints.was_started(unit_id)), ids[0])
            return []
        self._suspect = ""
        states = run_group(
            self._run_context, self._spec, self._group, self._storage, self._must_stop, checkpoints.start
        )
        if states:
            checkpoints.finish_group(states)
        return states

    def _run_alone(self, task: TaskInput) -> TaskState:
        checkpoints, unit_id = self._checkpoints, task.unit.id
        if (finished := checkpoints.result(unit_id)) is not None:
            return finished
        if self._must_stop():
            return checkpoints.finish(unrun(task, WorkingState.CANCELLED, None))
        # A unit that has begun only as part of its group is no suspect; a unit that has begun alone is.
        is_suspect = not checkpoints.start(unit_id) and (
            unit_id == self._suspect or not checkpoints.start(f"{unit_id}-alone")
        )
        attempt = (
            partial(_run_isolated, self._run_context, task)
            if is_suspect
            else partial(run_work_unit, self._run_context, self._spec, task, self._storage, self._must_stop)
        )
        return checkpoints.finish(run_with_retries(attempt, self._spec.execution.retries, self._must_stop))


def run_packs_in_arrow(
    context_json: str, packs: Sequence[Sequence[str]] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run packs by number inside a Spark task; `packs` is None if they are stored on staging storage.

    Shape: in, one int64 column of pack numbers; out, one string column `state`, one TaskState as JSON per work unit.
    """
    run_context = from_json(RunContext, context_json)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            texts = packs[number] if packs is not None else read_pack(run_context, number)
            rows = [to_json(state) for state in run_pack(run_context, (from_json(TaskInput, text) for text in texts))]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=["state"])


def write_packs(run_context: RunContext, packs: Sequence[Sequence[str]]) -> None:
    """Store packs that are too large to be sent with the task's code; raises StorageError."""
    storage = open_storage(run_context.output_root, durable=False)
    try:
        for number, pack in enumerate(packs):
            storage.put_if_absent(_pack_path(run_context, number), json.dumps(list(pack)).encode())
    except OSError as error:
        raise (refused_by_storage(error, run_context.staging_root) or error) from error


def read_pack(run_context: RunContext, number: int) -> list[str]:
    """Return the pack that `write_packs` stored: work units as JSON."""
    raw = open_storage(run_context.output_root, durable=False).read(_pack_path(run_context, number))
    texts: list[str] = json.loads(raw)
    return texts


def _pack_path(run_context: RunContext, number: int) -> str:
    return f"{run_context.staging_root}/_packs/{number:05d}.json"


def run_one(run_context: RunContext, task: TaskInput) -> TaskState:
    """Run one work unit in this process, without checkpoints."""
    spec = run_context.spec
    run_context.find_modules()
    storage: Storage = open_storage(run_context.output_root, durable=spec.commit.durability == "full")
    return run_work_unit(run_context, spec, task, storage)


def _run_isolated(run_context: RunContext, task: TaskInput) -> TaskState:
    """Run a suspect unit in a process of its own."""
    # Files, not pipes: a process that the unit leaves behind would keep a pipe open, and this one waiting.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        message = {"parent": os.getpid(), "run_context": to_json(run_context), "task": to_json(task)}
        child = subprocess.run(  # noqa: S603 - this interpreter and a module of ours
            python_for_module("gobblin_dagster.engine.task.child_process"),
            input=json.dumps(message).encode(),
            stdout=out,
            stderr=log,
            env=python_environment(),
            check=False,
        )
        out.seek(0)
        result = out.read().decode()
        log.seek(0)
        said = log.read().decode(errors="replace")
    sys.stderr.write(said)  # into Spark's log, like the output of other workers
    if child.returncode == 0 and result:  # a unit may end its process with exit code 0
        return from_json(TaskState, result)
    unit, last_line = task.unit, said.strip().rpartition("\n")[2][:500]
    error = WorkerDiedError(dataset_urn=unit.dataset_urn, work_unit=unit.id, exit_code=child.returncode, said=last_line)
    return unrun(task, WorkingState.FAILED, describe_failure(error))


def unrun(task: TaskInput, state: WorkingState, failure: TaskFailure | None) -> TaskState:
    """Return the TaskState of a work unit that staged nothing."""
    unit = task.unit
    return TaskState(
        work_unit_id=unit.id,
        dataset_urn=unit.dataset_urn,
        state=advance(WorkingState.PENDING, state),
        attempt=secrets.token_hex(6),
        low=unit.low,
        expected_high=unit.expected_high,
        actual_high=unit.expected_high if state is WorkingState.SUCCESSFUL else unit.low,
        failures=(failure,) if failure else (),
    )
