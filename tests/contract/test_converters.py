"""What every converter promises, over all that we ship."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.testing.conformance import ConverterConformance

USER_CODE = "tests.unit.constructs.user_code"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def datum(number: int) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), {"id": number})
    return buffer.getvalue()


@dataclass(frozen=True)
class Case:
    spec: Mapping[str, Any]
    rows: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    unfit: Sequence[Mapping[str, Any]] = ()
    """Columns of schemas that are refused."""
    unfit_rows: Sequence[Mapping[str, Any]] = ()
    is_repeatable: bool = True

    @property
    def name(self) -> str:
        return str(self.spec["type"])


PEOPLE = {"id": [1, 2, 3], "name": ["anna", None, "bert"]}
TEXT, NUMBERS, ID = {"name": pa.string()}, {"name": pa.int64()}, {"id": pa.int64()}
CASES = [
    Case({"type": "add", "columns": {"run": {"source": "run_id"}, "seven": 7}}, PEOPLE,
         PEOPLE | {"run": ["run-1"] * 3, "seven": [7] * 3}, [{"seven": pa.int64()}]),
    Case({"type": "avro_bytes", "column": "avro", "avro_schema": AVRO}, {"avro": [datum(1), datum(2)]}, {"id": [1, 2]},
         [TEXT, {"avro": pa.string()}], [{"avro": [b"\x80"]}]),
    Case({"type": "bytes_to_text", "columns": ["b"]},
         {"b": [b"a", None]}, {"b": ["a", None]}, [TEXT, {"b": pa.int64()}],
         [{"b": [b"\xff"]}]),
    Case({"type": "child_table", "list": "tags", "keys": ["id"]},
         {"id": [1, 2], "tags": [["a", "b"], []]}, {"id": [1, 1], "tags_number": [0, 1], "value": ["a", "b"]},
         [TEXT, {"tags": pa.int64()}]),
    Case({"type": "columns", "columns": {"id": "string"}}, PEOPLE, PEOPLE | {"id": ["1", "2", "3"]}, [TEXT]),
    Case({"type": "columns", "columns": {"name": "int8"}}, {"name": ["1", None]}, {"name": [1, None]}, [ID],
         [{"name": ["x"]}, {"name": ["300"]}]),
    Case({"type": "csv_text", "column": "name", "columns": ["a", "b"]}, {"name": ["1,x", "2,"]},
         {"a": ["1", "2"], "b": ["x", None]}, [ID, NUMBERS], [{"name": ["1"]}]),
    Case({"type": "dedup", "by": ["id"]}, {"id": [1, 1, 2]}, {"id": [1, 2]}, [TEXT]),
    Case({"type": "drop", "columns": ["id"]}, PEOPLE, {"name": PEOPLE["name"]}, [TEXT]),
    Case({"type": "encrypt", "columns": ["name"], "key_env": "CONTRACT_AES_KEY"}, PEOPLE, None, [ID, NUMBERS],
         is_repeatable=False),
    Case({"type": "explode", "column": "tags"},
         {"id": [1, 2], "tags": [["a", "b"], []]}, {"id": [1, 1], "tags": ["a", "b"]},
         [TEXT, {"tags": pa.int64()}]),
    Case({"type": "filter", "column": "name", "matches": "a.*"}, PEOPLE, {"id": [1], "name": ["anna"]}, [ID]),
    Case({"type": "filter", "column": "id", "equals": [1, 3], "keep": False},
         PEOPLE, {"id": [2], "name": [None]}, [TEXT]),
    Case({"type": "flatten"}, {"at": [{"x": 1, "y": 2}, None]}, {"at_x": [1, None], "at_y": [2, None]}),
    Case({"type": "function", "function": f"{USER_CODE}:divide"}, {"n": [1, 2]}, {"n": [12, 6]}, [], [{"n": [0]}]),
    Case({"type": "function", "function": f"{USER_CODE}:negated", "by": "batch"}, {"n": [1, 2]}, {"n": [-1, -2]}),
    Case({"type": "hash", "columns": ["name"], "key_env": "CONTRACT_KEY"}, PEOPLE, None, [ID]),
    Case({"type": "json_text", "column": "name", "columns": {"a": "int64"}}, {"name": ['{"a": 1}', '{"a": 2}']},
         {"a": [1, 2]}, [ID, NUMBERS], [{"name": ["{"]}]),
    Case({"type": "mask", "columns": ["name"], "keep_last": 1}, PEOPLE, PEOPLE | {"name": ["***a", None, "***t"]},
         [ID, NUMBERS]),
    Case({"type": "parse_timestamps", "columns": {"name": "%d.%m.%Y"}}, {"name": ["31.01.2013", None]}, None, [ID],
         [{"name": ["31.02.2013"]}]),
    Case({"type": "rename", "columns": {"id": "number"}},
         PEOPLE, {"number": PEOPLE["id"], "name": PEOPLE["name"]}, [TEXT]),
    Case({"type": "sample", "ratio": 0.5}, {"id": list(range(20))}, None),
    Case({"type": "sample", "ratio": 0.5, "by": ["id"]}, {"id": list(range(20))}, None, [TEXT]),
    Case({"type": "schema", "columns": {"id": "int32"}, "others": "drop"}, PEOPLE, {"id": PEOPLE["id"]}, [TEXT]),
    Case({"type": "select", "columns": ["at.x"]}, {"at": [{"x": 1}, {"x": 2}]}, {"x": [1, 2]}, [TEXT]),
    Case({"type": "split", "column": "name", "delimiter": "n"}, PEOPLE, None, [ID, NUMBERS]),
    Case({"type": "sql", "select": "id * 2 AS twice", "where": "id > 1"}, PEOPLE, {"twice": [4, 6]}, [TEXT]),
    Case({"type": "text_to_bytes", "columns": ["name"]},
         PEOPLE, PEOPLE | {"name": [b"anna", None, b"bert"]}, [ID, NUMBERS]),
    Case({"type": "to_json", "columns": ["id"]}, {"id": [1, 2]}, None, [TEXT]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTRACT_KEY", "a secret of more than sixteen letters")
    monkeypatch.setenv("CONTRACT_AES_KEY", base64.b64encode(b"k" * 32).decode())


class TestConverters(ConverterConformance):
    @pytest.fixture(autouse=True, params=CASES, ids=[f"{case.name}-{number}" for number, case in enumerate(CASES)])
    def case(self, request: pytest.FixtureRequest) -> None:
        case: Case = request.param
        self.spec = case.spec
        self.rows = pa.record_batch(dict(case.rows))
        self.expected = None if case.expected is None else pa.record_batch(dict(case.expected))
        self.unfit_schemas = [pa.schema(dict(columns)) for columns in case.unfit]
        self.unfit_rows = [
            pa.record_batch(dict(columns), schema=_schema_like(self.rows, columns)) for columns in case.unfit_rows
        ]
        self.is_repeatable = case.is_repeatable


class TestDecrypt(ConverterConformance):
    spec = {"type": "decrypt", "columns": ["name"], "key_env": "CONTRACT_AES_KEY"}
    expected = pa.record_batch({"name": ["anna", None]})
    unfit_schemas = [pa.schema(ID), pa.schema(NUMBERS)]
    unfit_rows = [pa.record_batch({"name": ["no cipher"]})]

    @pytest.fixture(autouse=True)
    def sealed(self, keys: None, context: ConstructContext) -> None:
        spec = ConstructSpec.model_validate({**self.spec, "type": "encrypt"})
        encrypt: Converter = registry.create(ConstructKind.CONVERTER, spec, context)
        given = Chunk(self.expected, "in", pa.array([1, 2]))
        encrypt.convert_schema(self.expected.schema)
        (chunk,) = encrypt.convert(given)
        self.rows = chunk.batch


def _schema_like(rows: pa.RecordBatch, columns: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([rows.schema.field(name) for name in columns])


def test_every_converter_is_tested_here() -> None:
    assert {case.name for case in CASES} | {"decrypt"} == set(registry.types(ConstructKind.CONVERTER))
