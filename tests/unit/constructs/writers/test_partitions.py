from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.constructs.writers.partitions import Partitioner, TimePartition
from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.storage.local import LocalStorage
from tests.unit.constructs.samples import CONTEXT, batch
from tests.unit.constructs.writers.staging import make, where

_LEVELS: TypeAdapter[tuple[str | TimePartition, ...]] = TypeAdapter(tuple[str | TimePartition, ...])


def _split(levels: list[Any], rows: pa.RecordBatch) -> dict[str, list[Any]]:
    rows = rows.append_column("row", pa.array(range(rows.num_rows)))
    parts = list(Partitioner(_LEVELS.validate_python(levels), rows.schema, keep_columns=False).split(rows))
    assert len({folder for folder, _ in parts}) == len(parts)
    return {folder: part.column("row").to_pylist() for folder, part in parts}


def test_no_levels_leave_the_batch_alone() -> None:
    rows = batch({"a": [1, 2]})
    assert list(Partitioner((), rows.schema, keep_columns=False).split(rows)) == [("", rows)]


def test_levels_nest_in_the_order_given() -> None:
    rows = batch({"b": ["x", "y", "x"], "a": [1, 1, 2]})
    assert _split(["a", "b"], rows) == {"a=1/b=x/": [0], "a=1/b=y/": [1], "a=2/b=x/": [2]}


def test_order_inside_a_folder_is_kept() -> None:
    rows = batch({"a": [at % 3 for at in range(100)]})
    assert _split(["a"], rows) == {f"a={rest}/": list(range(rest, 100, 3)) for rest in range(3)}


@settings(deadline=None)  # the first call of a process is slower than all later ones together
@given(st.lists(st.tuples(st.sampled_from(["x", "y/", "", None]), st.sampled_from([1, 2, None])), max_size=40))
def test_every_row_lands_once_in_the_folder_of_its_values(keys: list[tuple[str | None, int | None]]) -> None:
    rows = batch({"k": pa.array([k for k, _ in keys], pa.string()), "n": pa.array([n for _, n in keys], pa.int8())})
    expected: dict[str, list[int]] = {}
    for position, (k, n) in enumerate(keys):
        text = {"y/": "y%2F", "": None}.get(k or "", k) or "__HIVE_DEFAULT_PARTITION__"
        number = "__HIVE_DEFAULT_PARTITION__" if n is None else n
        expected.setdefault(f"k={text}/n={number}/", []).append(position)
    assert _split(["k", "n"], rows) == (expected or {"": []})


@pytest.mark.parametrize(
    ("values", "folders"),
    [
        (
            ["a/b", "..", " ", "é", "a=b", "100%", "a.b_c-d~e"],
            ["a%2Fb", "..", "%20", "%C3%A9", "a%3Db", "100%25", "a.b_c-d~e"],
        ),
        ([None, "", "x"], ["__HIVE_DEFAULT_PARTITION__", "x"]),
        ([True, False, None], ["true", "false", "__HIVE_DEFAULT_PARTITION__"]),
        ([dt.date(2013, 1, 2)], ["2013-01-02"]),
        (pa.array(["x", None, "y"]).dictionary_encode(), ["x", "__HIVE_DEFAULT_PARTITION__", "y"]),
        (pa.array([1, None], pa.decimal128(4, 2)), ["1.00", "__HIVE_DEFAULT_PARTITION__"]),
    ],
    ids=str,
)
def test_values_become_folder_names(values: Any, folders: list[str]) -> None:
    assert set(_split(["k"], batch({"k": values}))) == {f"k={folder}/" for folder in folders}


def test_null_and_empty_text_share_one_folder_in_order() -> None:
    assert _split(["k"], batch({"k": [None, "x", "", None]})) == {
        "k=__HIVE_DEFAULT_PARTITION__/": [0, 2, 3],
        "k=x/": [1],
    }


def test_column_name_is_encoded_too() -> None:
    assert set(_split(["a b"], batch({"a b": [1]}))) == {"a%20b=1/"}


NOON = dt.datetime(2013, 1, 1, 2, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("level", "folder"),
    [
        ({}, "date=2013-01-01/"),
        ({"timezone": "America/New_York"}, "date=2012-12-31/"),
        ({"granularity": "hour", "name": "hour"}, "hour=2013-01-01-02/"),
        ({"granularity": "hour", "name": "hour", "timezone": "Asia/Kolkata"}, "hour=2013-01-01-08/"),
        ({"granularity": "month", "name": "month"}, "month=2013-01/"),
        ({"granularity": "year", "name": "year"}, "year=2013/"),
    ],
    ids=str,
)
def test_timestamps_become_folders_in_the_zone_asked_for(level: dict[str, str], folder: str) -> None:
    rows = batch({"seen": pa.array([NOON, None], pa.timestamp("us", "Europe/Berlin"))})
    name = folder.partition("=")[0]
    assert _split([{"column": "seen", **level}], rows) == {folder: [0], f"{name}=__HIVE_DEFAULT_PARTITION__/": [1]}


@pytest.mark.parametrize("column", [pa.array([dt.datetime(2013, 1, 1, 23)]), pa.array([dt.date(2013, 1, 1)])], ids=str)
def test_times_without_a_zone_are_taken_as_they_stand(column: pa.Array) -> None:
    level = {"column": "seen", "timezone": "America/New_York"}
    assert set(_split([level], batch({"seen": column}))) == {"date=2013-01-01/"}


def test_column_of_a_granularity_stays_in_the_file() -> None:
    rows = batch({"seen": [NOON], "k": ["x"]})
    levels = _LEVELS.validate_python(["k", {"column": "seen"}])
    assert Partitioner(levels, rows.schema, keep_columns=False).schema.names == ["seen"]


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        (["z"], "partition_by expects column 'z'; found: a, t, f, l"),
        ([{"column": "z"}], "partition_by expects column 'z'"),
        (["a", "a"], "partition_by names a level twice: a, a"),
        ([{"column": "t", "name": "a"}], "partition level 'a' is also a column"),
        ([{"column": "a"}], "partition column 'a' is int64; a granularity needs a date or timestamp"),
        (["f"], "partition column 'f' is double"),
        (["l"], "partition column 'l' is list"),
    ],
    ids=str,
)
def test_levels_that_do_not_fit_are_refused(levels: list[Any], problem: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("t", pa.timestamp("us")), ("f", pa.float64()), ("l", pa.list_(pa.int8()))])
    with pytest.raises(ConvertError, match=f"Dataset 'AA/EWR', writer 'parquet': {problem}"):
        make(ParquetWriter, where(schema), partition_by=levels)


def test_a_file_without_columns_is_refused() -> None:
    with pytest.raises(ConvertError, match="nothing would be left"):
        make(ParquetWriter, where(pa.schema([("a", pa.int64())])), partition_by=["a"])


def test_hive_readers_get_the_values_back(tmp_path: Path) -> None:
    keys = ["a/b", "..", " ", "é", "a=b", "100%", None]
    rows = batch({"k": keys, "n": list(range(len(keys)))})
    storage = LocalStorage(durable=False)
    context = WriterContext(storage, str(tmp_path / "staging"), "t", "c", "main", "AA", rows.schema)
    writer = ParquetWriter(ParquetWriter.Options(partition_by=("k",)), CONTEXT, writer_context=context)
    writer.write(rows)
    for file in writer.finish():
        target = tmp_path / file.target
        storage.make_dirs(str(target.parent))
        storage.move(file.path, str(target))
    partitioning = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    table = ds.dataset(tmp_path / "t", partitioning=partitioning).to_table().sort_by("n")
    assert table["k"].to_pylist() == keys
