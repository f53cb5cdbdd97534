"""Rows in layouts that Arrow's functions do not take, or take wrongly, become the same rows in plain columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.types.plain import PlainForm, plain_schema
from gobblin_dagster.constructs.types.schema_text import schema_text, type_texts
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import by_urn, job_spec, run

SOURCE = {"type": "files", "path": "in/{dataset}/*.parquet", "format": "parquet"}
LONG = "a text of more than twelve letters"
CASES: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.string_view(), pa.string(), ["a", None, "", LONG]),
    (pa.binary_view(), pa.binary(), [b"a", None, b"", LONG.encode()]),
    (pa.list_view(pa.int8()), pa.list_(pa.int8()), [[1], None, [2, None, 3], [], [4]]),
    (pa.large_list_view(pa.string_view()), pa.large_list(pa.string()), [["a"], None, [LONG, None], [], ["b"]]),
    (pa.list_(pa.list_view(pa.int8())), pa.list_(pa.list_(pa.int8())), [[[1], None], None, [[], [2, 3]], []]),
    (
        pa.struct([pa.field("a", pa.string_view(), nullable=False), ("b", pa.list_view(pa.int8()))]),
        pa.struct([pa.field("a", pa.string(), nullable=False), ("b", pa.list_(pa.int8()))]),
        [{"a": "x", "b": [1]}, {"a": LONG, "b": None}, {"a": "", "b": [2, 3]}],
    ),
    (
        pa.map_(pa.string_view(), pa.list_view(pa.int8())),
        pa.map_(pa.string(), pa.list_(pa.int8())),
        [[("a", [1])], None, [], [("b", None), (LONG, [2, 3])]],
    ),
    (pa.list_(pa.list_view(pa.int8()), 2), pa.list_(pa.list_(pa.int8()), 2), [[[1], None], None, [[], [2, 3]]]),
]


def _batch(values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values], schema=pa.schema([pa.field("v", values.type)], {"k": "of the source"}))


@pytest.mark.parametrize(("kind", "plain", "rows"), CASES, ids=[str(kind) for kind, *_ in CASES])
def test_views_become_plain_columns_of_the_same_values(kind: pa.DataType, plain: pa.DataType, rows: list[Any]) -> None:
    whole = pa.array(rows, kind)
    form = PlainForm()
    for first in range(len(rows) + 1):
        done = form.rows(_batch(whole.slice(first)))
        done.validate(full=True)
        assert done.schema.equals(pa.schema([pa.field("v", plain)], {"k": "of the source"}), check_metadata=True)
        assert done["v"].to_pylist() == rows[first:]


@pytest.mark.parametrize(("kind", "plain", "_"), CASES, ids=[str(kind) for kind, *_ in CASES])
def test_schema_that_was_published_as_views_is_known_as_plain(kind: pa.DataType, plain: pa.DataType, _: Any) -> None:
    odd, known = (pa.schema([("v", one), ("string_view", pa.int8())]) for one in (kind, plain))
    assert plain_schema(odd) == known
    assert type_texts(schema_text(odd)) == type_texts(schema_text(known))


def test_run_end_encoded_columns_become_plain_ones() -> None:
    runs = pc.run_end_encode(pa.array(["a", "a", None, "b"]))
    in_struct = pa.StructArray.from_arrays([runs.slice(1)], ["x"])
    assert PlainForm().rows(_batch(runs)).equals(_batch(pa.array(["a", "a", None, "b"])))
    assert PlainForm().rows(_batch(in_struct))["v"].to_pylist() == [{"x": "a"}, {"x": None}, {"x": "b"}]


def test_run_end_encoded_values_of_any_type_become_plain_ones() -> None:
    lists = pa.array([["a", LONG], None, []], pa.list_view(pa.string_view()))
    for values in (
        pa.array(["a", None, LONG], pa.string_view()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        lists,
    ):
        runs = pa.RunEndEncodedArray.from_arrays([2, 3, 6], values)
        expected = [values[at].as_py() for at in (0, 0, 1, 2, 2, 2)]
        for first in range(7):
            done = PlainForm().rows(_batch(runs.slice(first, 5)))
            done.validate(full=True)
            assert (done.schema, done["v"].to_pylist()) == (plain_schema(done.schema), expected[first : first + 5])


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.int32()], ids=str)
def test_dictionaries_become_their_values_at_any_depth(kind: pa.DataType) -> None:
    values = pa.array(["1", None, "2"]).cast(pa.string()).cast(kind)
    coded = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1, 2], pa.int8()), values)
    expected = [coded[at].as_py() for at in range(len(coded))]
    nulls = pa.array([True, False, False, True, False])
    in_struct = pa.StructArray.from_arrays([coded.slice(1), coded.slice(0, 4)], ["a", "b"], mask=nulls.slice(1))
    assert PlainForm().rows(_batch(coded))["v"].to_pylist() == expected
    for nested in (in_struct, pa.ListArray.from_arrays([0, 2, 2, 5], coded), in_struct.slice(2)):
        done = PlainForm().rows(_batch(nested))
        assert (done["v"].to_pylist(), plain_schema(done.schema)) == (nested.to_pylist(), done.schema)


def test_dictionary_without_values_becomes_nulls() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    lists = pa.FixedSizeListArray.from_arrays(
        pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([], pa.string()), safe=False),
        2,
        mask=pa.array([True]),
    )
    assert PlainForm().rows(_batch(coded))["v"].to_pylist() == [None, None]
    assert PlainForm().rows(_batch(lists))["v"].to_pylist() == [None]


def test_plain_rows_are_not_touched() -> None:
    batch = _batch(pa.array([[1], None]))
    assert PlainForm().rows(batch) is batch
    assert plain_schema(batch.schema) is batch.schema


def _job(**parts: Any) -> JobSpec:
    fork = {"branches": [{"name": "main", "writer": {"type": "parquet", "partition_by": ["town"]}}]}
    policy = {"name": "known", "type": "not_null", "columns": ["tags"]}
    return job_spec({}, source=SOURCE, fork=fork, row_policies=[policy], **parts)


def _read(root: Path) -> Sequence[dict[str, Any]]:
    files = sorted((root / "lake").rglob("town=*/*.parquet"))
    rows = [row | {"town": file.parent.name} for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: row["tags"])


@pytest.mark.slow
def test_files_of_any_layout_pass_policies_partitions_and_contracts(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    rows = pa.table({"town": ["x", "y", "x"], "tags": [["1"], None, ["2", LONG]]})
    layouts = [
        pa.string_view(),
        pa.string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int16(), pa.string()),
    ]
    job = _job(schema_contract="freeze")
    for number, town in enumerate(layouts):
        tags = pa.string_view() if pa.types.is_string_view(town) else pa.string()
        table = rows.cast(pa.schema([("town", town), ("tags", pa.list_(tags))]))
        pq.write_table(table, tmp_path / "in" / "a" / f"{number}.parquet")
        if number:  # two files in the first run, then one in each
            (dataset,) = by_urn(run(tmp_path, job)).values()
            files = 2 if number == 1 else 1
            assert (dataset.rows_read, dataset.rows_quarantined) == (3 * files, files)
    assert _read(tmp_path) == [{"tags": tags, "town": "town=x"} for tags in (["1"], ["2", LONG]) for _ in layouts]


@pytest.mark.parametrize("convert", ["flatten", "to_json"])
def test_files_with_ids_inside_of_lists_pass_converters(tmp_path: Path, convert: str) -> None:
    keys = pa.ListArray.from_arrays([0, 1, 2], pa.array([bytes(16)] * 2, pa.uuid()))
    for name, rows in (("a", 2), ("b", 0)):
        (tmp_path / "in" / name).mkdir(parents=True)
        table = pa.table({"place": pa.StructArray.from_arrays([keys.slice(0, rows)], ["keys"])})
        pq.write_table(table, tmp_path / "in" / name / "1.parquet")
    job = job_spec({}, source=SOURCE, converters=[{"type": convert}], fork={"branches": [{"name": "main"}]})
    assert [by_urn(run(tmp_path, job))[name].rows_read for name in "ab"] == [2, 0]
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    ids, text = [UUID(int=0)], f'{{"place":{{"keys":["{UUID(int=0)}"]}}}}'
    expected = {"flatten": {"place_keys": ids}, "to_json": {"json": text}}[convert]
    assert pq.ParquetFile(file).read().to_pylist() == [expected] * 2


def test_sql_table_takes_a_column_of_categories(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    table = pa.table({"town": pa.array(["x", "y", None, "x"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "in" / "a" / "1.parquet")
    publisher = {"type": "sql_table", "url": f"sqlite:///{tmp_path}/target.db", "table": "towns"}
    job = job_spec({}, source=SOURCE, fork={"branches": [{"name": "main"}]}, publisher=publisher)
    (dataset,) = by_urn(run(tmp_path, job)).values()
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        assert target.execute("select town from towns").fetchall() == [("x",), ("y",), (None,), ("x",)]
    assert dataset.rows_read == 4
