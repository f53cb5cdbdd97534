"""What every writer promises, over all that we ship."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.testing.conformance import FileWriterConformance, WriterConformance

ROWS = pa.record_batch({"id": [1, 2, 3], "name": ["anna", None, "bert"]})
Rows = list[dict[str, Any]]


def from_csv(content: bytes) -> Rows:
    lines = csv.DictReader(io.StringIO(content.decode(), newline=""))
    return [{"id": int(line["id"]), "name": line["name"] or None} for line in lines]


def from_avro(content: bytes) -> Rows:
    return [dict(record) for record in fastavro.reader(io.BytesIO(content)) if isinstance(record, dict)]


def from_parquet(content: bytes) -> Rows:
    rows: Rows = pq.read_table(io.BytesIO(content)).to_pylist()
    return rows


def from_orc(content: bytes) -> Rows:
    rows: Rows = pa.orc.read_table(io.BytesIO(content)).to_pylist()
    return rows


CASES: dict[str, tuple[Mapping[str, Any], Callable[[bytes], Rows]]] = {
    "avro": ({}, from_avro),
    "csv": ({}, from_csv),
    "jsonl": ({}, lambda content: [json.loads(line) for line in content.splitlines()]),
    "orc": ({}, from_orc),
    "parquet": ({}, from_parquet),
    "parquet in folders": ({"partition_by": ["id"], "keep_partition_columns": True, "max_open_files": 1}, from_parquet),
}
"""Options, and a reader of the files, by type."""


class TestWriters(FileWriterConformance):
    rows = ROWS

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        options, self.reads = CASES[request.param]
        self.spec = {"type": request.param.partition(" ")[0], **options}

    def read(self, content: bytes) -> Rows:
        return self.reads(content)


class TestTextWriter(FileWriterConformance):
    spec = {"type": "text"}
    rows = pa.record_batch({"line": ["a", "b"]})

    def read(self, content: bytes) -> Rows:
        return [{"line": line} for line in content.decode().splitlines()]


class TestConsoleWriter(WriterConformance):
    spec = {"type": "console"}
    rows = ROWS


def test_every_writer_is_tested_here() -> None:
    names = {name.partition(" ")[0] for name in CASES}
    assert names | {"text", "console"} == set(registry.types(ConstructKind.WRITER))
