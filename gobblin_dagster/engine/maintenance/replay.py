"""Replay rejected rows of the quarantine: they go through the pipeline of the job as it is now, exactly once.

A row that a policy rejected is checked again by all policies of its pipeline; its converters have converted it already.
A row that a converter could not convert begins at that converter. Rows that pass go on to the fork and the branches; if
a branch rejected them, only to that branch. Rows that are rejected again return to the quarantine. One commit adds the
rows and removes the replayed ones from the quarantine; the watermark does not move. Runs in this process.

Source: none; the original writes error files and never reads them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import no_rows
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.constructs.writers.quarantine import BY_CONVERTER, QUARANTINE_SCHEMA
from gobblin_dagster.core.commit import CommitSequence, ManualChange, PublishedFile
from gobblin_dagster.core.constructs import Chunk, ConstructContext, RewritesFiles, WriterContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import EnvironmentFaultError, OutOfMemoryError, StorageError, UsageError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile, TaskState, TaskSums, WorkingState
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.commit.branch_publishers import Move, Publishers, reads_current
from gobblin_dagster.engine.commit.build import totals_of
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.maintenance.rewrite import Rewriting
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import branch_writers, dataset_folders, load_step_types, make_publishers
from gobblin_dagster.engine.snapshots.lost_store import StoreCheck
from gobblin_dagster.engine.snapshots.rejected_rows import open_quarantined
from gobblin_dagster.engine.task.context import TaskInput
from gobblin_dagster.engine.task.work_unit import run_part
from gobblin_dagster.spec.job import PRE_FORK, QUARANTINE_BRANCH, BranchSpec, ExecutionSpec, ForkSpec, JobSpec
from gobblin_dagster.state.store import StateStore

_NO_FAULT_OF_JOB = {StorageError.code, EnvironmentFaultError.code, OutOfMemoryError.code}


@dataclass(frozen=True, slots=True, repr=False)
class Replay(ShownAsFacts):
    """The result of a replay of one dataset, or its preview."""

    dataset_urn: str
    rows: Mapping[str, int]
    """Rows sent through the pipeline, by the rule that had rejected them."""
    kept: int = 0
    """Rows that stay in quarantine: not selected, or their rule, branch or version no longer exists."""
    published: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by branch."""
    rejected_again: int = 0
    dropped: int = 0
    """Rows that a policy or converter of the job, as it is now, drops for good."""
    untaken: int = 0
    """Rows that no branch of the fork took."""
    snapshot: int = 0
    """Number of the snapshot with the published rows; 0 in a dry run, or if there was nothing to replay."""

    def _facts(self) -> Mapping[str, object]:
        return {
            "dataset": self.dataset_urn,
            "replayed": ", ".join(f"{rule} {rows:,}" for rule, rows in self.rows.items()) or "nothing",
            "kept": self.kept,
            "published": ", ".join(f"{branch} {rows:,}" for branch, rows in self.published.items()),
            "rejected again": self.rejected_again or None,
            "dropped": self.dropped or None,
            "untaken": self.untaken or None,
            "snapshot": self.snapshot or None,
        }


