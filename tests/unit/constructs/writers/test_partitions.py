from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.writers.levels import ClassPartition, Partition, SqlPartition, TimePartition
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.constructs.writers.partitions import Partitioner
from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.errors import ConvertError, UsageError
from gobblin_dagster.storage.local import LocalStorage
from tests.unit.constructs.samples import CONTEXT, batch
from tests.unit.constructs.writers.staging import make, where

_LEVELS: TypeAdapter[tuple[Partition, ...]] = TypeAdapter(tuple[Partition, ...])


def _split(levels: list[Any], rows: pa.RecordBatch) -> dict[str, list[Any]]:
    rows = rows.append_column("row", pa.array(range(rows.num_rows)))
    parts = list(
        Partitioner(_LEVELS.validate_python(levels), rows.schema, keep_columns=False, context=CONTEXT).split(rows)
    )
    assert len({folder for folder, _ in parts}) == len(parts)
    return {folder: part.column("row").to_pylist() for folder, part in parts}


def test_no_levels_leave_the_batch_alone() -> None:
    rows = batch({"a": [1, 2]})
    assert list(Partitioner((), rows.schema, keep_columns=False, context=CONTEXT).split(rows)) == [("", rows)]


def test_levels_nest_in_the_order_given() -> None:
    rows = batch({"b": ["x", "y", "x"], "a": [1, 1, 2]})
    assert _split(["a", "b"], rows) == {"a=1/b=x/": [0], "a=1/b=y/": [1], "a=2/b=x/": [2]}


def test_order_inside_a_folder_is_kept() -> None:
    rows = batch({"a": [at % 3 for at in range(100)]})
    assert _split(["a"], rows) == {f"a={rest}/": list(range(rest, 100, 3)) for rest in range(3)}


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


