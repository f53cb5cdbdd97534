"""Functions and classes as users write them, named by tests as `module:name`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def spread(record: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Return `n` rows for a record: none, one or a list."""
    n = record["n"]
    if n == 0:
        return None
    record["n"] = -n  # the record is the function's own
    return record if n == 1 else [dict(record) for _ in range(n)]


def divide(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": 12 // record["n"]}


def wrong_type(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": "x" if record["n"] == 2 else 1}


def far_too_deep(record: dict[str, Any]) -> dict[str, Any]:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    return {"n": value if record["n"] == 2 else 1}


def fraction(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": 1.5 if record["n"] == 2 else 1.0}


def beyond_long(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": 1 << 70 if record["n"] == 2 else 1}


def no_text(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": "\ud800" if record["n"] == 2 else "x"}


def within(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": {"inner": [2.5 if record["n"] == 2 else 2]}}


def new_field(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": {"inner": [2]} | ({"new": 1} if record["n"] == 2 else {})}


def time_of_day(record: dict[str, Any]) -> dict[str, Any]:
    return {"n": datetime(2013, 1, 1, hour=5 * (record["n"] == 2))}


def unknown_column(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"m": 1}


def no_record(record: dict[str, Any]) -> Any:
    return record["n"]


def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "n", pc.negate(batch.column(0)))


def largest(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": [pc.max(batch.column(0)).as_py()]})


def no_batch(batch: pa.RecordBatch) -> Any:
    return batch.to_pylist()


class ByParity:
    """A fork operator that takes records: even ones, and those from a bound on."""

    def __init__(self, bound: int = 10) -> None:
        self._bound = bound

    def fork_record(self, record: dict[str, Any]) -> list[bool]:
        flags = [record["n"] % 2 == 0, record["n"] >= self._bound]
        record.clear()  # the record is the operator's own
        return flags


class OneFlag:
    """A fork operator that forgets a branch."""

    def fork_record(self, record: dict[str, Any]) -> list[bool]:
        return [True]


class FirstOnly(ByParity):
    """A fork operator whose second branch does not exist."""

    def fork_schema(self, schema: pa.Schema) -> list[bool]:
        return [True, False]


class Misspelt(FirstOnly):
    """A fork operator whose branches would all exist."""

    fork_shema = FirstOnly.fork_schema


class OtherFlags:
    """A fork operator whose flags are whatever its option says."""

    def __init__(self, record: Any = (True, True), schema: Any = (True, True)) -> None:
        self._record, self._schema = record, schema

    def fork_record(self, record: dict[str, Any]) -> Any:
        return self._record

    def fork_schema(self, schema: pa.Schema) -> Any:
        return self._schema


class NoForkRecord:
    """Lacks the methods of a fork operator."""
