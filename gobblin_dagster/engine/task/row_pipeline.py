"""Run rows through converters, then row-level policies: once before the fork and once in each branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.plain import PlainForm, plain_schema
from gobblin_dagster.constructs.writers.quarantine import BY_CONVERTER
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter, RowLevelPolicy
from gobblin_dagster.core.errors import ConvertError, DataQualityError
from gobblin_dagster.core.memory import memory_of
from gobblin_dagster.engine.task.skip_errors import TolerantConverter
from gobblin_dagster.spec.job import ConverterSpec, OnError, OnViolation, RowPolicySpec

Quarantine: TypeAlias = Callable[[Chunk, str, str, str], None]
"""Takes rejected rows, the policy's name, its reason and the pipeline's name; called from the threads of branches."""


class RowPipeline:
    """Runs chunks through converters and row-level policies, and counts the rows that they remove.

    Shape: chunks in have the schema given to `open`, chunks out the schema that `open` returned. Rows from the source
    and from each converter are brought into the plain form, see `constructs/types/plain.py`.
    """

    def __init__(
        self,
        name: str,
        converters: Sequence[ConverterSpec],
        policies: Sequence[RowPolicySpec],
        context: ConstructContext,
        quarantine: Quarantine,
    ) -> None:
        self._name = name
        self._context = context
        self._quarantine = quarantine
        self._converters = [(spec, self._converter(spec)) for spec in converters]
        self._policies: list[tuple[RowPolicySpec, RowLevelPolicy]] = [
            (spec, registry.create(ConstructKind.ROW_POLICY, spec, dataclasses.replace(context, name=spec.name)))
            for spec in policies
        ]
        self._forms = [PlainForm() for _ in range(len(converters) + 1)]
        self.rows_filtered = 0
        self.rows_quarantined = 0
        self._rows_unfit = 0
        self.rejected: dict[str, int] = {spec.label: 0 for spec in converters if spec.on_error is not OnError.FAIL}
        """Rows dropped or quarantined, by the name of the converter or policy."""
        self.rejected |= {spec.name: 0 for spec, _ in self._policies}
        self._checked_rows = dict.fromkeys(self.rejected, 0)
        self._first_rejected: dict[str, str] = {}

    def open(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema after all converters; raises ConvertError."""
        schema = plain_schema(schema)
        for _, converter in self._converters:
            schema = plain_schema(converter.convert_schema(schema))
        return schema

    def process(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the rows that pass; raises ConvertError, and DataQualityError from a policy of `on_violation: fail`."""
        rows_out, unfit = 0, self._rows_unfit
        for converted in self._convert(chunk, 0):
            rows_out += converted.batch.num_rows
            passed = self._apply_policies(converted)
            if passed.batch.num_rows:
                yield passed
        self.rows_filtered += chunk.batch.num_rows - rows_out - (self._rows_unfit - unfit)

    def finish(self) -> None:
        """Check the share of rejected rows after all rows have passed; raises DataQualityError."""
        for spec, _ in self._policies:
            rejected, checked = self.rejected[spec.name], self._checked_rows[spec.name]
            if spec.max_share is not None and rejected > spec.max_share * checked:
                raise DataQualityError(
                    dataset_urn=self._context.dataset_urn,
                    branch=self._name,
                    policy=spec.name,
                    problem=f"expected at most {spec.max_share:.4%} of rows rejected; got {rejected} of {checked} "
                    f"({rejected / checked:.4%}), first {self._first_rejected[spec.name]}.",
                )

    def put_aside(self, chunk: Chunk, name: str, reason: str) -> None:
        """Count rows as rejected, and send them to the quarantine.

        Args:
            chunk: the rows.
            name: what rejected them.
            reason: why, in one line.
        """
        count = chunk.batch.num_rows
        self.rejected[name] = self.rejected.get(name, 0) + count
        self.rows_quarantined += count
        self._quarantine(chunk, name, reason, self._name)

    def _converter(self, spec: ConverterSpec) -> Converter:
        converter: Converter = registry.create(ConstructKind.CONVERTER, spec, self._context)
        if spec.on_error is OnError.FAIL:
            return converter

        def drop(chunk: Chunk, reason: str) -> None:
            self._rows_unfit += chunk.batch.num_rows
            self.rejected[spec.label] += chunk.batch.num_rows
            if spec.on_error is OnError.QUARANTINE:
                self.rows_quarantined += chunk.batch.num_rows
                marked = chunk.batch.replace_schema_metadata(BY_CONVERTER)
                self._quarantine(dataclasses.replace(chunk, batch=marked), spec.label, reason, self._name)

        return TolerantConverter(converter, spec.max_errors, drop)

    def _convert(self, chunk: Chunk, position: int) -> Iterator[Chunk]:
        if (batch := self._forms[position].rows(chunk.batch)) is not chunk.batch:
            chunk = dataclasses.replace(chunk, batch=batch)
        if position == len(self._converters):
            yield chunk
            return
        for converted in self._converted(*self._converters[position], chunk):
            yield from self._convert(converted, position + 1)

    def _converted(self, spec: ConverterSpec, converter: Converter, chunk: Chunk) -> Iterator[Chunk]:
        """Convert a chunk; add the file to an error that does not name one, because a converter need not know it."""
        try:
            with self._memory_of(f"converter {spec.label!r}"):
                yield from converter.convert(chunk)
        except ConvertError as error:
            if error.file is not None:
                raise
            raise dataclasses.replace(error, file=chunk.file) from error

    def _apply_policies(self, chunk: Chunk) -> Chunk:
        for spec, policy in self._policies:
            if not chunk.batch.num_rows:
                break
            with self._memory_of(f"row policy {spec.name!r}"):
                passes = pc.fill_null(_check(spec, policy, chunk), False)
            self._checked_rows[spec.name] += len(passes)
            if passes.true_count == len(passes):
                continue
            self._reject(spec, policy, chunk.filter(pc.invert(passes)))
            chunk = chunk.filter(passes)
        return chunk

    def _memory_of(self, step: str) -> AbstractContextManager[None]:
        branch = f"branch {self._context.branch!r}, " if self._context.branch else ""
        return memory_of(branch + step, self._context.dataset_urn)

    def _reject(self, spec: RowPolicySpec, policy: RowLevelPolicy, chunk: Chunk) -> None:
        count = chunk.batch.num_rows
        self.rejected[spec.name] += count
        self._first_rejected.setdefault(spec.name, f"{chunk.file} row {chunk.rows[0]}")
        if spec.on_violation is OnViolation.FAIL:
            raise DataQualityError(
                dataset_urn=self._context.dataset_urn,
                branch=self._name,
                policy=spec.name,
                problem=f"{policy.reason()}; {count} row(s) of a batch break it, "
                f"first {chunk.file} row {chunk.rows[0]}.",
            )
        if spec.on_violation is OnViolation.QUARANTINE:
            self.rows_quarantined += count
            self._quarantine(chunk, spec.name, policy.reason(), self._name)


def _check(spec: RowPolicySpec, policy: RowLevelPolicy, chunk: Chunk) -> pa.BooleanArray:
    """Apply a row policy; let an error name the policy as the job file does."""
    try:
        return on_rows(policy.check, chunk)
    except ConvertError as error:
        raise dataclasses.replace(error, construct=f"row policy {spec.name!r}") from error


def take_flagged(chunk: Chunk, flag: bool | pa.BooleanArray) -> Chunk | None:
    """Return the rows that a fork's flag gives to a branch; None if there are none."""
    if isinstance(flag, bool):
        return chunk if flag else None
    taken = chunk.filter(flag)
    return taken if taken.batch.num_rows else None