def test_summer_after_2037_has_its_own_hours_too() -> None:
    seen = pa.array([dt.datetime(2045, 7, 1, 22, 30, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    assert _split([{"column": "seen", "timezone": "Europe/Berlin"}], batch({"seen": seen})) == {"date=2045-07-02/": [0]}


def test_hour_that_comes_twice_has_one_folder() -> None:
    seen = pa.array([1_699_160_400, 1_699_164_000, 1_699_167_600], pa.timestamp("s", "UTC"))
    level = {"column": "seen", "granularity": "hour", "timezone": "America/New_York", "name": "h"}
    assert _split([level], batch({"seen": seen})) == {"h=2023-11-05-01/": [0, 1], "h=2023-11-05-02/": [2]}


@pytest.mark.parametrize(
    ("values", "level", "problem"),
    [
        (
            ["__HIVE_DEFAULT_PARTITION__"],
            "k",
            "level 'k' has the text __HIVE_DEFAULT_PARTITION__, which is the folder of null",
        ),
        (["x" * 300], "k", "level 'k' would make a folder of 302 bytes, file systems allow 255"),
        (["é" * 50], "k", "level 'k' would make a folder of 302 bytes"),
        (pa.array([10**15], pa.timestamp("ms")), "k", "column 'k' has times before the year 1 or after 9999"),
        (
            pa.array([10**15], pa.timestamp("ms")),
            {"column": "k", "name": "d"},
            "column 'k' has times before the year 1",
        ),
        (
            pa.array([-(2**63) + 1], pa.timestamp("ns", "UTC")),
            {"column": "k", "name": "d", "timezone": "America/New_York"},
            "column 'k' has times before the year 1 or after 9999",
        ),
    ],
    ids=["null's folder", "long", "long in UTF-8", "year 33658", "day of the year 33658", "beyond 64 bits"],
)
def test_value_that_would_come_to_another_folder_is_refused(values: Any, level: Any, problem: str) -> None:
    rows = pa.table({"id": [1], "k": values})
    writer = make(ParquetWriter, where(rows.schema), partition_by=[level])
    with pytest.raises(ConvertError, match=f"writer 'parquet': .*{problem}"):
        writer.write(rows.to_batches()[0])


def test_column_of_a_granularity_stays_in_the_file() -> None:
    rows = batch({"seen": [NOON], "k": ["x"]})
    levels = _LEVELS.validate_python(["k", {"column": "seen"}])
    assert Partitioner(levels, rows.schema, keep_columns=False, context=CONTEXT).schema.names == ["seen"]


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


# Expressions and classes


class ByLength:
    """A WriterPartitioner, batch-wise: the length of a text column."""

    def __init__(self, column: str, at_most: int = 9) -> None:
        self._column, self._at_most = column, at_most

    def partition_batch(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.min_element_wise(pc.utf8_length(batch.column(self._column)), self._at_most, skip_nulls=False)


class ByFirstLetter:
    """A WriterPartitioner, record-wise."""

    def partition_record(self, record: dict[str, Any]) -> Any:
        return record["k"] and record["k"][0]


class Odd:
    """A WriterPartitioner whose values are of several types, or have one only together."""

    def partition_batch(self, batch: pa.RecordBatch) -> list[Any]:
        day, noon = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12)
        zones = [noon.replace(tzinfo=zone) for zone in (dt.UTC, dt.timezone(dt.timedelta(hours=1)))]
        values = [Decimal("1.1"), Decimal("1.25"), day, noon, *zones, True, 1, None]
        return [values[at] for at in batch.column("id").to_pylist()]


class Faulty:
    """Does what its option says."""

    def __init__(self, how: str) -> None:
        self._how = how

    def partition_batch(self, batch: pa.RecordBatch) -> Any:
        if self._how == "raises":
            raise KeyError("gone")
        return {
            "few": ["a"],
            "uuid": [UUID(int=1)] * 4,
            "float": [0.5] * batch.num_rows,
            "nested": [[1]] * batch.num_rows,
        }[self._how]


class Neither:
    """No partitioner."""


HERE = "tests.unit.constructs.writers.test_partitions"
WORDS = {"k": ["abc", "b", None, "axx"]}


def test_expression_gives_each_row_its_folder() -> None:
    level = {"name": "letter", "sql": "upper(left(k, 1)) -- first"}
    assert _split([level], batch(WORDS)) == {
        "letter=A/": [0, 3],
        "letter=B/": [1],
        "letter=__HIVE_DEFAULT_PARTITION__/": [2],
    }


def test_levels_of_every_form_nest() -> None:
    rows = batch(WORDS | {"seen": [NOON] * 4})
    levels = (
        TimePartition(column="seen", granularity="year", name="year"),
        SqlPartition(name="letter", sql="left(k, 1)"),
        ClassPartition(name="length", partitioner=f"{HERE}:ByLength", options={"column": "k"}),
    )
    parts = dict(Partitioner(levels, rows.schema, keep_columns=False, context=CONTEXT).split(rows))
    assert {folder: part.num_rows for folder, part in parts.items()} == {
        "year=2013/letter=a/length=3/": 2,
        "year=2013/letter=b/length=1/": 1,
        "year=2013/letter=__HIVE_DEFAULT_PARTITION__/length=__HIVE_DEFAULT_PARTITION__/": 1,
    }


def test_expression_sees_columns_that_become_folders() -> None:
    rows = batch({"k": ["a", "b"], "id": [1, 18]})
    assert _split(["k", {"name": "bucket", "sql": "id % 16"}], rows) == {"k=a/bucket=1/": [0], "k=b/bucket=2/": [1]}


@pytest.mark.parametrize(
    ("target", "options", "folders"),
    [
        ("ByLength", {"column": "k"}, {"part=3/": [0, 3], "part=1/": [1], "part=__HIVE_DEFAULT_PARTITION__/": [2]}),
        ("ByLength", {"column": "k", "at_most": 1}, {"part=1/": [0, 1, 3], "part=__HIVE_DEFAULT_PARTITION__/": [2]}),
        ("ByFirstLetter", {}, {"part=a/": [0, 3], "part=b/": [1], "part=__HIVE_DEFAULT_PARTITION__/": [2]}),
    ],
    ids=["batches", "options", "records"],
)
def test_class_of_the_user_gives_each_row_its_folder(
    target: str, options: dict[str, Any], folders: dict[str, list[int]]
) -> None:
    level = {"name": "part", "partitioner": f"{HERE}:{target}", "options": options}
    assert _split([level], batch(WORDS)) == folders


def test_folder_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    level = {"name": "part", "partitioner": f"{HERE}:Odd"}
    rows = batch({"id": list(range(9))})
    alone = {folder: [at] for at in range(9) for folder in _split([level], rows.slice(at, 1))}
    assert _split([level], rows) == alone
    assert len(alone) == 9


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("raises", "it raised KeyError: 'gone'"),
        ("few", "expected one value for each of 4 rows, got 1"),
        ("float", "expected plain values, got double"),
        ("nested", "expected plain values, got list"),
        ("uuid", "expected plain values, got extension"),
    ],
)
def test_class_that_fails_is_named_with_what_it_did(how: str, problem: str) -> None:
    level = {"name": "part", "partitioner": f"{HERE}:Faulty", "options": {"how": how}}
    with pytest.raises(ConvertError, match=rf"level 'part'.*{HERE}:Faulty: {problem}"):
        _split([level], batch(WORDS))


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        ({"name": "part", "partitioner": f"{HERE}:Neither"}, "has neither partition_batch nor partition_record"),
        ({"name": "part", "partitioner": f"{HERE}:ByLength"}, "ByLength cannot be made"),
        ({"name": "part", "partitioner": f"{HERE}:Nowhere"}, "cannot load"),
    ],
    ids=["methods", "options", "name"],
)
def test_class_that_cannot_be_used_is_refused_when_the_writer_is_made(level: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make(ParquetWriter, where(batch(WORDS).schema), partition_by=[level])


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("nothing + 1", "nothing"),
        ("count(*)", "expected one value for each of 4 rows, got 1"),
        ("0.5 * length(k)::double", "is double, which cannot be a folder name"),
        ("[k]", "cannot be a folder name"),
    ],
    ids=["column", "aggregate", "float", "list"],
)
def test_expression_that_does_not_fit_is_refused(sql: str, problem: str) -> None:
    writer_context = where(batch(WORDS).schema)
    with pytest.raises(ConvertError, match=problem):
        make(ParquetWriter, writer_context, partition_by=[{"name": "part", "sql": sql}]).write(batch(WORDS))