@dataclass(frozen=True, slots=True)
class _Entry:
    """The place where rows enter the pipeline: the rule that rejected them, in its stage."""

    stage: str
    rule: str
    is_converter: bool


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that were rejected together: one rule, one schema."""

    entry: _Entry | None
    """None if the rows have no place in the pipeline any more."""
    rule: str
    origin: pa.RecordBatch
    """The rows as stored in the quarantine."""
    rows: pa.RecordBatch | None


def replay_quarantine(
    project: Project,
    job: JobSpec,
    dataset_urn: str,
    *,
    rule: str | None = None,
    dry_run: bool = False,
    who: str = "",
    store: StateStore | None = None,
) -> Replay:
    """Send rejected rows of a dataset through the pipeline again.

    Args:
        project: the project.
        job: one of its jobs, as it is now.
        dataset_urn: the dataset.
        rule: only rows that this policy or converter rejected; default: all.
        dry_run: only count them.
        who: the person who asks for it; stored in the dataset's history.
        store: an open state store, which stays open; default: open one and close it.

    Raises:
        UsageError: nothing was published of the dataset, or the store was restored from an older copy.
        DatasetBusyError: a run holds it.
        UnfinishedSequenceError: one of its commit sequences is unfinished or quarantined.
        StorageError: the rows are committed, as the message says, and their manifest could not be written.
        GobblinDagsterError: the rows failed in the pipeline; nothing was published.
    """
    load_step_types(job)
    with project.use_store(store) as open_store:
        work = _Replayer(project, job, open_store, rule)
        if dry_run:
            return work.count(work.state(dataset_urn))
        project.tidy_ended(job, open_store)
        with project.lease_keeper(job, open_store, work.run_id) as leases:
            epoch = leases.take(dataset_urn)
            # Under the lease, so the commit demands the state that is read here.
            state = work.state(dataset_urn)
            check = StoreCheck.of(project, job, open_store)
            check.require_snapshots(dataset_urn)
            check.require_commits(dataset_urn)
            # If the lease was inherited from a killed run, only this call knows that its manifest may be missing.
            fill_manifests(project.storage(job), open_store, project.output_root(job), job.job, {dataset_urn: state})
            done = work.run(state, epoch, who)
            leases.leave(work.committer.unfinished)
    if dataset_urn in work.committer.unseen:
        raise work.committer.unseen[dataset_urn]
    return done


class _Replayer:
    def __init__(self, project: Project, job: JobSpec, store: StateStore, rule: str | None) -> None:
        self.run_id = new_run_id(project.clock.now())
        self._project = project
        self._job = job
        self._store = store
        self._rule = rule
        self._storage: Storage = project.storage(job)
        self._runner = project.run_context(job, self.run_id)
        self.committer = Committer.of(job.commit, store, self._storage)

    def state(self, dataset_urn: str) -> DatasetState:
        """Return the dataset's state; raises UsageError if nothing was published of it."""
        state = self._store.load_dataset_states(self._job.job, [dataset_urn]).get(dataset_urn)
        if state is None:
            raise UsageError(problem=f"Nothing was published of dataset {dataset_urn!r} of job {self._job.job!r}.")
        return state

    def count(self, state: DatasetState) -> Replay:
        """Return what would be replayed."""
        rows: Counter[str] = Counter()
        kept = 0
        for file in self._files(state):
            for group in self._groups(state.dataset_urn, file):
                if self._is_wanted(group):
                    rows[group.rule] += group.origin.num_rows
                else:
                    kept += group.origin.num_rows
        return Replay(state.dataset_urn, dict(sorted(rows.items())), kept)

    def run(self, state: DatasetState, epoch: int, who: str) -> Replay:
        """Replay and commit."""
        planned = self.count(state)
        if not planned.rows:
            return planned
        rewriting = Rewriting(self._job, state, self.run_id, self._runner.output_root)
        units: list[TaskState] = []

        def stage() -> CommitSequence:
            urn = state.dataset_urn
            touched = [file for file in self._files(state) if any(map(self._is_wanted, self._groups(urn, file)))]
            units.extend(self._run_units(rewriting, touched))
            rest = self._stage_rest(rewriting, touched)
            return self._sequence(rewriting, touched, units, rest, who)

        sequence = rewriting.commit(self.committer, self._storage, epoch, stage)
        came = totals_of(TaskSums.of(units))
        return dataclasses.replace(
            planned,
            published=came.branch_rows,
            rejected_again=came.rows_quarantined,
            dropped=came.rows_rejected - came.rows_quarantined,
            untaken=came.rows_untaken,
            snapshot=sequence.after.snapshot,
        )

    # -- rows in quarantine --------------------------------------------------------------------------------------------
    def _files(self, state: DatasetState) -> list[PublishedFile]:
        held = self._store.load_snapshot(self._job.job, state.dataset_urn, state.snapshot)
        return sorted((f for f in held if f.branch == QUARANTINE_BRANCH), key=lambda file: (file.snapshot, file.path))

    def _groups(self, dataset_urn: str, file: PublishedFile) -> Iterator[_Group]:
        """Yield the rows of a quarantine file, grouped as they were rejected together."""
        with open_quarantined(dataset_urn, file) as reader:
            rows = no_rows(reader.schema_arrow)
            for number in range(reader.num_row_groups):
                # A merged file may be cut between rows of one group.
                parts = pa.Table.from_batches([rows, *reader.read_row_group(number).to_batches()])
                rows = parts.combine_chunks().to_batches()[0]
                start, is_last = 0, number + 1 == reader.num_row_groups
                while start < rows.num_rows and (group := self._group(rows.slice(start), is_last=is_last)):
                    yield group
                    start += group.origin.num_rows
                rows = rows.slice(start)

    def _group(self, rows: pa.RecordBatch, *, is_last: bool) -> _Group | None:
        """Return the first group of rows of a batch; None if more of its rows may follow."""
        rule = rows.column("policy")[0].as_py()
        stream = rows.column("arrow")[0].as_py() if "arrow" in rows.schema.names else None
        if stream is None:
            return _Group(None, rule, rows.slice(0, 1), None)
        batch = pa.ipc.open_stream(stream).read_all().combine_chunks().to_batches()[0]
        if batch.num_rows > rows.num_rows:
            return _Group(None, rule, rows, None) if is_last else None
        is_converter = (batch.schema.metadata or {}).items() >= BY_CONVERTER.items()
        entry = self._entry(_Entry(rows.column("stage")[0].as_py(), rule, is_converter))
        return _Group(entry, rule, rows.slice(0, batch.num_rows), batch)

    def _entry(self, entry: _Entry) -> _Entry | None:
        """Return the entry if the job as it is now still has that place, else None."""
        stage = _stage_of(self._job, entry.stage)
        if stage is None or (entry.is_converter and entry.rule not in [one.label for one in stage.converters]):
            return None
        return entry

    def _is_wanted(self, group: _Group) -> bool:
        return group.entry is not None and self._rule in (None, group.rule)

    # -- through the pipeline ------------------------------------------------------------------------------------------
    def _run_units(self, rewriting: Rewriting, files: Sequence[PublishedFile]) -> list[TaskState]:
        """Run the rows of each entry and schema as a work unit of its own."""
        state = rewriting.before
        wanted: dict[tuple[_Entry, str], list[_Group]] = {}
        for file in files:
            for group in self._groups(state.dataset_urn, file):
                if self._is_wanted(group) and group.entry is not None and group.rows is not None:
                    wanted.setdefault((group.entry, str(group.rows.schema)), []).append(group)
        units = []
        for number, ((entry, _), groups) in enumerate(wanted.items(), 1):
            mark: Any = state.watermark
            rows = sum(group.origin.num_rows for group in groups)
            unit = WorkUnit(f"replay-{number:03d}", state.dataset_urn, mark, mark, rows=rows)
            task = TaskInput(unit, rewriting.commit_id, state.schemas)
            ended, _ = run_part(self._runner, from_entry(self._job, entry), task, self._storage, _Rejected(groups))
            if ended.state is not WorkingState.SUCCESSFUL:
                raise _not_replayed(ended, entry)
            units.append(ended)
        return units

    def _stage_rest(self, rewriting: Rewriting, files: Sequence[PublishedFile]) -> list[StagedFile]:
        """Stage the rows of touched files that stay in quarantine."""
        urn = rewriting.before.dataset_urn
        context = ConstructContext(job=self._job.job, base_dir="", dataset_urn=urn, branch=QUARANTINE_BRANCH)
        where = WriterContext(
            storage=self._storage,
            staging_dir=rewriting.staging_dir,
            target_dir=files[0].path.rpartition("/")[0].removeprefix(self._runner.output_root + "/"),
            file_stem=f"{rewriting.commit_id}-kept",
            branch=QUARANTINE_BRANCH,
            dataset_urn=urn,
            schema=QUARANTINE_SCHEMA,
        )
        writer = ParquetWriter(ParquetWriter.Options(), context, writer_context=where)
        for file in files:
            for group in self._groups(urn, file):
                if not self._is_wanted(group):
                    writer.write(group.origin)
        return list(writer.finish())

    def _sequence(
        self,
        rewriting: Rewriting,
        touched: Sequence[PublishedFile],
        units: Sequence[TaskState],
        rest: Sequence[StagedFile],
        who: str,
    ) -> CommitSequence:
        state = rewriting.before
        now = state.later(self._project.clock.now())
        staged = [*(file for unit in units for file in unit.files), *rest]
        # Replayed rows are added to the published ones, so publishers that replace data are not asked; but those that
        # replace single rows are.
        publishers = {
            name: publisher
            for name, publisher in make_publishers(self._job, self._runner, state.dataset_urn).items()
            if isinstance(publisher, RewritesFiles) or not reads_current([publisher])
        }
        urn = state.dataset_urn
        held = (
            self._store.load_snapshot(self._job.job, urn, state.snapshot) if reads_current(publishers.values()) else ()
        )
        new_writer = branch_writers(self._job, self._runner, self._storage, urn, rewriting.commit_id)
        moves = [Move(file, f"{rewriting.output_root}/{file.target}") for file in staged]
        folders = dataset_folders(self._job, urn)
        done = Publishers(publishers, held, folders=folders, new_writer=new_writer).plan(
            rewriting.view(now), moves, state.schemas, state.snapshot + 1
        )
        came = totals_of(TaskSums.of(units))
        replayed = came.rows_read
        # The run that rejected these rows has counted them as read.
        came = dataclasses.replace(
            came,
            rows_read=0,
            rows_rejected=came.rows_rejected - replayed,
            rows_quarantined=came.rows_quarantined - replayed,
        )
        return rewriting.sequence(
            done.moves,
            [*(file.path for file in touched), *done.removed],
            now,
            change=ManualChange("replay of the quarantine", who, f"rule {self._rule}" if self._rule else ""),
            note=f"{replayed} rows of the quarantine went through the pipeline again",
            totals=state.totals.plus(came),
            steps=done.steps,
        )


