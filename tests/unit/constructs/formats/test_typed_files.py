"""Formats that bring their own types: ORC and Avro (Parquet has a file of its own)."""

from __future__ import annotations

import datetime as dt
import io
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError
from tests.unit.constructs.formats.reading import extractor, file_format, put, read

FIELDS = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]


def write(path: Path, rows: list[dict[str, Any]], fields: list[Any] = FIELDS, **options: Any) -> None:
    """Write rows in the format that the path ends in."""
    if path.suffix == ".orc":
        types = {"long": pa.int64(), "double": pa.float64()}
        schema = pa.schema([(one["name"], types.get(str(one["type"]), pa.string())) for one in fields])
        orc.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    else:
        schema_of_avro = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
        with path.open("wb") as file:
            fastavro.writer(file, schema_of_avro, rows, **options)


formats = pytest.mark.parametrize("kind", ["orc", "avro"])


@formats
def test_rows_are_numbered_and_read_in_small_batches(tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"day.{kind}", [{"id": n, "text": None if n % 7 == 0 else "x" * 20} for n in range(1, 20_001)])
    table = read(tmp_path, f"day.{kind}", type=kind)
    assert table.column("_row").to_pylist() == table.column("id").to_pylist() == list(range(1, 20_001))
    assert table.column("text").null_count == 20_000 // 7
    reader = extractor(tmp_path, f"day.{kind}", type=kind, block_bytes=1 << 16)
    assert max(chunk.batch.num_rows for chunk in reader.chunks()) < 5_000
    assert reader.bytes_read == (tmp_path / f"day.{kind}").stat().st_size


@formats
def test_columns_are_chosen_and_found_by_name_in_each_file(tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"one.{kind}", [{"id": 1, "text": "x"}])
    write(tmp_path / f"two.{kind}", [{"id": 2, "text": "y"}], fields=FIELDS[::-1])
    table = read(tmp_path, f"one.{kind}", f"two.{kind}", type=kind)
    assert table.select(["id", "text"]).to_pylist() == [{"id": 1, "text": "x"}, {"id": 2, "text": "y"}]
    assert read(tmp_path, f"one.{kind}", type=kind, include=["text"]).column_names == ["text", "_file", "_row"]


def test_later_avro_may_have_types_that_those_of_the_first_hold(tmp_path: Path) -> None:
    day, noon = dt.date(2040, 7, 1), dt.datetime(2040, 7, 1, 12)
    first = [*FIELDS, {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-micros"}}]
    days = {"type": "int", "logicalType": "date"}
    later = [{"name": "id", "type": "int"}, {"name": "text", "type": "null"}, {"name": "at", "type": days}]
    write(tmp_path / "one.avro", [{"id": 2**40, "text": "x", "at": noon}], first)
    write(tmp_path / "two.avro", [{"id": 7, "text": None, "at": day}], later)
    assert read(tmp_path, "one.avro", "two.avro", type="avro").select(["id", "text", "at"]).to_pylist() == [
        {"id": 2**40, "text": "x", "at": noon},
        {"id": 7, "text": None, "at": dt.datetime(2040, 7, 1)},
    ]


@formats
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (FIELDS[:1], r"expected the column\(s\) text"),
        ([*FIELDS, {"name": "new", "type": "string"}], r"has the column\(s\) new"),
        ([{"name": "id", "type": "double"}, FIELDS[1]], "'id' is of type double, .* it is int64"),
    ],
    ids=["one less", "one more", "another type"],
)
def test_later_file_with_other_columns_is_refused(tmp_path: Path, kind: str, fields: list[Any], problem: str) -> None:
    write(tmp_path / f"one.{kind}", [{"id": 1, "text": "x"}])
    write(tmp_path / f"two.{kind}", [{"id": 2, "text": "y", "new": "z"}], fields=fields)
    with pytest.raises(ExtractError, match=rf"two\.{kind}: .*{problem}"):
        read(tmp_path, f"one.{kind}", f"two.{kind}", type=kind)


@formats
def test_rows_are_counted_without_reading_them(tmp_path: Path, kind: str) -> None:
    write(tmp_path / f"day.{kind}", [{"id": n, "text": ""} for n in range(3_000)])
    made = file_format({"type": kind}, ConstructContext(job="flights", base_dir=str(tmp_path)))
    assert made.count_rows(InputFile(str(tmp_path / f"day.{kind}"))) == 3_000


