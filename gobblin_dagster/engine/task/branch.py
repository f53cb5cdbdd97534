"""Run one branch of the fork inside one work unit: its converters, policies and writer. Its failure is its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.quality.contract import Contract
from gobblin_dagster.constructs.quality.not_null import NotNullRowPolicy
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.columns import convert_error, has_column
from gobblin_dagster.constructs.types.schema_text import any_type_from_text, type_texts
from gobblin_dagster.core.constructs import (
    BatchObserver,
    BranchView,
    Chunk,
    ConstructContext,
    DataWriter,
    JudgesRows,
    TaskLevelPolicy,
    WriterContext,
)
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import memory_of
from gobblin_dagster.core.task_state import BranchCounts, PolicyOutcome, StagedFile, TaskFailure
from gobblin_dagster.core.traits import PublisherTraits, Widening, WriterTraits, traits_of
from gobblin_dagster.engine.task.policy_checker import evaluate_policies
from gobblin_dagster.engine.task.row_pipeline import Quarantine, RowPipeline
from gobblin_dagster.engine.task.shared_files import SharedFiles
from gobblin_dagster.spec.job import BranchSpec, ConstructSpec, JobSpec, TaskPolicySpec

CONTRACT = "schema_contract"
"""Name under which rows that the schema contract rejects are counted and put into the quarantine."""


class Branch:
    """Writes the rows that the fork gives it. A failure is kept and never raised, so the other branches go on.

    Source: gobblin-runtime `Fork`.
    """

    def __init__(
        self,
        job: JobSpec,
        spec: BranchSpec,
        context: ConstructContext,
        quarantine: Quarantine,
        shared: SharedFiles | None = None,
    ) -> None:
        self.name = spec.name
        self.failure: TaskFailure | None = None
        self.files: tuple[StagedFile, ...] = ()
        self.schema: pa.Schema | None = None
        self.notes: tuple[str, ...] = ()
        self._writer_spec = job.writer_of(spec)
        self._job, self._spec = job, spec
        self._policy_specs: Sequence[TaskPolicySpec] = job.task_policies_of(spec)
        self._context = dataclasses.replace(context, branch=spec.name)
        self._pipeline = RowPipeline(spec.name, spec.converters, spec.row_policies, self._context, quarantine)
        self._extract = job.to_extract()
        self._publisher = judge_of_rows(job, spec, self._context)
        self._key: NotNullRowPolicy | None = None
        self._shared = shared
        self._writer: DataWriter | None = None
        self._contract: Contract | None = None
        self._previous_schema: str | None = None
        self._policies: list[tuple[TaskPolicySpec, TaskLevelPolicy]] = []
        self._observers: list[BatchObserver] = []
        self._rows_in = 0
        self._rows_written = 0

    def open(
        self,
        schema: pa.Schema,
        writer_context: Callable[[str, pa.Schema], WriterContext],
        previous_schema: str | None,
    ) -> None:
        """Prepare for chunks of `schema`; `previous_schema` is the schema published last, None if there is none."""
        with self._keeping_failure():
            self._previous_schema = previous_schema
            self.schema = self._agreed(self._pipeline.open(schema))
            self._require_columns(self.schema)
            self._policies = [
                (spec, registry.create(ConstructKind.TASK_POLICY, spec, self._context)) for spec in self._policy_specs
            ]
            self._observers = [policy for _, policy in self._policies if isinstance(policy, BatchObserver)]
            if self._shared is None:
                self._writer = self._make_writer(writer_context(self.name, self.schema))
            else:
                self._writer = self._shared.writer(self.name, self.schema, self._make_writer)

    def _make_writer(self, where: WriterContext) -> DataWriter:
        writer: DataWriter = registry.create(
            ConstructKind.WRITER, self._writer_spec, self._context, writer_context=where
        )
        return writer

    def _require_columns(self, schema: pa.Schema) -> None:
        """Raise ConvertError if the publisher cannot publish rows of the schema."""
        if self._publisher is None:
            return
        if why := self._publisher.unfit_columns(self._extract, schema):
            raise convert_error(why, "publisher", self._context)
        if key := tuple(self._publisher.key_columns(self._extract)):
            self._key = NotNullRowPolicy(NotNullRowPolicy.Options(columns=key), self._context)

    def _require_key(self, chunk: Chunk) -> None:
        """Raise ConvertError for a row with null in a column that identifies rows for the publisher."""
        if self._key is None or (mask := self._key.check(chunk.batch)).true_count == len(mask):
            return
        first = chunk.filter(pc.invert(mask)).rows[0]
        problem = f"{self._key.reason()}, its key, in row {first}; put such rows aside with the row policy `not_null`"
        raise convert_error(problem, "publisher", self._context, chunk.file)

    def _conformed(self, contract: Contract, chunk: Chunk) -> Chunk:
        """Return the rows in the contract's schema; those that it rejects are put aside."""
        for _ in range(len(chunk.batch.schema) if contract.rejects else 0):
            found = next(contract.unfit(chunk.batch), None)
            if found is None:
                break
            mask, reason = found
            self._pipeline.put_aside(chunk.filter(mask), CONTRACT, reason)
            chunk = chunk.filter(pc.invert(mask))
        return dataclasses.replace(chunk, batch=on_rows(contract.conform, chunk))

    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema to write, by the branch's schema contract."""
        self._contract = contract_of(self._job, self._spec, self._previous_schema, schema, self._context)
        agreed = schema
        if self._contract is not None:
            self.notes = self._contract.notes
            agreed = self._contract.schema
        if self._previous_schema is None or names_columns(self._writer_spec):
            return agreed
        return _in_places(self._previous_schema, agreed)

    def write(self, chunk: Chunk) -> None:
        """Convert, check and write a chunk; does nothing after the branch has failed."""
        if self.failure is not None or self._writer is None:
            return
        with self._keeping_failure():
            self._rows_in += chunk.batch.num_rows
            for processed in self._pipeline.process(chunk):
                if self._contract is not None:
                    processed = self._conformed(self._contract, processed)  # noqa: PLW2901  # the same rows
                    if not processed.batch.num_rows:
                        continue
                batch = processed.batch
                self._require_key(processed)
                if self.schema is not None and self.schema.names != batch.schema.names:
                    batch = _placed(batch, self.schema)
                with self._memory_of_writer():
                    self._writer.write(batch)
                self._rows_written += batch.num_rows
                for observer in self._observers:
                    observer.observe(batch)

    def finish(self) -> None:
        """Close and sync the branch's files; files shared by a group are closed by the group."""
        if self.failure is None and self._writer is not None:
            with self._keeping_failure():
                self._pipeline.finish()
                if self._shared is None:
                    with self._memory_of_writer():
                        self.files = tuple(self._writer.finish())

    def evaluate(self, rows_read: int, rows_expected: int | None) -> list[PolicyOutcome]:
        """Apply the task-level policies to the finished branch; an enforced failure fails the branch."""
        if self.failure is not None or self.schema is None:
            return []
        view = BranchView(
            branch=self.name,
            counts=self.counts,
            rows_read=rows_read,
            rows_expected=rows_expected,
            schema=self.schema,
            previous_schema=self._previous_schema,
            files=self.files,
        )
        outcomes, failure = evaluate_policies(view, self._policies)
        self.failure = self.failure or failure
        return outcomes

    def abort(self) -> None:
        """Delete what was staged."""
        if self._writer is not None:
            self._writer.abort()

    @property
    def counts(self) -> BranchCounts:
        """Rows and bytes so far."""
        return BranchCounts(
            rows_in=self._rows_in,
            rows_filtered=self._pipeline.rows_filtered,
            rows_rejected=sum(self._pipeline.rejected.values()),
            rows_written=self._rows_written,
            bytes_written=sum(file.size_bytes for file in self.files),
        )

    @property
    def rejected(self) -> Mapping[str, int]:
        """Rejected rows by policy."""
        return self._pipeline.rejected

    @property
    def rows_quarantined(self) -> int:
        """Rows that this branch sent to the quarantine."""
        return self._pipeline.rows_quarantined

    def _memory_of_writer(self) -> AbstractContextManager[None]:
        return memory_of(f"branch {self.name!r}, writer {self._writer_spec.type!r}", self._context.dataset_urn)

    def _keeping_failure(self) -> _KeepFailure:
        return _KeepFailure(self)


