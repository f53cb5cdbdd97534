"""Tests that every construct of a job file must pass: it is found, checked and made as a job does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.testing.conformance.base import Conformance

UNKNOWN_OPTION = "conformance_of_no_construct"


class ConstructConformance(Conformance):
    """Tests of constructs of every kind."""

    kind: ClassVar[ConstructKind]
    spec: Mapping[str, Any]
    """The declaration in the job file: `type`, as `my_module:MyConverter`, and the options."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """Further fields of `ConstructContext`: `load_time`, `branch`, `in_order` and so on."""

    @pytest.fixture
    def context(self, tmp_path: Path) -> ConstructContext:
        """Return where the construct works; relative paths of its options begin in `tmp_path`."""
        made = ConstructContext(job="conformance", base_dir=str(tmp_path), dataset_urn="a/b", run_id="run-1")
        return dataclasses.replace(made, **self.facts)

    def make(self, context: ConstructContext, **more: Any) -> Any:
        """Make a fresh object, as each work unit gets one."""
        return registry.create(self.kind, ConstructSpec.model_validate(self.spec), context, **more)

    def test_declaration_has_no_fault(self) -> None:
        """The class has the methods of its protocol and a model `Options`, which accepts the options that are given."""
        declared = ConstructSpec.model_validate(self.spec)
        assert registry.check(self.kind, declared.type, declared.options) == []

    def test_option_that_is_unknown_is_refused(self) -> None:
        """`Options` refuses keys that it does not know, so that a misspelt one is told."""
        declared = ConstructSpec.model_validate(self.spec)
        faults = registry.check(self.kind, declared.type, {**declared.options, UNKNOWN_OPTION: 1})
        assert any(UNKNOWN_OPTION in where for where, _ in faults), faults


def numbered(batch: pa.RecordBatch, first: int = 1) -> Chunk:
    """Return a chunk whose rows are numbered in their file from `first` on."""
    return Chunk(batch, "in/rows.csv", pa.array(range(first, first + batch.num_rows), pa.int64()))


def inside_another(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows as a slice of a batch that begins with others: their buffers begin elsewhere."""
    others = batch.take(pa.array(range(batch.num_rows - 1, -1, -1), pa.int64()))
    (both,) = pa.Table.from_batches([others, batch]).combine_chunks().to_batches()
    return both.slice(batch.num_rows)


def rows_of(*batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of batches as Python values, which compare equal whatever the buffers look like."""
    return [row for batch in batches for row in batch.to_pylist()]