@formats
@pytest.mark.parametrize("content", [b"", b"id,text\n1,x\n"], ids=["empty", "another format"])
def test_file_of_another_format_is_named(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / f"day.{kind}").write_bytes(content)
    with pytest.raises(
        ExtractError, match=rf"(?i)file day\.{kind}: .*is no complete {kind}.*upload interrupted"
    ) as caught:
        read(tmp_path, f"day.{kind}", type=kind)
    assert caught.value.file == f"day.{kind}"


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_avro_of_every_codec_is_read(tmp_path: Path, codec: str) -> None:
    write(tmp_path / "day.avro", [{"id": n, "text": "a"} for n in range(100)], codec=codec)
    assert read(tmp_path, "day.avro", type="avro").num_rows == 100


def test_avro_that_ends_in_a_block_is_named_with_its_row(tmp_path: Path) -> None:
    write(tmp_path / "day.avro", [{"id": n, "text": "a"} for n in range(10_000)], codec="deflate", sync_interval=4_000)
    content = (tmp_path / "day.avro").read_bytes()
    put(tmp_path, cut_avro=content[: len(content) - 50])
    with pytest.raises(ExtractError, match="no complete Avro file") as caught:
        read(tmp_path, "cut.avro", type="avro")
    assert caught.value.row is not None
    assert 5_000 < caught.value.row <= 10_000


def test_orc_of_times_that_nanoseconds_do_not_reach_says_what_to_do(tmp_path: Path) -> None:
    far = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us"))
    orc.write_table(pa.table({"id": [1], "until": far}), tmp_path / "day.orc")
    with pytest.raises(ExtractError, match=r"day\.orc, row 1: has a time .* after 2262-04-11.*`include`"):
        read(tmp_path, "day.orc", type="orc")
    assert read(tmp_path, "day.orc", type="orc", include=["id"]).column("id").to_pylist() == [1]


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_file_whose_end_is_damaged_is_read_whole_or_refused(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"id": range(40)})
    if kind == "orc":
        orc.write_table(rows, tmp_path / "whole.orc", stripe_size=100)
    else:
        pq.write_table(rows, tmp_path / "whole.parquet", row_group_size=10)
    content, refused = (tmp_path / f"whole.{kind}").read_bytes(), 0
    for at in range(len(content) - 250, len(content)):
        for bit in (1, 2, 16):
            put(tmp_path, **{f"one_{kind}": content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]})
            try:
                assert read(tmp_path, f"one.{kind}", type=kind).num_rows == 40, (at, bit)
            except ExtractError:
                refused += 1
    assert refused


def test_avro_whose_block_claims_another_number_of_rows_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / "day.avro", [{"id": n, "text": "a"} for n in range(5)])
    content = (tmp_path / "day.avro").read_bytes()
    count = content.index(content[-16:]) + 16
    for rows, written in ((5, 10), (2, 4), (0, 0), (-1, 1), (6, 12)):
        put(tmp_path, bad_avro=content[:count] + bytes([written]) + content[count + 1 :])
        if rows == 5:
            assert read(tmp_path, "bad.avro", type="avro").num_rows == 5
        else:
            with pytest.raises(ExtractError, match=r"bad\.avro.* is (damaged|no complete Avro file)"):
                read(tmp_path, "bad.avro", type="avro")


def test_avro_that_claims_rows_without_bytes_and_without_end_is_damaged(tmp_path: Path) -> None:
    write(tmp_path / "day.avro", [], fields=[{"name": "none", "type": "null"}])
    content = (tmp_path / "day.avro").read_bytes()
    many = b"\x80" * 5 + b"\x40"  # 2**40 as a varint, zigzag
    put(tmp_path, bad_avro=content + many + b"\0" + content[-16:])
    with pytest.raises(ExtractError, match=r"a block of 0 bytes claims 1,099,511,627,776 rows"):
        read(tmp_path, "bad.avro", type="avro")


@pytest.mark.parametrize(
    ("kind", "logical", "number"),
    [("int", "date", 2_932_897), ("int", "date", 2**31 - 1), ("long", "timestamp-millis", 253_402_300_800_000)],
    ids=["day 10000-01-01", "last day", "time 10000-01-01"],
)
def test_avro_of_dates_beyond_the_calendar_is_no_interrupted_upload(
    tmp_path: Path, kind: str, logical: str, number: int
) -> None:
    days = {"name": "at", "type": {"type": kind, "logicalType": logical}}
    write(tmp_path / "day.avro", [{"at": number}], fields=[days])
    with pytest.raises(ExtractError, match=r"day\.avro: has a date or time outside the years 1 to 9999"):
        read(tmp_path, "day.avro", type="avro")


