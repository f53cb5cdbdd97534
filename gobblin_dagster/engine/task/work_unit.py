"""Run one work unit: extract -> convert -> check -> fork -> branches -> staged files, in one pass over its batches.

Never raises for an error of the work unit: the failure is part of the TaskState. Never publishes.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.schema_text import schema_text
from gobblin_dagster.core.constructs import (
    Chunk,
    Extractor,
    ForkOperator,
    MarksRows,
    Source,
    TellsNotes,
    WriterContext,
)
from gobblin_dagster.core.errors import ForkBranchMismatchError, InvalidSpecError, SpecFault
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import memory_of
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import (
    PolicyOutcome,
    StagedFile,
    TaskFailure,
    TaskState,
    WorkingState,
    advance,
)
from gobblin_dagster.core.utils.iteration_clock import IterationClock
from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.task.branch import Branch
from gobblin_dagster.engine.task.branch_queue import BranchRunner, runners
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.copy_check import require_copies
from gobblin_dagster.engine.task.limited_reader import LimitedReader, StoppedError
from gobblin_dagster.engine.task.quarantine import Quarantine
from gobblin_dagster.engine.task.row_pipeline import RowPipeline, take_flagged
from gobblin_dagster.engine.task.shared_files import SharedFiles
from gobblin_dagster.spec.job import PRE_FORK, JobSpec


def never() -> bool:
    """Return False: nobody asks to stop."""
    return False


def run_work_unit(
    run_context: RunContext,
    spec: JobSpec,
    task: TaskInput,
    storage: Storage,
    is_stopped: Callable[[], bool] = never,
) -> TaskState:
    """Run one work unit to its end and return its TaskState.

    `is_stopped` is asked while the unit waits; if it returns True, the unit ends as cancelled.

    Source: gobblin-runtime `Task`. Differs: a branch's failure does not stop the others; names of staged files hold the
    commit id and a fresh attempt id, so two attempts of one unit never write the same file.
    """
    return _WorkUnitRun(run_context, spec, task, storage, is_stopped).run()


def run_group(
    run_context: RunContext,
    spec: JobSpec,
    tasks: Sequence[TaskInput],
    storage: Storage,
    is_stopped: Callable[[], bool] = never,
    begin: Callable[[str], object] = str,
) -> list[TaskState]:
    """Run work units of one dataset into common files; each has its own TaskState, the first one lists the files.

    If any of them fails, return an empty list and leave nothing staged: the caller then runs them one by one, so that
    only the failing unit fails. If `is_stopped` returns True, the units that have not begun are absent from the result.
    `begin` is called with the id of each unit that begins.
    """
    first = _WorkUnitRun(run_context, spec, tasks[0], storage, is_stopped)
    shared = SharedFiles(first.writer_context)
    runs: list[_WorkUnitRun] = []
    try:
        for task in tasks:
            if runs and is_stopped():
                break
            run = _WorkUnitRun(run_context, spec, task, storage, is_stopped) if runs else first
            run.share(shared, first)
            begin(task.unit.id)
            if not run.read():
                shared.abort()
                return []
            runs.append(run)
        first.take_files(shared)
    except Exception:  # noqa: BLE001 - what cannot be written in common is tried again alone, and fails there
        shared.abort()
        return []
    return [run.state() for run in runs]


def run_part(
    run_context: RunContext, spec: JobSpec, task: TaskInput, storage: Storage, extractor: Extractor
) -> tuple[TaskState, dict[str, pa.Schema]]:
    """Run as `run_work_unit`, reading from an open extractor; return the schemas of the branches too."""
    run = _WorkUnitRun(run_context, spec, task, storage, extractor=extractor)
    state = run.run()
    return state, run.schemas


class _WorkUnitRun:
    """One attempt to run a work unit."""

    def __init__(
        self,
        run_context: RunContext,
        spec: JobSpec,
        task: TaskInput,
        storage: Storage,
        is_stopped: Callable[[], bool] = never,
        extractor: Extractor | None = None,
    ) -> None:
        # Each process that runs work units must know the secrets: a worker, a child of one, or a part of a Spark job.
        run_context.make_secrets_known()
        self._run_context = run_context
        self._extractor = extractor
        self._spec = spec
        self._task = task
        self._unit = task.unit
        self._storage = storage
        self._is_stopped = is_stopped
        self._attempt = secrets.token_hex(6)
        self._context = dataclasses.replace(
            run_context.construct_context(spec, task.unit.dataset_urn),
            in_order=spec.keeps_parts,
            limit_rows=spec.execution.limit.rows,
        )
        self._shared: SharedFiles | None = None
        self._quarantine = Quarantine(self.writer_context)
        self._branches: list[Branch] = []
        self._runners: list[BranchRunner] = []
        self._pipeline: RowPipeline | None = None
        self._reader: LimitedReader | None = None
        self._bytes_read = 0
        self._row_marks: Mapping[str, RowMark] = {}
        self._reading_notes: Sequence[str] = ()
        self._rows_untaken = 0
        self._left_out: dict[str, None] = {}
        """Branches that the schema leaves out although the operator chooses rows for them."""
        self._outcomes: list[PolicyOutcome] = []
        self._quarantined_files: tuple[StagedFile, ...] = ()
        self._failures: list[TaskFailure] = []
        self._ended = WorkingState.SUCCESSFUL
        self._is_kept = True
        self._seconds = 0.0
        self._extract_clock, self._convert_clock = IterationClock(), IterationClock()

    def share(self, shared: SharedFiles, first: _WorkUnitRun) -> None:
        """Write to the files of a group, which carry the attempt id of the group's first work unit."""
        self._shared, self._quarantine, self._attempt = shared, shared.quarantine, first._attempt

    def run(self) -> TaskState:
        """Read, convert, write and check; return the TaskState."""
        self.read()
        return self.state()

    def read(self) -> bool:
        """Run the work unit without building its TaskState; return True on success."""
        began = time.monotonic()
        try:
            context = self._run_context
            require_allowed(self._spec, context.base_dir, context.allow, context.run_id)
            self._extract()
            self._close()
        except StoppedError:
            self._give_up(WorkingState.CANCELLED)
        except Exception as error:  # noqa: BLE001 - a work unit's failure is its own; it is kept in its TaskState
            self._failures.append(describe_failure(error))
            self._give_up(WorkingState.FAILED)
        self._failures += [branch.failure for branch in self._branches if branch.failure is not None]
        if self._failures:
            self._give_up(WorkingState.FAILED)
        if self._reader is not None and self._reader.failure is not None:
            self._failures.insert(0, self._reader.failure)
            self._ended = WorkingState.FAILED
        self._seconds = time.monotonic() - began
        return self._ended is WorkingState.SUCCESSFUL

    def take_files(self, shared: SharedFiles) -> None:
        """Close the files of a group, and list them as files of this work unit."""
        files = shared.finish()
        for branch in self._branches:
            branch.files = files.get(branch.name, ())
        self._quarantined_files = shared.quarantine.finish()

    def _give_up(self, ended: WorkingState) -> None:
        """Stop the branches, and delete what was staged."""
        if self._is_kept:
            self._is_kept, self._ended = False, ended
            for runner in self._runners:
                runner.cancel()
            if self._shared is None:
                for branch in self._branches:
                    branch.abort()
                self._quarantine.abort()

    def _extract(self) -> None:
        with memory_of(f"source {self._spec.source.type!r}", self._unit.dataset_urn):
            extractor = self._extractor or self._open_extractor()
        try:
            self._pump(extractor)
        finally:
            self._bytes_read = extractor.bytes_read
            self._row_marks = extractor.row_marks() if isinstance(extractor, MarksRows) else {}
            self._reading_notes = extractor.reading_notes() if isinstance(extractor, TellsNotes) else ()
            extractor.close()

    def _open_extractor(self) -> Extractor:
        source: Source = registry.create(ConstructKind.SOURCE, self._spec.source, self._context)
        return source.extractor(self._unit)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """Written schemas by branch."""
        return {branch.name: branch.schema for branch in self._branches if branch.schema is not None}

    def _pump(self, extractor: Extractor) -> None:
        spec = self._spec
        self._pipeline = RowPipeline(
            PRE_FORK, spec.converters, spec.row_policies, self._context, self._quarantine.write
        )
        schema = self._pipeline.open(extractor.schema)
        fork = self._open_branches(schema)
        self._reader = LimitedReader(self._unit, extractor, spec, self._is_stopped)
        for chunk in self._extract_clock.timed(self._reader.chunks()):
            for passed in self._convert_clock.timed(self._pipeline.process(chunk)):
                self._fork(fork, passed)

    def _open_branches(self, schema: pa.Schema) -> ForkOperator:
        specs = self._spec.fork.branches
        fork: ForkOperator = registry.create(
            ConstructKind.FORK, self._spec.fork.operator, self._context, branches=[branch.name for branch in specs]
        )
        flags = fork.fork_schema(schema)
        if len(flags) != len(specs):
            raise ForkBranchMismatchError(what="schema", flags=len(flags), branches=len(specs))
        self._branches = [
            Branch(self._spec, branch, self._context, self._quarantine.write, self._shared) for branch in specs
        ]
        self._present = [bool(flag) for flag in flags]
        for branch, present in zip(self._branches, self._present, strict=True):
            if present:
                branch.open(schema, self.writer_context, self._task.previous_schemas.get(branch.name))
        self._runners = runners(self._branches, self._spec.fork)
        return fork

    def _fork(self, fork: ForkOperator, chunk: Chunk) -> None:
        with memory_of(f"fork operator {self._spec.fork.operator.type!r}", self._unit.dataset_urn):
            flags = on_rows(fork.fork_batch, chunk)
        if len(flags) != len(self._branches):
            raise ForkBranchMismatchError(what="record", flags=len(flags), branches=len(self._branches))
        require_copies(chunk, [flag for flag, present in zip(flags, self._present, strict=True) if present])
        for runner, flag, present in zip(self._runners, flags, self._present, strict=True):
            taken = take_flagged(chunk, flag)
            if taken is not None and present:
                runner.put(taken)
            elif taken is not None:
                self._left_out[runner.branch.name] = None
        self._rows_untaken += _count_untaken(chunk, list(flags), self._present)

    def _close(self) -> None:
        """Close and sync all files, then apply the task-level policies: they see only a work unit that is complete."""
        if self._pipeline is not None:
            self._pipeline.finish()
        for runner in self._runners:
            runner.finish()
        if self._shared is None:
            self._quarantined_files = self._quarantine.finish()
        expected = self._unit.rows if not (self._reader and self._reader.is_cut) else None
        for branch in self._branches:
            self._outcomes += branch.evaluate(self._rows_read, expected)

    @property
    def _rows_read(self) -> int:
        return self._reader.rows if self._reader is not None else 0

    def writer_context(self, branch: str, schema: pa.Schema) -> WriterContext:
        """Return where a branch stages; raises InvalidSpecError if a link leads out of the allowed folders."""
        folder = self._spec.dataset_folder(branch, self._unit.dataset_urn)
        target = folder if "://" in folder else f"{self._run_context.output_root}/{folder}"
        if problem := self._run_context.allow.path_problem(target, self._run_context.base_dir):
            raise InvalidSpecError(file=f"Job {self._spec.job!r}", faults=(SpecFault("output.path", problem),))
        return WriterContext(
            storage=self._storage,
            staging_dir=self._run_context.staging_dir(self._task.commit_id),
            target_dir=folder,
            file_stem=f"{self._task.commit_id}-{self._unit.id}-{self._attempt}",
            branch=branch,
            dataset_urn=self._unit.dataset_urn,
            schema=schema,
        )

    def state(self) -> TaskState:
        """Return the TaskState of the attempt."""
        unit = self._unit
        files = [file for branch in self._branches for file in branch.files] + list(self._quarantined_files)
        pipeline = self._pipeline
        rejected = dict(pipeline.rejected) if pipeline else {}
        for branch in self._branches:
            rejected |= {f"{branch.name}.{name}": count for name, count in branch.rejected.items()}
        return TaskState(
            work_unit_id=unit.id,
            dataset_urn=unit.dataset_urn,
            state=advance(WorkingState.RUNNING, self._ended),
            attempt=self._attempt,
            low=unit.low,
            expected_high=unit.expected_high,
            actual_high=self._reader.high if self._is_kept and self._reader is not None else unit.low,
            rows_read=self._rows_read,
            bytes_read=self._bytes_read,
            rows_filtered=pipeline.rows_filtered if pipeline else 0,
            rows_rejected=rejected,
            rows_quarantined=(pipeline.rows_quarantined if pipeline else 0)
            + sum(branch.rows_quarantined for branch in self._branches),
            rows_untaken=self._rows_untaken,
            branches={branch.name: branch.counts for branch in self._branches},
            files=tuple(files) if self._is_kept else (),
            policies=tuple(self._outcomes),
            failures=tuple(self._failures),
            schemas={name: schema_text(schema) for name, schema in self.schemas.items()},
            queues={runner.branch.name: runner.stats for runner in self._runners if runner.stats is not None},
            notes=(
                *(hidden(note) for note in self._reading_notes),
                *(hidden(note) for branch in self._branches for note in branch.notes),
                *(
                    f"rows that the fork operator chooses for branch {name!r} are not published there: its "
                    "`fork_schema` leaves the branch out."
                    for name in self._left_out
                ),
            ),
            seconds=round(self._seconds, 3),
            extract_s=round(self._extract_clock.seconds, 3),
            convert_s=round(self._convert_clock.seconds, 3),
            row_marks=self._row_marks if self._is_kept else {},
        )


def _count_untaken(chunk: Chunk, flags: list[bool | pa.BooleanArray], present: list[bool]) -> int:
    """Count the rows that no branch takes."""
    masks = []
    for flag, is_present in zip(flags, present, strict=True):
        if flag is True and is_present:
            return 0
        if is_present and not isinstance(flag, bool):
            masks.append(flag)
    if not masks:
        return int(chunk.batch.num_rows)
    taken = pc.fill_null(masks[0], False)
    for mask in masks[1:]:
        taken = pc.or_(taken, pc.fill_null(mask, False))
    untaken: int = chunk.batch.num_rows - taken.true_count
    return untaken
