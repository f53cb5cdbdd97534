from __future__ import annotations

import datetime as dt
import gzip
import io
import random
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import reader as avro_reader
from pyarrow import orc
from pydantic import ValidationError

from gobblin_dagster.constructs.writers.avro import AvroWriter
from gobblin_dagster.constructs.writers.console import ConsoleWriter
from gobblin_dagster.constructs.writers.orc import OrcWriter
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.constructs.writers.text import TextWriter
from gobblin_dagster.core.errors import ConvertError, EnvironmentFaultError, StorageError
from gobblin_dagster.storage.memory import MemoryStorage
from tests.unit.constructs.samples import CONTEXT, batch
from tests.unit.constructs.writers.staging import RefusingStorage, make, where, write_all

INSTANT = dt.datetime(2013, 1, 1, 10, 5, 6, 7, tzinfo=dt.UTC)
IDS = pa.table({"id": range(5000)})


class Own(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A type of a user."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def _bytes(cls: type[Any], rows: pa.Table, **options: Any) -> bytes:
    context = where(rows.schema)
    (file,) = write_all(make(cls, context, **options), rows)
    return context.storage.read(file.path)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None], pa.int8()), 1),
        (pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
        (pa.array([2**63 - 1]), 2**63 - 1),
        (pa.array([1.5], pa.float32()), 1.5),
        (pa.array([True]), True),
        (pa.array(["é"], pa.large_string()), "é"),
        (pa.array(["x", None]).dictionary_encode(), "x"),
        (pa.array([b"\x00\xff"]), b"\x00\xff"),
        (pa.array([b"abc"], pa.binary(3)), b"abc"),
        (pa.array([Decimal("-12345678901234567.891")], pa.decimal128(20, 3)), Decimal("-12345678901234567.891")),
        (pa.array([INSTANT], pa.timestamp("us", "America/New_York")), INSTANT),
        (pa.array([INSTANT], pa.timestamp("ns", "UTC")), INSTANT),
        (pa.array([INSTANT.replace(tzinfo=None)], pa.timestamp("us")), INSTANT.replace(tzinfo=None)),
        (pa.array([dt.date(1969, 12, 31)]), dt.date(1969, 12, 31)),
        (pa.array([dt.time(1, 2, 3)], pa.time32("s")), dt.time(1, 2, 3)),
        (pa.array([dt.time(1, 2, 3, 4)]), dt.time(1, 2, 3, 4)),
        (pa.array([["a", None]]), ["a", None]),
        (pa.array([[INSTANT]], pa.list_(pa.timestamp("us", "UTC"))), [INSTANT]),
        (pa.array([{"x": {"d": dt.date(2013, 1, 1)}, "y": None}]), {"x": {"d": dt.date(2013, 1, 1)}, "y": None}),
        (pa.nulls(1), None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_avro_brings_values_back(values: pa.Array, expected: Any) -> None:
    records: list[Any] = list(avro_reader(io.BytesIO(_bytes(AvroWriter, pa.table({"v": values})))))
    assert [record["v"] for record in records] == [expected, *values.to_pylist()[1:]]


def test_avro_takes_parts_of_lists_and_structs_of_nulls() -> None:
    values = pa.array([[{"x": None}], None, [{"x": None}, None]], pa.large_list(pa.struct([("x", pa.null())])))
    rows = pa.table({"v": pa.chunked_array([values.slice(1), values.slice(2), values.slice(0, 1)])})
    assert list(avro_reader(io.BytesIO(_bytes(AvroWriter, rows)))) == rows.to_pylist()


def test_avro_column_that_is_never_null_is_no_union() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    rows = pa.Table.from_pylist([{"id": 1, "name": None}], schema=schema)
    written: Any = avro_reader(io.BytesIO(_bytes(AvroWriter, rows, record_name="flight"))).writer_schema
    assert written["name"] == "flight"
    assert [field["type"] for field in written["fields"]] == ["long", ["null", "string"]]


@pytest.mark.parametrize("codec", ["null", None, "deflate", "snappy", "zstandard"])
def test_avro_codecs_are_in_the_file(codec: str | None) -> None:
    reader: Any = avro_reader(io.BytesIO(_bytes(AvroWriter, IDS, compression=codec)))
    assert reader.metadata["avro.codec"] == (codec or "null")
    assert [record["id"] for record in reader] == list(range(5000))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ({"a b": [1]}, "column 'a b': 'a b' is no name in Avro"),
        ({"s": [{"x-y": 1}]}, "column 's': 'x-y' is no name in Avro"),
        ({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))}, "column 'm': Avro has no type for map"),
        ({"d": pa.array([1], pa.duration("s"))}, "column 'd': Avro has no type for duration"),
        ({"o": pa.ExtensionArray.from_storage(Own(), pa.array([1]))}, "column 'o': Avro has no type for extension"),
        (
            {"id": [1], "n": pa.array([1], pa.timestamp("ns"))},
            "the format cannot hold the rows: column 'n': .*lose data",
        ),
        ({"id": [1], "u": pa.array([2**64 - 1], pa.uint64())}, "the format cannot hold the rows: column 'u': "),
        (
            {"t": pa.array([86_400_000], pa.time32("ms"))},
            "the format cannot hold the rows: column 't' has times of day",
        ),
        (
            {"l": pa.array([[{"d": 3_000_000}]], pa.list_(pa.struct({"d": pa.date32()})))},
            "the format cannot hold the rows: column 'l' has times before the year 1 or after 9999",
        ),
    ],
    ids=["name", "field name", "map", "duration", "a class of a user", "nanoseconds", "unsigned", "24:00", "year"],
)
def test_avro_refuses_what_it_cannot_hold(rows: dict[str, Any], problem: str) -> None:
    table = pa.table(rows)
    with pytest.raises(ConvertError, match=f"Dataset 'AA/EWR', writer 'avro': {problem}"):
        write_all(make(AvroWriter, where(table.schema)), table)