def _not_replayed(ended: TaskState, entry: _Entry) -> Exception:
    failure = ended.failures[0] if ended.failures else None
    why = failure.message if failure else f"it is {ended.state}"
    problem = f"Rows of dataset {ended.dataset_urn!r} that {entry.rule!r} had rejected cannot be replayed: {why}"
    if failure and (failure.transient or failure.code in _NO_FAULT_OF_JOB):
        return EnvironmentFaultError(problem=problem, hint="Nothing was published. Mend that, and replay them again.")
    return UsageError(
        problem=problem, hint="Nothing was published. Correct the job, or replay other rules with --rule."
    )


class _Rejected:
    """Reads rejected rows; an `Extractor`."""

    bytes_read = 0

    def __init__(self, groups: Sequence[_Group]) -> None:
        self._groups = groups
        self.schema: pa.Schema = _plain(groups[0]).schema

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, with the files and row numbers of their first origin."""
        for group in self._groups:
            rows, files = _plain(group), group.origin.column("source_file").to_pylist()
            start = 0
            while start < len(files):
                end = next((n for n in range(start, len(files)) if files[n] != files[start]), len(files))
                numbers = group.origin.column("source_row").slice(start, end - start)
                yield Chunk(rows.slice(start, end - start), files[start], numbers)
                start = end

    def close(self) -> None:
        """Do nothing: no file is open."""


def _plain(group: _Group) -> pa.RecordBatch:
    """Return the rows without the metadata that says who rejected them."""
    if group.rows is None:
        raise UsageError(problem="Rows without their types cannot be replayed.")
    return group.rows.replace_schema_metadata(None)


def from_entry(job: JobSpec, entry: _Entry) -> JobSpec:
    """Return the part of a job's pipeline that begins where rows were rejected."""
    stage = _stage_of(job, entry.stage)
    labels = [one.label for one in stage.converters] if stage else []
    converters = stage.converters[labels.index(entry.rule) :] if stage and entry.is_converter else ()
    plain: dict[str, Any] = {
        # Limits and parts need positions of a source, which replayed rows do not have.
        "execution": ExecutionSpec(),
        "commit": job.commit.model_copy(update={"policy": "full"}),
    }
    if isinstance(stage, BranchSpec):
        branch = stage.model_copy(update={"converters": converters})
        plain |= {"fork": ForkSpec(branches=(branch,)), "converters": (), "row_policies": ()}
    else:
        plain |= {"converters": converters}
    return job.model_copy(update=plain)


def _stage_of(job: JobSpec, name: str) -> JobSpec | BranchSpec | None:
    return job if name == PRE_FORK else next((branch for branch in job.fork.branches if branch.name == name), None)
