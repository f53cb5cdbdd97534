"""What every format of the source `files` promises, over all that we ship."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.testing.conformance import FileFormatConformance

ROWS = pa.table({"id": [1, 2, 3], "name": ["anna", None, "bert"]})
AVRO = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
COLUMNS = {"id": "int64", "name": "string"}


def parquet() -> bytes:
    pq.write_table(ROWS, buffer := io.BytesIO())
    return buffer.getvalue()


def orc() -> bytes:
    pa.orc.write_table(ROWS, buffer := io.BytesIO())
    return buffer.getvalue()


def avro() -> bytes:
    fastavro.writer(buffer := io.BytesIO(), AVRO, ROWS.to_pylist())
    return buffer.getvalue()


JSONL = b'{"id": 1, "name": "anna"}\n{"id": 2, "name": null}\n{"id": 3, "name": "bert"}\n'
CSV = b"id,name\n1,anna\n2,\n3,bert\n"
CASES: dict[str, tuple[Mapping[str, Any], str, bytes, Sequence[bytes]]] = {
    "avro": ({}, "people.avro", avro(), [b"", avro()[:-5], parquet()]),
    "csv": (
        {"columns": COLUMNS, "null_values": [""]},
        "people.csv",
        CSV,
        [b"id,name\nx,anna\n", b"id\n1\n", parquet()],
    ),
    "csv.gz": (
        {"columns": COLUMNS, "null_values": [""]},
        "people.csv.gz",
        gzip.compress(CSV),
        [b"", CSV, gzip.compress(CSV)[:-4]],
    ),
    "json": (
        {"columns": COLUMNS, "records": "data.people"},
        "people.json",
        b'{"n": 3, "data": {"people": [' + JSONL.strip().replace(b"\n", b",\n") + b"]}}",
        [b'{"data": {"people": [{"id": "x"}]}}', b'{"data": {"people": [{"id": 1}', b"[]", parquet()],
    ),
    "jsonl": ({"columns": COLUMNS}, "people.jsonl", JSONL, [b'{"id": "x"}\n', b"{\n", parquet()]),
    "orc": ({}, "people.orc", orc(), [b"", orc()[:-5], parquet()]),
    "parquet": ({}, "people.parquet", parquet(), [b"", parquet()[:-5], orc()]),
}
"""Options, name, content and damaged contents, by type."""


class TestFormats(FileFormatConformance):
    rows = ROWS

    @pytest.fixture(autouse=True, params=CASES)
    def case(self, request: pytest.FixtureRequest) -> None:
        options, self.file_name, self.content, self.broken = CASES[request.param]
        self.spec = {"type": request.param.partition(".")[0], **options}
        self.requires_columns = request.param not in ("json", "jsonl")


class TestTextFormat(FileFormatConformance):
    spec = {"type": "text"}
    file_name = "people.txt"
    content = "anna\nbärt\n".encode()
    rows = pa.table({"line": ["anna", "bärt"]})
    broken = [b"b\xe4rt\n"]
    requires_columns = False


def test_every_format_is_tested_here() -> None:
    assert {name.partition(".")[0] for name in CASES} | {"text"} == set(registry.types(ConstructKind.FORMAT))