def test_avro_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(EnvironmentFaultError, match="gobblin-dagster\\[avro\\]"):
        make(AvroWriter, where(IDS.schema))


@pytest.mark.parametrize("codec", ["zstd", "zlib", "snappy", "lz4", "none"])
def test_orc_codecs_are_in_the_file(codec: str) -> None:
    file = orc.ORCFile(io.BytesIO(_bytes(OrcWriter, IDS, compression=codec)))
    assert file.compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert file.read()["id"].to_pylist() == list(range(5000))


def test_orc_keeps_nested_values_and_instants() -> None:
    rows = pa.table(
        {
            "t": pa.array([INSTANT], pa.timestamp("us", "America/New_York")),
            "l": [[{"x": 1}]],
            "k": pa.array(["a"]).dictionary_encode(),
            "d": pa.array([Decimal("1.50")], pa.decimal128(20, 2)),
        }
    )
    read = orc.ORCFile(io.BytesIO(_bytes(OrcWriter, rows))).read()
    assert [row | {"t": row["t"].to_pydatetime()} for row in read.to_pylist()] == [
        {"t": INSTANT, "l": [{"x": 1}], "k": "a", "d": Decimal("1.50")}
    ]


PLACE = pa.struct([("open", pa.bool_()), ("lines", pa.list_(pa.struct([("n", pa.int64()), ("paid", pa.bool_())])))])


@pytest.mark.parametrize("kind", [PLACE, pa.list_(PLACE), pa.map_(pa.string(), PLACE), pa.list_(PLACE, 1)], ids=str)
@pytest.mark.parametrize("batch_rows", [1, 7, 3000])
def test_orc_keeps_nested_values_with_nulls_however_rows_come(kind: pa.DataType, batch_rows: int) -> None:
    """pyarrow's own writer gave rows the values of other ones."""
    lines = [None, [], [{"n": 1, "paid": True}, None], [{"n": None, "paid": False}, {"n": 2, "paid": None}]]
    places = [None if n % 5 == 0 else {"open": [None, True, False][n % 3], "lines": lines[n % 4]} for n in range(3010)]
    around = (lambda one: [("k", one)]) if pa.types.is_map(kind) else (lambda one: [one])
    wrapped = places if kind == PLACE else [None if n % 7 == 0 else around(one) for n, one in enumerate(places)]
    rows = pa.table({"v": pa.array(wrapped, kind)}).slice(10)
    storage = MemoryStorage()
    (file,) = write_all(make(OrcWriter, where(rows.schema, storage)), rows, batch_rows)
    assert orc.ORCFile(io.BytesIO(storage.read(file.path))).read()["v"].to_pylist() == rows["v"].to_pylist()