def test_statement_in_place_of_an_expression_is_refused_with_the_options() -> None:
    with pytest.raises(ValidationError, match=r"is no SQL: .*syntax error"):
        make(ParquetWriter, where(batch(WORDS).schema), partition_by=[{"name": "part", "sql": "k; drop table x"}])


def test_rows_without_columns_are_told_from_rows_whose_columns_are_all_folders() -> None:
    with pytest.raises(ConvertError, match="the rows have no columns, so there is nothing to write"):
        make(ParquetWriter, where(pa.schema([])))


def test_level_of_an_expression_may_not_be_called_like_a_column() -> None:
    with pytest.raises(ConvertError, match="partition level 'k' is also a column"):
        make(ParquetWriter, where(batch(WORDS).schema), partition_by=[{"name": "k", "sql": "1"}])


@pytest.mark.parametrize(
    ("level", "place"),
    [
        ({"sql": "1"}, "('partition_by', 0, 'sql', 'name')"),
        ({"partitioner": "no target", "name": "a"}, "('partition_by', 0, 'partitioner', 'partitioner')"),
        ({"column": "k", "granularity": "week"}, "('partition_by', 0, 'time', 'granularity')"),
    ],
    ids=["sql", "class", "time"],
)
def test_fault_of_a_level_is_told_for_its_form_alone(level: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ParquetWriter.Options.model_validate({"partition_by": [level]})
    assert [str(error["loc"]) for error in caught.value.errors()] == [place]
