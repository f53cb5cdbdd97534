from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.formats.reading import extractor, file_format, read


def write(path: Path, **columns: Any) -> None:
    parquet.write_table(pa.table(columns), path)


def read_parquet(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    return read(root, *names, block_bytes=block_bytes, type="parquet", **options)


def test_rows_are_numbered_and_read_in_batches_of_about_a_block(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=list(range(1, 100_001)), text=["x" * 20 + str(n) for n in range(100_000)])
    table = read_parquet(tmp_path, "day.parquet")
    assert table.column("_row").to_pylist() == table.column("id").to_pylist()
    reader = extractor(tmp_path, "day.parquet", type="parquet", block_bytes=1 << 16)
    assert max(chunk.batch.num_rows for chunk in reader.chunks()) < 5_000
    assert reader.bytes_read == (tmp_path / "day.parquet").stat().st_size


def test_columns_are_found_by_name_in_each_file(tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", a=[1], b=["x"])
    write(tmp_path / "two.parquet", b=["y"], a=[2])
    assert read_parquet(tmp_path, "one.parquet", "two.parquet").select(["a", "b"]).to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_include_reads_fewer_columns_in_the_given_order(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", a=[1], b=["x"], c=[{"d": 2}])
    assert read_parquet(tmp_path, "day.parquet", include=["c", "a"]).select([0, 1]).to_pylist() == [
        {"c": {"d": 2}, "a": 1}
    ]
    with pytest.raises(ExtractError, match="named in `include`"):
        read_parquet(tmp_path, "day.parquet", include=["z"])


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"a": [1]}, "expected the column"),
        ({"a": [1], "b": ["x"], "c": [1]}, "which the first file of its work unit lacks"),
        (
            {"a": ["1"], "b": ["x"]},
            r"column 'a' is of type string, in the .* every file \(or date\) has its own schema",
        ),
    ],
    ids=["one-less", "one-more", "another-type"],
)
def test_later_file_of_another_schema_is_refused(tmp_path: Path, second: dict[str, Any], problem: str) -> None:
    write(tmp_path / "one.parquet", a=[1], b=["x"])
    write(tmp_path / "two.parquet", **second)
    with pytest.raises(ExtractError, match=rf"file two\.parquet: .*{problem}"):
        read_parquet(tmp_path, "one.parquet", "two.parquet")


def test_later_file_may_have_types_that_those_of_the_first_hold(tmp_path: Path) -> None:
    text, large, lists = pa.string(), pa.large_string(), pa.list_(pa.string())
    kinds = {"a": pa.int64(), "b": large, "c": lists, "d": pa.timestamp("us"), "e": text, "f": pa.large_list(large)}
    narrow = {"a": pa.int8(), "b": text, "c": pa.large_list(pa.null()), "d": pa.date32(), "e": large, "f": lists}
    day, noon = dt.date(2040, 7, 1), dt.datetime(2040, 7, 1, 12)
    first = {"a": 2**40, "b": "x", "c": ["y"], "d": noon, "e": "z", "f": []}
    second = {"a": 7, "b": "u", "c": [None], "d": day, "e": "v", "f": ["w", None]}
    files = [(first, kinds), (second, narrow), ({}, dict.fromkeys(kinds, pa.null()))]
    for number, (row, types) in enumerate(files):
        parquet.write_table(pa.Table.from_pylist([row], pa.schema(types)), tmp_path / f"{number}.parquet")
    table = read_parquet(tmp_path, "0.parquet", "1.parquet", "2.parquet").select([*kinds])
    assert table.schema.types == [*kinds.values()]
    expected = [files[0][0], files[1][0] | {"d": dt.datetime(2040, 7, 1)}, dict.fromkeys(kinds)]
    assert table.to_pylist() == expected


def test_time_that_the_type_of_the_first_file_cannot_hold_is_named(tmp_path: Path) -> None:
    for name, unit, year in (("one", "ns", 2024), ("two", "us", 9999)):
        write(tmp_path / f"{name}.parquet", at=pa.array([dt.datetime(year, 1, 1)], pa.timestamp(unit)))
    with pytest.raises(ExtractError, match=r"two\.parquet.*'at' is of type timestamp\[us\], .* out of bounds"):
        read_parquet(tmp_path, "one.parquet", "two.parquet")