def test_orc_keeps_days_also_inside_of_structs_and_lists() -> None:
    kind = pa.struct([("days", pa.list_(pa.date64())), ("by", pa.map_(pa.string(), pa.date64()))])
    day = dt.date(1500, 1, 1)
    rows = pa.table({"v": pa.array([{"days": [day], "by": [("a", day)]}], kind)})
    storage = MemoryStorage()
    (file,) = write_all(make(OrcWriter, where(rows.schema, storage)), rows)
    read = orc.ORCFile(io.BytesIO(storage.read(file.path))).read()
    assert read["v"].to_pylist() == rows["v"].to_pylist()


def test_orc_refuses_types_that_it_does_not_have() -> None:
    rows = pa.table({"t": [dt.time(1, 2)]})
    with pytest.raises(ConvertError, match=r"writer 'orc': column '\w+': the format has no type for time64.*`columns`"):
        write_all(make(OrcWriter, where(rows.schema)), rows)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([-1, 0], pa.timestamp("us")),
        pa.array([-1_500], pa.timestamp("ms", "UTC")),
        pa.array([{"t": [-1]}], pa.struct([("t", pa.list_(pa.timestamp("ns")))])),
        pa.array([[("k", -1)]], pa.map_(pa.string(), pa.timestamp("us"))),
    ],
    ids=lambda values: str(values.type),
)
def test_orc_refuses_fractions_before_1970_which_spark_and_hive_cannot_read(values: pa.Array) -> None:
    rows = pa.table({"t": values})
    with pytest.raises(ConvertError, match="column 't' has times before 1970 with fractions of a second"):
        write_all(make(OrcWriter, where(rows.schema)), rows)


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.timestamp("s"), -9223372036, 9223372036),
        (pa.timestamp("ms", "UTC"), -9223372036_000, 9223372036_854),
        (pa.timestamp("us"), -9223372036_000000, 9223372036_854775),
    ],
    ids=["s", "ms", "us"],
)
def test_orc_takes_the_times_that_arrow_reads_back_and_no_others(kind: pa.DataType, first: int, last: int) -> None:
    def rows(*times: int) -> pa.Table:
        return pa.table({"t": pa.array([[one, None] for one in times], pa.list_(pa.int64())).cast(pa.list_(kind))})

    read = orc.ORCFile(io.BytesIO(_bytes(OrcWriter, rows(first, last)))).read()
    assert read["t"].cast(pa.list_(kind)).to_pylist() == rows(first, last)["t"].to_pylist()
    a_second = {"s": 1, "ms": 1000, "us": 1_000_000}[kind.unit]
    for beyond in (first - a_second, last + 1):
        with pytest.raises(ConvertError, match="column 't' has times before 1677-09-21 or after 2262-04-11, which Arr"):
            write_all(make(OrcWriter, where(rows(0).schema)), rows(0, beyond))


def test_orc_keeps_whole_seconds_before_1970_and_days_as_days() -> None:
    rows = pa.table(
        {
            "t": pa.array([-2_000_000, None, 1_500_000], pa.timestamp("us")),
            "d": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date64()),
        }
    )
    read = orc.ORCFile(io.BytesIO(_bytes(OrcWriter, rows))).read()
    assert read["t"].cast(pa.timestamp("us")).equals(rows["t"])
    assert read["d"].equals(rows["d"].cast(pa.date32()))


