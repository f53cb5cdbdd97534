"""Calls of the public face that a type checker must refuse; each line names the code of its error. Never run.

mypy refuses an ignore that nothing needs, so a call that became right is told by `make types` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from gobblin_dagster import (
    Chunk,
    CommitStep,
    Converter,
    LongWatermark,
    Storage,
    WatermarkInterval,
    WorkUnit,
    open_project,
    open_store,
    read_published,
)
from gobblin_dagster.testing.conformance import ConverterConformance


def use_the_project() -> None:
    project = open_project(".")
    project.run(job=7)  # type: ignore[arg-type]
    project.run("flights", "AA/JFK", "AA/EWR")  # type: ignore[call-arg]
    project.plan("flights", dataset="AA/JFK")  # type: ignore[call-arg]
    project.rollback("AA/JFK")  # type: ignore[call-arg]
    project.rollback("AA/JFK", "2")  # type: ignore[arg-type]
    project.load_published(dataset=None)  # type: ignore[arg-type]
    project.published("AA/JFK")  # type: ignore[attr-defined]


def read_what_is_published() -> None:
    read_published("lake", "flights")  # type: ignore[call-arg]
    read_published("lake", "flights", "AA/JFK", "2")  # type: ignore[arg-type]
    open_store("sqlite:///state.db")  # type: ignore[call-arg]


def make_values() -> None:
    LongWatermark("7")  # type: ignore[arg-type]
    WatermarkInterval(LongWatermark(0), 7)  # type: ignore[arg-type]
    WorkUnit("wu-1", "AA/JFK", LongWatermark(0))  # type: ignore[call-arg]
    unit = WorkUnit("wu-1", "AA/JFK", LongWatermark(0), LongWatermark(7))
    unit.rows = 8  # type: ignore[misc]


class ListConverter:
    """Returns a list of batches, where chunks are to be yielded."""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert(self, chunk: Chunk) -> list[str]:
        return [chunk.file]


class UnversionedStep:
    """Lacks `type_name` and `version`."""

    def verify(self, storage: Storage) -> bool:
        return True

    def execute(self, storage: Storage) -> None:
        """Do nothing."""

    def to_json(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return ""


def implement_protocols() -> None:
    converter: Converter = ListConverter()  # type: ignore[assignment]
    step: CommitStep = UnversionedStep()  # type: ignore[assignment]
    storage: Storage = {}  # type: ignore[assignment]
    assert [converter, step, storage]


class TestMine(ConverterConformance):
    spec = "my_parts:UpperConverter"  # type: ignore[assignment]
    is_repeatable = "yes"  # type: ignore[assignment]


def use_the_right_calls() -> Iterator[object]:
    """Calls that are right stay so: an ignore here would be refused."""
    yield open_project(".").plan("flights")
    yield read_published("lake", "flights", "AA/JFK", 2)
    yield WorkUnit("wu-1", "AA/JFK", LongWatermark(0), LongWatermark(7)).interval
