"""Files of one JSON document each: types, columns and errors are those of JSON lines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.formats.reading import file_format, put, read

ROWS = [{"id": 1, "at": "2024-01-01"}, {"id": 2, "to": {"city": "Bern"}}, {"id": 3, "to": None}]


def read_documents(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    return read(root, *names, block_bytes=block_bytes, type="json", **options)


def test_documents_are_read_with_declared_types_in_blocks(tmp_path: Path) -> None:
    put(tmp_path, one_json=json.dumps({"data": {"items": ROWS}}, indent=1).encode())
    (tmp_path / "two.json.gz").write_bytes(gzip.compress(json.dumps({"data": {"items": ROWS[:1]}}).encode()))
    columns = {"id": "int32", "at": "date", "to": {"city": "string"}}
    table = read_documents(tmp_path, "one.json", "two.json.gz", block_bytes=64, columns=columns, records="data.items")
    assert table.schema.types[:2] == [pa.int32(), pa.date32()]
    assert table.column("to").to_pylist() == [None, {"city": "Bern"}, None, None]
    assert table.column("_row").to_pylist() == [1, 2, 3, 1]


def test_types_are_inferred_from_a_sample_and_rows_are_counted(tmp_path: Path) -> None:
    put(tmp_path, one_json=json.dumps(ROWS).encode())
    made = file_format({"type": "json"}, ConstructContext(job="j", base_dir=str(tmp_path)))
    file = InputFile(str(tmp_path / "one.json"))
    sample = made.sample([])  # type: ignore[attr-defined]  # a trait of formats that infer
    sample.look(file, 1 << 20)
    assert sample.types() == {"id": "int64", "at": "string", "to": '{"city": "string"}'}
    assert made.count_rows(file) == 3
    typed = made.with_types(sample.types())  # type: ignore[attr-defined]  # as above
    reader = typed.open(file, None)
    assert sum(batch.num_rows for batch in reader.batches()) == 3
    reader.close()


def test_value_that_does_not_fit_is_told_with_file_record_and_field(tmp_path: Path) -> None:
    put(tmp_path, one_json=b'[{"id": 1},\n {"id": 2},\n {"id":\n "x"}]')
    with pytest.raises(ExtractError, match=r"one\.json, row 3: .*id"):
        read_documents(tmp_path, "one.json", columns={"id": "int64"})
    put(tmp_path, two_json=b'[{"id": 1}, {"id": 2}, {"id')
    with pytest.raises(ExtractError, match=r"two\.json, row 3: the document ends in the middle of a value"):
        read_documents(tmp_path, "two.json", columns={"id": "int64"})


def test_document_that_is_one_record_is_one_row(tmp_path: Path) -> None:
    put(tmp_path, one_json=b'{\n "id": 1,\n "name": "a"\n}\n')
    assert read_documents(tmp_path, "one.json", records=".").select(["id", "name"]).to_pylist() == [
        {"id": 1, "name": "a"}
    ]
