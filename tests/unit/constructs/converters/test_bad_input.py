"""Input that a converter cannot convert: the error has dataset, branch, converter, column, expected and got."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.spec.job import ConverterSpec
from tests.unit.constructs.samples import CONTEXT, chunk

BRANCH = dataclasses.replace(CONTEXT, branch="eu")
AVRO = {"type": "record", "name": "BadInput", "fields": [{"name": "x", "type": "long"}]}
CODE = "tests.unit.constructs.user_code"
CASES: dict[str, tuple[dict[str, Any], dict[str, list[Any]], str]] = {
    "add": ({"columns": {"a": 1}}, {"a": [1]}, "more than one column would be named 'a'"),
    "avro_bytes": ({"column": "a", "avro_schema": AVRO}, {"a": [b"", b"\x80"]}, "row 6: column 'a' is no Avro datum"),
    "bytes_to_text": (
        {"columns": ["a"]},
        {"a": [b"", b"\xff"]},
        "row 7: column 'a': expected bytes in utf-8, got b'\\xff'",
    ),
    "child_table": ({"list": "a", "keys": ["a"]}, {"a": [1]}, "'a': expected a list, got int64"),
    "columns": ({"columns": {"a": "int8"}}, {"a": ["1", "300"]}, "row 7, column 'a': expected int8, got '300'"),
    "csv_text": (
        {"column": "a", "columns": ["x", "y"]},
        {"a": ["1,2", "3"]},
        "row 7: column 'a': expected 2 values, got 1 in '3'",
    ),
    "decrypt": (
        {"columns": ["a"], "key_env": "AES"},
        {"a": [None, "x"]},
        "row 7: column 'a': expected a value encrypted with this key",
    ),
    "dedup": ({"by": ["a"]}, {"a": [[1]]}, "column 'a': expected a plain type as key, got list"),
    "drop": ({"columns": ["b"]}, {"a": [1]}, "expected column 'b'; found: a"),
    "encrypt": ({"columns": ["a"], "key_env": "AES"}, {"a": [1]}, "column 'a': expected text or binary, got int64"),
    "explode": ({"column": "a"}, {"a": [1]}, "column 'a': expected a list, got int64"),
    "filter": (
        {"column": "a", "equals": "x"},
        {"a": [1]},
        "column 'a': expected a value of type int64 in `equals`, got 'x'",
    ),
    "flatten": ({"columns": ["a"]}, {"a": [1]}, "column 'a': expected a struct, got int64"),
    "function": ({"function": f"{CODE}:wrong_type"}, {"n": [1, 2]}, "column 'n': expected int64, got 'x'"),
    "hash": ({"columns": ["a"], "key_env": "AES"}, {"a": [[1]]}, "column 'a': expected a plain value, got list"),
    "json_text": (
        {"column": "a", "columns": {"x": "int8"}},
        {"a": ["{}", "7"]},
        "row 7: column 'a': expected a JSON object with x: int8; got '7'",
    ),
    "mask": ({"columns": ["a"]}, {"a": [1]}, "column 'a': expected text, got int64"),
    "parse_timestamps": (
        {"columns": {"a": "iso"}},
        {"a": ["", "soon"]},
        "row 7: column 'a': expected a time as iso, got 'soon'",
    ),
    "rename": ({"columns": {"a": "b"}}, {"a": [1], "b": [2]}, "more than one column would be named 'b'"),
    "sample": ({"ratio": 1, "by": ["b"]}, {"a": [1]}, "expected column 'b'; found: a"),
    "schema": ({"columns": {"a": "int8"}}, {"a": [1, 300]}, "row 7: column 'a': expected int8, got 300"),
    "select": ({"columns": ["a.b"]}, {"a": [1]}, "expected column 'a.b'; found: a"),
    "split": ({"column": "a", "delimiter": ";"}, {"a": [1]}, "column 'a': expected text, got int64"),
    "sql": ({"select": "a::INT AS a"}, {"a": ["1", "x"]}, "row 7: 'a::INT AS a'"),
    "text_to_bytes": (
        {"columns": ["a"], "encoding": "hex"},
        {"a": ["", "x"]},
        "row 7: column 'a': expected text in hex, got 'x'",
    ),
    "to_json": ({"columns": ["b"]}, {"a": [1]}, "expected column 'b'; found: a"),
}


def _convert(name: str, options: dict[str, Any], given: Chunk) -> None:
    converter = registry.create(ConstructKind.CONVERTER, ConverterSpec(type=name, **options), BRANCH)
    converter.convert_schema(given.batch.schema)
    list(converter.convert(given))


def test_every_converter_has_a_case() -> None:
    built_in = {
        name
        for name, target in registry.types(ConstructKind.CONVERTER).items()
        if target.startswith("gobblin_dagster.")
    }
    assert built_in == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_error_names_dataset_branch_converter_and_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AES", base64.b64encode(b"k" * 32).decode())
    options, columns, problem = CASES[name]
    given = chunk(columns, first_row=6)
    with pytest.raises(ConvertError) as caught:
        _convert(name, options, given)
    message = str(caught.value)
    assert message.startswith("Dataset 'AA/EWR', branch 'eu'")
    assert f"converter '{name}" in message
    assert problem in message
    assert ("file in/flights.csv" in message) is ("row " in problem or name == "function")