@pytest.mark.parametrize("cls", [ParquetWriter, OrcWriter, AvroWriter])
@pytest.mark.parametrize("nested", [False, True])
def test_decimals_in_hundreds_are_refused_and_the_process_lives(cls: type[Any], nested: bool) -> None:
    kind = pa.decimal128(10, -2)
    rows = pa.table({"d": pa.nulls(1, pa.list_(kind) if nested else kind)})
    with pytest.raises(ConvertError, match=r"column 'd': the format cannot hold .*decimal128\(10, -2\)"):
        make(cls, where(rows.schema))


@pytest.mark.parametrize("cls", [ParquetWriter, OrcWriter, AvroWriter])
def test_null_in_a_column_that_has_none_is_refused(cls: type[Any]) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    rows = pa.Table.from_arrays([pa.array([1, None])], schema=schema)
    with pytest.raises(ConvertError, match=r"the format cannot hold the rows: .*null"):
        write_all(make(cls, where(schema)), rows)


@pytest.mark.parametrize("bytes_per_file", [0, 2, 3000, 100_000, 990_000])
def test_orc_on_a_full_disk_raises_and_lets_the_process_live(bytes_per_file: int) -> None:
    noise = random.Random(7)
    rows = pa.table({"noise": [noise.randbytes(1000) for _ in range(1000)]})
    storage = RefusingStorage(bytes_per_file=bytes_per_file)
    writer = make(OrcWriter, where(rows.schema, storage), row_group_rows=10, stripe_bytes=1 << 16)
    with pytest.raises(StorageError, match=r"cannot write /lake/.*No space left on device"):
        write_all(writer, rows)
    writer.abort()
    del writer  # the library cleans up here
    assert list(storage.walk_files("/")) == []


def test_text_is_a_line_per_row() -> None:
    assert _bytes(TextWriter, pa.table({"a": ["x", "", " é"]})) == "x\n\n é\n".encode()


def test_text_beside_partition_columns_and_compressed() -> None:
    rows = pa.table({"k": ["a", "b", "a"], "line": ["1", "2", "3"]})
    context = where(rows.schema)
    files = write_all(make(TextWriter, context, partition_by=["k"], compression="gzip"), rows)
    lines = {f.target.split("/")[-2]: gzip.decompress(context.storage.read(f.path)) for f in files}
    assert lines == {"k=a": b"1\n3\n", "k=b": b"2\n"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ({"a": ["x"], "b": ["y"]}, "expected one text column, got a, b"),
        ({"a": [1]}, r"expected one text column, got a \(int64\)"),
        ({"a": ["x", None]}, "column 'a' has 1 nulls"),
        ({"a": ["x", "y\nz", "\r"]}, "column 'a' has 2 texts with a line break"),
    ],
    ids=str,
)
def test_text_refuses_what_would_not_come_back(rows: dict[str, Any], problem: str) -> None:
    table = pa.table(rows)
    with pytest.raises(ConvertError, match=f"writer 'text': .*{problem}"):
        write_all(make(TextWriter, where(table.schema)), table)


def test_console_prints_few_rows_and_stages_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    storage = MemoryStorage()
    context = where(IDS.schema, storage)
    writer = ConsoleWriter(ConsoleWriter.Options(max_rows=3), CONTEXT, writer_context=context)
    for part in IDS.to_batches(max_chunksize=2):
        writer.write(part)
    assert writer.finish() == ()
    writer.abort()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        *(f'AA/EWR [main] {{"id":{number}}}' for number in range(3)),
        "AA/EWR [main] ... 4,997 more of 5,000 rows",
    ]
    assert list(storage.walk_files("/")) == []


def test_console_cuts_long_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = batch({"a": ["x" * 100]})
    writer = ConsoleWriter(ConsoleWriter.Options(max_chars=10), CONTEXT, writer_context=where(rows.schema))
    writer.write(rows)
    writer.finish()
    assert capsys.readouterr().err == 'AA/EWR [main] {"a":"xxxx...\n'


@pytest.mark.parametrize(
    ("cls", "options"),
    [(AvroWriter, {"compression": "lzo"}), (AvroWriter, {"record_name": "a b"}), (OrcWriter, {"compression": "gzip"})],
    ids=str,
)
def test_bad_options_are_refused(cls: type[Any], options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        cls.Options.model_validate(options)