def test_ids_are_read_from_several_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / f"{name}.parquet", id=pa.array([name.encode().ljust(16)], pa.uuid()))
    assert read_parquet(tmp_path, "one.parquet", "two.parquet").schema.field("id").type == pa.uuid()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_file_is_no_complete_parquet_file(tmp_path: Path, share: float) -> None:
    write(tmp_path / "day.parquet", id=list(range(1000)))
    data = (tmp_path / "day.parquet").read_bytes()
    (tmp_path / "day.parquet").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ExtractError, match=r"file day\.parquet: is no complete Parquet file"):
        read_parquet(tmp_path, "day.parquet")


def test_damaged_page_is_an_error_of_its_file(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=[f"{n * 7919}" for n in range(10_000)])
    data = bytearray((tmp_path / "day.parquet").read_bytes())
    data[10:2000] = b"\x00" * 1990
    (tmp_path / "day.parquet").write_bytes(data)
    with pytest.raises(ExtractError, match=r"file day\.parquet: cannot be read"):
        read_parquet(tmp_path, "day.parquet")


def test_page_that_its_checksum_contradicts_is_refused(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(10_000), pa.int64())})
    parquet.write_table(
        table, tmp_path / "day.parquet", write_page_checksum=True, compression="none", use_dictionary=False
    )
    data = bytearray((tmp_path / "day.parquet").read_bytes())
    data[40_000] ^= 1
    (tmp_path / "day.parquet").write_bytes(data)
    with pytest.raises(ExtractError, match=r"file day\.parquet: cannot be read.*CRC"):
        read_parquet(tmp_path, "day.parquet")


@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "nested"])
def test_times_of_96_bits_are_read_from_year_1_to_9999(tmp_path: Path, is_nested: bool) -> None:
    times = [
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        None,
        dt.datetime(2020, 1, 1, 0, 0, 0, 1),
    ]
    values = pa.array(times, pa.timestamp("us"))
    column = pa.StructArray.from_arrays([values], ["at"]) if is_nested else values
    parquet.write_table(pa.table({"at": column}), tmp_path / "day.parquet", use_deprecated_int96_timestamps=True)
    found = read_parquet(tmp_path, "day.parquet").column("at").to_pylist()
    assert [one["at"] for one in found] == times if is_nested else found == times


def test_nanoseconds_in_96_bits_are_not_cut(tmp_path: Path) -> None:
    times = pa.array([1_000] * 20_000 + [1_577_836_800_123_456_789], pa.timestamp("ns"))
    table = pa.table({"id": range(20_001), "at": times})
    parquet.write_table(table, tmp_path / "day.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(ExtractError, match=r"file day\.parquet, row \d+: column 'at' has nanoseconds"):
        read_parquet(tmp_path, "day.parquet", block_bytes=1 << 16)
    assert read_parquet(tmp_path, "day.parquet", include=["id"]).num_rows == 20_001


def test_value_that_may_be_missing_in_a_later_file_is_told_only_where_it_is(tmp_path: Path) -> None:
    always, perhaps = (pa.schema([pa.field("id", pa.int64(), nullable=nullable)]) for nullable in (False, True))
    for name, ids, schema in (("one", [1], always), ("two", [2], perhaps), ("three", [3, None], perhaps)):
        parquet.write_table(pa.table({"id": ids}, schema=schema), tmp_path / f"{name}.parquet")
    assert read_parquet(tmp_path, "one.parquet", "two.parquet").column("id").to_pylist() == [1, 2]
    assert read_parquet(tmp_path, "three.parquet", "one.parquet").column("id").to_pylist() == [3, None, 1]
    with pytest.raises(ExtractError, match=r"three\.parquet, row 2: column 'id' has no value here"):
        read_parquet(tmp_path, "one.parquet", "three.parquet")


def test_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    parquet.write_table(table, tmp_path / "day.parquet")
    with pytest.raises(ExtractError, match=r"day\.parquet: has the column\(s\) id more than once"):
        read_parquet(tmp_path, "day.parquet")


def test_count_rows_reads_the_footer_and_empty_files_have_none(tmp_path: Path) -> None:
    write(tmp_path / "day.parquet", id=list(range(7)))
    write(tmp_path / "empty.parquet", id=pa.array([], pa.int64()))
    parquet_format = file_format({"type": "parquet"}, ConstructContext(job="flights", base_dir=str(tmp_path)))
    assert parquet_format.count_rows(InputFile(str(tmp_path / "day.parquet"))) == 7
    assert read_parquet(tmp_path, "empty.parquet", "day.parquet").num_rows == 7