def judge_of_rows(job: JobSpec, branch: BranchSpec, context: ConstructContext) -> JudgesRows | None:
    """Return the branch's publisher if it needs certain columns; raises as `Registry.create`."""
    spec = job.publisher_of(branch)
    if not issubclass(registry.load(ConstructKind.PUBLISHER, spec.type), JudgesRows):
        return None
    publisher: JudgesRows = registry.create(ConstructKind.PUBLISHER, spec, context)
    return publisher


def names_columns(writer: ConstructSpec) -> bool:
    """Return whether a writer's files name their columns; if not, readers know them by their places."""
    return writer.options.get("header") is not False


def _in_places(previous: str, schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns are in the places in which they were published, new ones behind them.

    Columns that are gone keep their places; they are null.
    """
    kinds = {name: any_type_from_text(text) or pa.null() for name, text in type_texts(previous).items()}
    fields = {field.name: field for field in schema}
    return pa.schema([*(fields.pop(name, pa.field(name, kind)) for name, kind in kinds.items()), *fields.values()])


def _placed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = batch.num_rows
    columns = [batch[one.name] if has_column(batch.schema, one.name) else pa.nulls(rows, one.type) for one in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def contract_of(
    job: JobSpec, branch: BranchSpec, previous: str | None, schema: pa.Schema, context: ConstructContext
) -> Contract | None:
    """Return the branch's schema contract with the schema published last; None if there is none of the two.

    Raises ConvertError if the contract is broken, others as `Registry.load`.
    """
    kind = branch.schema_contract or job.schema_contract
    if kind is None or previous is None:
        return None
    return Contract(kind, previous, schema, context, widens=widenings_of(job, branch))


def widenings_of(job: JobSpec, branch: BranchSpec) -> frozenset[Widening]:
    """Return how types of a branch may become wider: what both its writer and its publisher allow.

    Raises as `Registry.load`.
    """
    publisher = registry.load(ConstructKind.PUBLISHER, job.publisher_of(branch).type)
    writer = registry.load(ConstructKind.WRITER, job.writer_of(branch).type)
    taken = frozenset(traits_of(publisher, PublisherTraits, "widens").widens)
    return taken & frozenset(traits_of(writer, WriterTraits).widens)


class _KeepFailure:
    """Turns an exception into the branch's failure, so that it ends this branch and nothing else."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False  # KeyboardInterrupt and SystemExit end the process
        self._branch.failure = describe_failure(error, self._branch.name)
        return True
