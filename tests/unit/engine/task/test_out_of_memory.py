"""A work unit whose memory ends: the error names step, limit, who sets it and what to do, and no row is put aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project

HERE = __name__
TOO_MUCH = 1 << 60


def python_record(record: dict[str, Any]) -> dict[str, Any]:
    if record["id"] == 2:
        bytearray(TOO_MUCH)
    return record


def arrow_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    pa.allocate_buffer(TOO_MUCH)
    return batch


class Partitioner:
    """A partitioner of the writer that takes all memory."""

    def partition_batch(self, batch: pa.RecordBatch) -> pa.Array:
        pa.allocate_buffer(TOO_MUCH)
        return batch.column(0)


class Operator:
    """A fork operator that takes all memory."""

    def fork_record(self, record: dict[str, Any]) -> list[bool]:
        bytearray(TOO_MUCH)
        return [True]


def rows(*_: object) -> Iterator[dict[str, int]]:
    yield {"id": 1}
    bytearray(TOO_MUCH)


def function(name: str, by: str) -> dict[str, Any]:
    return {
        "type": "function",
        "name": "mine",
        "function": f"{HERE}:{name}",
        "by": by,
        "columns": {"id": "int64"},
        "on_error": "quarantine",
    }


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "function over records": ({"converters": [function("python_record", "record")]}, "converter 'mine'"),
    "function over batches": ({"converters": [function("arrow_batch", "batch")]}, "converter 'mine'"),
    "converter of a branch": (
        {"fork": {"branches": [{"name": "all", "converters": [function("arrow_batch", "batch")]}]}},
        "branch 'all', converter 'mine'",
    ),
    "writer": (
        {"writer": {"type": "jsonl", "partition_by": [{"partitioner": f"{HERE}:Partitioner", "name": "part"}]}},
        "branch 'all', writer 'jsonl'",
    ),
    "fork": (
        {"fork": {"operator": {"type": "records", "operator": f"{HERE}:Operator"}, "branches": [{"name": "all"}]}},
        "fork operator 'records'",
    ),
    "source": ({"source": {"type": "python", "read": f"{HERE}:rows", "columns": {"id": "int64"}}}, "source 'python'"),
}


@pytest.mark.parametrize(("parts", "step"), CASES.values(), ids=CASES)
def test_step_without_memory_is_named_with_its_limit(tmp_path: Path, parts: dict[str, Any], step: str) -> None:
    job = job_spec({"a": {"rows": 3}}, **({"fork": {"branches": [{"name": "all"}]}} | parts))
    result = run_job(project(tmp_path, job), job, runner=InlineRunner())
    [dataset] = result.datasets
    assert {failure.code for failure in dataset.failures} == {"out-of-memory"}
    [message] = {failure.message for failure in dataset.failures}
    assert f"{step}: there was not enough memory" in message
    assert "the machine has" in message
    assert "`execution.block_bytes`" in message