def test_avro_types_become_those_of_arrow(tmp_path: Path) -> None:
    moment = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    key = uuid.UUID(int=5)
    fields: list[Any] = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "keys", "type": {"type": "array", "items": {"type": "string", "logicalType": "uuid"}}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "double"}]}},
    ]
    row = {"at": moment, "day": dt.date(2013, 1, 2), "price": Decimal("12.34"), "key": key, "keys": [key], "kind": "B"}
    write(tmp_path / "day.avro", [row | {"tags": {"a": 1}, "inner": {"x": 0.5}}], fields=fields)
    table = read(tmp_path, "day.avro", type="avro")
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.drop_columns(["_file", "_row"]).to_pylist() == [
        row | {"key": str(key), "keys": [str(key)], "tags": [("a", 1)], "inner": {"x": 0.5}}
    ]


@pytest.mark.parametrize(
    ("schema", "rows", "problem"),
    [
        ("long", [1], "has values of type int64; expected records"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["long", "string"]}]},
            [{"x": 1}],
            "cannot become columns: a union of 2 types",
        ),
    ],
    ids=["no records", "union"],
)
def test_avro_that_is_no_table_is_refused(tmp_path: Path, schema: Any, rows: list[Any], problem: str) -> None:
    with (tmp_path / "day.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows)
    with pytest.raises(ExtractError, match=problem):
        read(tmp_path, "day.avro", type="avro")


@pytest.mark.parametrize(
    ("levels", "again", "python_levels", "problem"),
    [
        (200, False, 1_000, "nested too deep"),
        (200, False, 50_000, "nested too deep"),  # networkx and hypothesis raise Python's own bound
        (5_000, False, 1_000, "nested too deep"),
        (20, True, 1_000, "more than 100000 types"),
    ],
    ids=["deep", "deep for Python", "deeper", "wide"],
)
def test_avro_schema_without_bound_is_refused(
    tmp_path: Path, levels: int, again: bool, python_levels: int, problem: str
) -> None:
    kind = '"long"'
    for level in range(levels):
        fields = f'{{"name": "f", "type": {kind}}}'
        fields += f', {{"name": "g", "type": "r{level - 1}"}}' if again and level else ""
        kind = f'{{"type": "record", "name": "r{level}", "fields": [{fields}]}}'
    text = io.BytesIO(b"Obj\x01")
    text.seek(0, io.SEEK_END)
    head = {"avro.schema": kind.encode(), "avro.codec": b"null"}
    fastavro.schemaless_writer(text, fastavro.parse_schema({"type": "map", "values": "bytes"}), head)
    (tmp_path / "day.avro").write_bytes(text.getvalue() + b"0" * 16)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(python_levels)
    try:
        with pytest.raises(ExtractError, match=f"its schema cannot become columns: .*{problem}"):
            read(tmp_path, "day.avro", type="avro")
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_connection_that_breaks_is_no_damage_of_the_file(kind: str) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")

    class Remote(InputFile):
        def open_raw(self) -> pa.NativeFile:
            return pa.PythonFile(Broken(b"x" * 1000), "r")

    context = ConstructContext(job="j", base_dir="/")
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        file_format({"type": kind}, context).open(Remote(f"s3://bucket/a.{kind}"), None)


@pytest.mark.parametrize("kind", ["orc", "parquet"])
@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "nested"])
def test_text_that_is_not_utf8_is_refused_with_its_row(tmp_path: Path, kind: str, is_nested: bool) -> None:
    texts = pa.array([b"a", b"b", b"\xff\xfe", b"d"]).view(pa.string())
    column = pa.StructArray.from_arrays([texts], ["text"]) if is_nested else texts
    table = pa.table({"id": [1, 2, 3, 4], "v": column})
    (orc.write_table if kind == "orc" else pq.write_table)(table, tmp_path / f"a.{kind}")
    with pytest.raises(ExtractError, match=r"row 3: column 'v' holds a text that is not UTF-8"):
        read(tmp_path, f"a.{kind}", type=kind)
    assert read(tmp_path, f"a.{kind}", type=kind, include=["id"]).column("id").to_pylist() == [1, 2, 3, 4]
