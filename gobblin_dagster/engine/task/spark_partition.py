"""Run a work unit that Spark reads: each partition of its DataFrame runs as a part of the unit.

The files of a part carry its own attempt id, so Spark may run a partition again, or twice at once. Only the files that
are listed in returned rows count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import BatchObserver, Chunk
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.work_unit import run_part
from gobblin_dagster.spec.job import JobSpec, TaskPolicySpec
from gobblin_dagster.storage import open_storage

PART_COLUMNS = "state string, schemas map<string, binary>"
"""Spark's schema of what `run_part_in_arrow` returns."""
_PART_SCHEMA = pa.schema([("state", pa.string()), ("schemas", pa.map_(pa.string(), pa.binary()))])


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """The result of one partition of a work unit."""

    state: TaskState
    schemas: dict[str, pa.Schema]
    """Written schemas by branch."""


class FrameExtractor:
    """Yields the batches of one Spark partition.

    Shape: chunks have the schema `schema`, in whatever time zone Spark's session gives instants; `Chunk.rows` numbers
    the rows of the partition from 1.
    """

    def __init__(self, dataset_urn: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self.schema = schema
        self.bytes_read = 0
        self._name = f"a Spark partition of {dataset_urn}"
        self._batches = batches

    def chunks(self) -> Iterator[Chunk]:
        rows = 0
        for batch in self._batches:
            self.bytes_read += batch.nbytes
            numbers = np.arange(rows + 1, rows + 1 + batch.num_rows, dtype=np.int64)
            rows += batch.num_rows
            yield Chunk(batch.cast(self.schema), self._name, pa.array(numbers))

    def close(self) -> None:
        """Do nothing: the batches belong to Spark."""


def run_partition(
    run_context: RunContext, spec: JobSpec, task: TaskInput, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Part:
    """Run one partition; its errors are in its TaskState."""
    run_context.find_modules()
    storage = open_storage(run_context.output_root, durable=spec.commit.durability == "full")
    # The announced count is the count of all partitions together.
    part = dataclasses.replace(task, unit=dataclasses.replace(task.unit, rows=None))
    extractor = FrameExtractor(task.unit.dataset_urn, schema, batches)
    return Part(*run_part(run_context, observed_only(spec), part, storage, extractor))


def run_part_in_arrow(
    context_json: str, task_json: str, schema: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one partition inside a Spark task, and return its Part as one row of `PART_COLUMNS`.

    Args:
        context_json: a RunContext.
        task_json: a TaskInput.
        schema: the batches' schema, as Arrow's IPC message.
        batches: the partition.
    """
    run_context = from_json(RunContext, context_json)
    read = pa.ipc.read_schema(pa.BufferReader(schema))
    part = run_partition(run_context, run_context.spec, from_json(TaskInput, task_json), read, batches)
    schemas = {name: written.serialize().to_pybytes() for name, written in part.schemas.items()}
    yield pa.RecordBatch.from_pylist([{"state": to_json(part.state), "schemas": list(schemas.items())}], _PART_SCHEMA)


def part_of_row(state: str, schemas: dict[str, bytes]) -> Part:
    """Read a row that `run_part_in_arrow` returned."""
    read = {name: pa.ipc.read_schema(pa.BufferReader(bytes(schema))) for name, schema in schemas.items()}
    return Part(from_json(TaskState, state), read)


def is_observer(policy: TaskPolicySpec) -> bool:
    """True if a task-level policy must see the rows, which only the partition's task sees."""
    return issubclass(registry.load(ConstructKind.TASK_POLICY, policy.type), BatchObserver)


def observed_only(spec: JobSpec) -> JobSpec:
    """Return the job with only the task-level policies that a part can apply; the others see the whole unit later."""

    def kept(policies: Sequence[TaskPolicySpec]) -> tuple[TaskPolicySpec, ...]:
        return tuple(policy for policy in policies if is_observer(policy))

    branches = tuple(
        branch.model_copy(update={"task_policies": kept(spec.task_policies_of(branch))})
        for branch in spec.fork.branches
    )
    fork = spec.fork.model_copy(update={"branches": branches})
    return spec.model_copy(update={"fork": fork})
