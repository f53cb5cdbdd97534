from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from fastavro import reader as avro_reader
from pyarrow import orc
from pydantic import ValidationError

from gobblin_dagster.constructs.writers.avro import AvroWriter
from gobblin_dagster.constructs.writers.csv import CsvWriter
from gobblin_dagster.constructs.writers.jsonl import JsonLinesWriter
from gobblin_dagster.constructs.writers.orc import OrcWriter
from gobblin_dagster.constructs.writers.parquet import ParquetWriter
from gobblin_dagster.core.errors import ConvertError, StorageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.storage.memory import MemoryStorage
from tests.unit.constructs.writers.staging import WRITERS, CountingStorage, RefusingStorage, make, where, write_all

ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "origin": ["EWR", "JFK", "LGA", None] * 250,
        "note": ['a, "b"\n', "", None, "é"] * 250,
    }
)


def _read(storage: Storage, file: StagedFile) -> pa.Table:
    content = storage.read(file.path)
    if file.target.endswith(".gz"):
        content = gzip.decompress(content)
    if ".parquet" in file.target:
        return pq.ParquetFile(io.BytesIO(content)).read()
    if ".orc" in file.target:
        return orc.ORCFile(io.BytesIO(content)).read()
    if ".avro" in file.target:
        return pa.Table.from_pylist(list(avro_reader(io.BytesIO(content))))
    if ".csv" in file.target:
        options = pacsv.ConvertOptions(strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False)
        return pacsv.read_csv(
            io.BytesIO(content),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
    return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])


@pytest.mark.parametrize("cls", WRITERS)
def test_writer_stages_all_rows_in_order_with_size_and_checksum(cls: type[Any]) -> None:
    context = where(ROWS.schema)
    (file,) = write_all(make(cls, context), ROWS, batch_rows=37)
    content = context.storage.read(file.path)
    name = {"JsonLinesWriter": "jsonl"}.get(cls.__name__, cls.__name__.removesuffix("Writer").lower())
    assert file.target == f"raw/flights/main/AA/commit-wu-1-0000.{name}"
    assert file.path == f"/lake/_gobblin/staging/attempt/main-{file.target.rpartition('/')[2]}"
    assert (file.branch, file.rows) == ("main", 1000)
    assert (file.size_bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert _read(context.storage, file).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("cls", WRITERS)
def test_no_rows_mean_no_files(cls: type[Any]) -> None:
    context = where(ROWS.schema)
    writer = make(cls, context)
    writer.write(
        ROWS.slice(0, 0).to_batches()[0] if ROWS.slice(0, 0).to_batches() else ROWS.to_batches()[0].slice(0, 0)
    )
    assert writer.finish() == ()
    assert list(context.storage.walk_files("/")) == []


@pytest.mark.parametrize("cls", WRITERS)
def test_partitions_hold_every_row_once_in_order(cls: type[Any]) -> None:
    context = where(ROWS.schema)
    files = write_all(make(cls, context, partition_by=["origin"]), ROWS)
    folders = [file.target.removeprefix("raw/flights/main/AA/").split("/")[0] for file in files]
    assert folders == ["origin=EWR", "origin=JFK", "origin=LGA", "origin=__HIVE_DEFAULT_PARTITION__"]
    for file, position in zip(files, range(4), strict=True):
        table = _read(context.storage, file)
        assert table.column_names == ["id", "note"]
        assert table["id"].to_pylist() == list(range(position, 1000, 4))
        assert file.rows == 250


def test_partition_columns_may_stay_in_the_files() -> None:
    context = where(ROWS.schema)
    files = write_all(make(ParquetWriter, context, partition_by=["origin"], keep_partition_columns=True), ROWS)
    assert {tuple(_read(context.storage, file).column_names) for file in files} == {("id", "origin", "note")}


def test_open_files_are_bounded_and_begun_anew() -> None:
    context = where(ROWS.schema)
    writer = make(ParquetWriter, context, partition_by=["origin"], max_open_files=2, row_group_rows=10)
    for start in range(0, 1000, 500):
        for origin in ("EWR", "JFK", "LGA"):
            mask = [row == origin for row in ROWS["origin"].slice(start, 500).to_pylist()]
            for batch in ROWS.slice(start, 500).filter(pa.array(mask)).to_batches():
                writer.write(batch)
                assert len(writer._open) <= 2
    files = writer.finish()
    assert len(files) == 6
    assert len({file.target for file in files}) == 6
    assert sum(file.rows for file in files) == 750


def test_least_recently_used_file_is_closed_first() -> None:
    context = where(ROWS.schema)
    writer = make(ParquetWriter, context, partition_by=["origin"], max_open_files=2, row_group_rows=1)
    batch = ROWS.to_batches()[0]
    for position in (0, 1, 0, 2, 0):  # EWR is used again and again, so JFK must make room
        writer.write(batch.slice(position, 1))
    files = writer.finish()
    assert [file.rows for file in files if "origin=EWR" in file.target] == [3]


@pytest.mark.parametrize("cls", WRITERS)
def test_rows_of_more_folders_than_open_files_are_sorted_in_memory(cls: type[Any]) -> None:
    rows = pa.table({"id": range(6000), "key": [at * 7 % 300 for at in range(6000)]})
    storage = CountingStorage()
    writer = make(cls, where(rows.schema, storage), partition_by=["key"], max_open_files=4)
    files = write_all(writer, rows, batch_rows=500)
    assert storage.most_open <= 4
    assert len(files) == 300  # as many as folders, though each batch has rows of all of them
    assert sum(file.rows for file in files) == 6000


def test_memory_that_is_full_costs_a_file_per_folder_and_no_row() -> None:
    rows = pa.table({"id": range(6000), "key": [at * 7 % 300 for at in range(6000)]})
    storage = CountingStorage()
    # Room for about half of the parts of one batch: most folders get a new file with each batch.
    writer = make(
        ParquetWriter, where(rows.schema, storage), partition_by=["key"], max_open_files=4, buffer_bytes=200_000
    )
    for batch in rows.to_batches(max_chunksize=500):
        writer.write(batch)
        assert writer._gathered_bytes <= 200_000
    files = writer.finish()
    assert storage.most_open <= 4
    assert 300 < len(files) < 300 * 12  # fewer than a file per folder and batch
    found = [row for file in files for row in _read(storage, file)["id"].to_pylist()]
    assert sorted(found) == list(range(6000))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{unique}", "commit-wu-1-0000.parquet"),
        ("part-{unique}-{rows}", "part-commit-wu-1-0000-1000.parquet"),
        ("{job}_{branch}-{unique}", "flights_main-commit-wu-1-0000.parquet"),
    ],
)
def test_files_are_named_by_the_template(template: str, name: str) -> None:
    context = where(ROWS.schema)
    (file,) = write_all(make(ParquetWriter, context, file_name=template), ROWS)
    assert file.target == f"raw/flights/main/AA/{name}"
    assert _read(context.storage, file).num_rows == 1000


@pytest.mark.parametrize(
    "template",
    [
        "part",
        "../{unique}",
        "{unique}/x",
        ".{unique}",
        "{unique}.{rows}",
        "_{unique}",
        "{unique}{0}",
        "{unique}{job.x}",
    ],
)
def test_template_that_is_not_unique_or_no_plain_name_is_refused(template: str) -> None:
    with pytest.raises(ValidationError, match="expected letters, digits"):
        make(ParquetWriter, where(ROWS.schema), file_name=template)


@pytest.mark.parametrize(
    ("cls", "options", "problem"),
    [
        (ParquetWriter, {"compression_level": 1}, "snappy has no levels; got compression_level 1"),
        (ParquetWriter, {"compression": "gzip", "compression_level": 10}, "gzip has levels 1 to 9"),
        (ParquetWriter, {"compression": "zstd", "compression_level": 23}, "zstd has levels 1 to 22"),
        (OrcWriter, {"stripe_bytes": 1 << 63}, "less than or equal to"),
        (AvroWriter, {"block_bytes": 1 << 63}, "less than or equal to"),
    ],
)
def test_numbers_that_the_format_cannot_take_are_refused(cls: type[Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        cls.Options(**options)


@pytest.mark.parametrize(
    "options", [{"compression": "gzip", "compression_level": 9}, {"compression": "zstd", "compression_level": 22}]
)
def test_highest_levels_of_compression_can_be_read(options: dict[str, Any]) -> None:
    context = where(ROWS.schema)
    (file,) = write_all(make(ParquetWriter, context, **options), ROWS)
    assert _read(context.storage, file).to_pylist() == ROWS.to_pylist()


def test_files_roll_over_by_bytes() -> None:
    noise = random.Random(7)
    rows = pa.table({"id": range(500), "noise": [noise.randbytes(1000) for _ in range(500)]})
    context = where(rows.schema)
    limit, row_group = 1 << 17, 50
    files = write_all(make(ParquetWriter, context, max_file_bytes=limit, row_group_rows=row_group), rows, batch_rows=25)
    assert len(files) > 1
    assert [file.target[-12:] for file in files][:2] == ["0000.parquet", "0001.parquet"]
    assert all(file.size_bytes < limit + 2 * row_group * 1000 + (1 << 16) for file in files)
    ids = [value for file in files for value in _read(context.storage, file)["id"].to_pylist()]
    assert ids == list(range(500))


def test_files_roll_over_by_rows() -> None:
    context = where(ROWS.schema)
    files = write_all(make(CsvWriter, context, max_file_rows=400), ROWS, batch_rows=200)
    assert [file.rows for file in files] == [400, 400, 200]


@pytest.mark.parametrize(
    "limits", [{"row_group_rows": 100}, {"row_group_bytes": 1024}, {"buffer_bytes": 1024}], ids=str
)
def test_buffered_rows_are_bounded(limits: dict[str, int]) -> None:
    context = where(ROWS.schema)
    writer = make(ParquetWriter, context, **limits)
    for batch in ROWS.to_batches(max_chunksize=10):
        writer.write(batch)
        buffered = sum(file.gathered_rows for file in writer._files.values())
        assert buffered <= 100
        assert writer._gathered_bytes == sum(file.gathered_bytes for file in writer._files.values())
    (file,) = writer.finish()
    assert pq.ParquetFile(io.BytesIO(context.storage.read(file.path))).num_row_groups >= 10


def test_parts_of_a_split_batch_do_not_hold_the_batch_in_memory() -> None:
    wide = pa.table({"k": ["a"] + ["b"] * 99_999, "text": ["x" * 50] * 100_000})
    writer = make(ParquetWriter, where(wide.schema), partition_by=["k"])
    for batch in wide.to_batches():
        writer.write(batch)
    small = writer._files["k=a/"].gathered[0]
    assert small.get_total_buffer_size() < 10_000


@pytest.mark.parametrize("cls", WRITERS)
def test_abort_deletes_open_and_finished_files(cls: type[Any]) -> None:
    storage = MemoryStorage()
    writer = make(cls, where(ROWS.schema, storage), max_file_rows=300, row_group_rows=100)
    for batch in ROWS.slice(0, 700).to_batches(max_chunksize=100):
        writer.write(batch)
    assert list(storage.walk_files("/"))
    writer.abort()
    assert list(storage.walk_files("/")) == []
    assert writer.finish() == ()


def test_abort_never_raises() -> None:
    storage = RefusingStorage(bytes_per_file=1 << 20, refuse_delete=True)
    writer = make(ParquetWriter, where(ROWS.schema, storage), max_file_rows=300)
    writer.write(ROWS.to_batches()[0].slice(0, 300))
    writer.abort()


@pytest.mark.parametrize("cls", WRITERS)
@pytest.mark.parametrize("bytes_per_file", [0, 100, 3000])
def test_full_disk_names_path_and_dataset(cls: type[Any], bytes_per_file: int) -> None:
    storage = RefusingStorage(bytes_per_file=bytes_per_file)
    noise = random.Random(7)
    rows = pa.table({"id": range(1000), "noise": [noise.randbytes(50).hex() for _ in range(1000)]})
    writer = make(cls, where(rows.schema, storage), row_group_rows=10)
    with pytest.raises(StorageError, match=r"Dataset 'AA/EWR': cannot write /lake/.*No space left on device"):
        write_all(writer, rows)
    writer.abort()
    assert list(storage.walk_files("/")) == []


@pytest.mark.parametrize("cls", WRITERS)
def test_unwritable_storage_names_path_and_dataset(cls: type[Any]) -> None:
    writer = make(cls, where(ROWS.schema, RefusingStorage()))
    with pytest.raises(StorageError, match=r"Dataset 'AA/EWR': cannot create /lake/.*-0000.*: Permission denied"):
        write_all(writer, ROWS)


def test_file_that_exists_is_never_overwritten() -> None:
    storage = MemoryStorage()
    write_all(make(ParquetWriter, where(ROWS.schema, storage)), ROWS)
    with pytest.raises(StorageError, match="exists"):
        write_all(make(ParquetWriter, where(ROWS.schema, storage)), ROWS)


def test_csv_keeps_null_and_empty_text_apart() -> None:
    context = where(pa.schema([("a", pa.string()), ("b", pa.int8())]))
    rows = pa.table({"a": ["", None], "b": pa.array([None, 1], pa.int8())})
    (file,) = write_all(make(CsvWriter, context), rows)
    assert context.storage.read(file.path) == b'"a","b"\n"",\n,1\n'


@pytest.mark.parametrize("delimiter", [".", "-", ":", " ", "1", "e", '"', "\n", "é"])
def test_csv_delimiter_that_stands_inside_of_values_is_refused(delimiter: str) -> None:
    with pytest.raises(ValidationError, match="expected a character that is in no number, time or quote"):
        CsvWriter.Options.model_validate({"delimiter": delimiter})


def test_csv_null_in_the_only_column_is_refused_for_readers_pass_over_empty_lines() -> None:
    rows = pa.table({"k": ["x", "x"], "a": [1, None]})
    with pytest.raises(ConvertError, match="column 'a', the only one, has nulls; readers skip empty lines"):
        write_all(make(CsvWriter, where(rows.schema), partition_by=["k"]), rows)


NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (pa.array([2932897], pa.date32()), "before the year 1 or after 9999"),
        (pa.array([0, None, 86_400_000_000], pa.time64("us")), "of day before 00:00 or from 24:00 on"),
        (pa.array([86_400], pa.time32("s")), "of day before 00:00 or from 24:00 on"),
        (pa.array([-719163], pa.date32()), "before the year 1 or after 9999"),
        (pa.array([10**15], pa.timestamp("ms")), "before the year 1 or after 9999"),
        (pa.array([-(2**63) + 1], pa.timestamp("us", "UTC")), "before the year 1 or after 9999"),
        (pa.array([253_402_300_799], pa.timestamp("s", "+05:30")), "before the year 1 or after 9999"),
        (pa.array([2**63 - 1], pa.timestamp("ns", NEW_YORK)), "before the year 1 or after 9999"),
        (
            pa.array([-5_000_000_000], pa.timestamp("s", NEW_YORK)),
            f"offset in {NEW_YORK} has seconds; cast them to UTC",
        ),
        (pa.array([10**15, None], pa.timestamp("ms")).dictionary_encode(), "before the year 1 or after 9999"),
    ],
    ids=[
        "late date",
        "24:00",
        "24:00 s",
        "early date",
        "ms",
        "us",
        "local year 10000",
        "ns",
        "local mean",
        "dictionary",
    ],
)
def test_csv_refuses_times_that_it_would_write_as_others(values: pa.Array, problem: str) -> None:
    rows = pa.table({"id": range(len(values)), "t": values})
    with pytest.raises(
        ConvertError, match=f"writer 'csv': the format cannot hold the rows: column 't' has times .*{problem}"
    ):
        write_all(make(CsvWriter, where(rows.schema)), rows)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([-719162, 2932896, None], pa.date32()), ["0001-01-01", "9999-12-31", ""]),
        (
            pa.array([-62_135_596_800, 253_402_300_799, None], pa.timestamp("s", "UTC")),
            ["0001-01-01 00:00:00Z", "9999-12-31 23:59:59Z", ""],
        ),
        (
            pa.array([1_699_160_400, 1_699_164_000], pa.timestamp("s", NEW_YORK)),
            ["2023-11-05 01:00:00-0400", "2023-11-05 01:00:00-0500"],
        ),
        (pa.nulls(1, pa.timestamp("s", NEW_YORK)), [""]),
    ],
    ids=["dates", "instants", "when clocks go back", "nulls"],
)
def test_csv_writes_the_first_and_the_last_times(values: pa.Array, expected: list[str]) -> None:
    rows = pa.table({"id": range(len(values)), "t": values})
    context = where(rows.schema)
    (file,) = write_all(make(CsvWriter, context, header=False), rows)
    lines = context.storage.read(file.path).decode().splitlines()
    assert [line.partition(",")[2] for line in lines] == expected


def test_csv_options() -> None:
    rows = pa.table({"a": [1], "b": [2]})
    context = where(rows.schema)
    (file,) = write_all(make(CsvWriter, context, header=False, delimiter=";"), rows)
    assert context.storage.read(file.path) == b"1;2\n"


@pytest.mark.parametrize("cls", [CsvWriter, JsonLinesWriter])
def test_text_may_be_compressed(cls: type[Any]) -> None:
    context = where(ROWS.schema)
    (file,) = write_all(make(cls, context, compression="gzip"), ROWS)
    assert file.target.endswith(".gz")
    assert file.sha256 == hashlib.sha256(context.storage.read(file.path)).hexdigest()
    assert _read(context.storage, file).to_pylist() == ROWS.to_pylist()


BAD_BYTES = pa.array([b"a", b"\xff\xfe"])
BAD_TEXT = BAD_BYTES.view(pa.string())


@pytest.mark.parametrize("cls", [AvroWriter, CsvWriter, OrcWriter, ParquetWriter])
@pytest.mark.parametrize(
    "values",
    [BAD_TEXT, BAD_TEXT.dictionary_encode(), pa.StructArray.from_arrays([BAD_TEXT], ["text"])],
    ids=["plain", "dictionary", "nested"],
)
def test_text_that_no_reader_can_read_is_refused_with_its_column(cls: type[Any], values: pa.Array) -> None:
    if cls is CsvWriter and pa.types.is_struct(values.type):
        values = BAD_TEXT
    rows = pa.table({"id": [1, 2], "note": values})
    with pytest.raises(ConvertError, match="column 'note' holds a text that is not UTF-8"):
        write_all(make(cls, where(rows.schema)), rows)


def test_text_that_is_not_utf8_behind_the_end_of_a_slice_is_not_refused() -> None:
    rows = pa.table({"id": [1, 2], "note": BAD_TEXT}).slice(0, 1)
    context = where(rows.schema)
    (file,) = write_all(make(ParquetWriter, context), rows)
    assert _read(context.storage, file).to_pylist() == [{"id": 1, "note": "a"}]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_csv_names_the_column_of_bytes_that_are_no_text(kind: pa.DataType) -> None:
    rows = pa.table({"id": [1, 2], "picture": pa.array([b"ab", b"\xff\xfe"], kind)})
    with pytest.raises(ConvertError, match="column 'picture' holds bytes that are not UTF-8, and the format has only"):
        write_all(make(CsvWriter, where(rows.schema)), rows)


UNION = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
TENSOR = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]], pa.list_(pa.int32(), 2))
)


@pytest.mark.parametrize("values", [pa.array([[1]]), UNION, TENSOR], ids=["list", "union", "tensor"])
def test_csv_refuses_nested_values(values: pa.Array) -> None:
    rows = pa.table({"a": values})
    with pytest.raises(
        ConvertError,
        match=r"writer 'csv': column '\w+': the format has no type for .*; convert it to text with `to_json`",
    ):
        write_all(make(CsvWriter, where(rows.schema)), rows)


@pytest.mark.parametrize(
    ("options", "codec"), [({}, "SNAPPY"), ({"compression": "zstd"}, "ZSTD"), ({"compression": "none"}, "UNCOMPRESSED")]
)
def test_parquet_compression(options: dict[str, str], codec: str) -> None:
    context = where(ROWS.schema)
    (file,) = write_all(make(ParquetWriter, context, **options), ROWS)
    metadata = pq.ParquetFile(io.BytesIO(context.storage.read(file.path))).metadata
    assert metadata.row_group(0).column(0).compression == codec


def test_parquet_keeps_types_of_an_exotic_schema() -> None:
    schema = pa.schema(
        [
            ("t", pa.timestamp("us", "America/New_York")),
            ("d", pa.decimal128(20, 3)),
            ("l", pa.list_(pa.struct([("x", pa.int8())]))),
            ("b", pa.binary()),
            pa.field("n", pa.int16(), nullable=False),
        ]
    )
    rows = pa.Table.from_pylist([{"t": 0, "d": None, "l": [{"x": 1}], "b": b"\x00", "n": 1}], schema=schema)
    context = where(schema)
    (file,) = write_all(make(ParquetWriter, context), rows)
    assert _read(context.storage, file).schema.equals(schema)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"compression": "brotli"}, "compression"),
        ({"max_open_files": 0}, "max_open_files"),
        ({"partition_by": [{"granularity": "day"}]}, "column"),
        ({"partition_by": [{"column": "t", "granularity": "week"}]}, "granularity"),
        ({"partition_by": [{"column": "t", "timezone": "Mars/Olympus"}]}, "expected an IANA zone"),
        ({"row_groups": 1}, "row_groups"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ParquetWriter.Options.model_validate(options)


def nested(wrap: Callable[[pa.DataType], pa.DataType], levels: int) -> pa.DataType:
    kind: pa.DataType = pa.int64()
    for _ in range(levels):
        kind = wrap(kind)
    return kind


LISTS: Callable[[pa.DataType], pa.DataType] = pa.list_
STRUCTS: Callable[[pa.DataType], pa.DataType] = lambda kind: pa.struct([("a", kind)])  # noqa: E731
MAPS: Callable[[pa.DataType], pa.DataType] = lambda kind: pa.map_(pa.string(), kind)  # noqa: E731


@pytest.mark.parametrize(("wrap", "most"), [(LISTS, 49), (STRUCTS, 98), (MAPS, 49)], ids=["lists", "structs", "maps"])
def test_parquet_is_nested_as_deep_as_its_readers_open_and_no_deeper(
    wrap: Callable[[pa.DataType], pa.DataType], most: int
) -> None:
    rows = pa.table({"id": [1], "x": pa.nulls(1, nested(wrap, most))})
    context = where(rows.schema)
    (file,) = write_all(make(ParquetWriter, context), rows)
    assert pq.read_table(io.BytesIO(context.storage.read(file.path))).to_pylist() == rows.to_pylist()
    too_deep = pa.schema([("id", pa.int64()), ("x", nested(wrap, most + 1))])
    with pytest.raises(ConvertError, match=r"column 'x': the format needs 10[01] levels .* readers open at most 99"):
        make(ParquetWriter, where(too_deep))


@pytest.mark.parametrize("writer", [ParquetWriter, JsonLinesWriter])
@pytest.mark.parametrize("wrap", [lambda kind: kind, LISTS, MAPS, STRUCTS], ids=["itself", "lists", "maps", "structs"])
def test_struct_with_two_fields_of_one_name_is_refused_at_every_depth(
    writer: Any, wrap: Callable[[pa.DataType], pa.DataType]
) -> None:
    twice = pa.struct([("a", pa.int64()), ("b", pa.int64()), ("a", pa.string())])
    with pytest.raises(ConvertError, match="column 'x': a struct has more than one field named 'a'; rename or drop"):
        make(writer, where(pa.schema([("a", pa.int64()), ("x", wrap(wrap(twice)))])))


@pytest.mark.parametrize("wrap", [lambda kind: kind, LISTS, STRUCTS], ids=["itself", "lists", "structs"])
def test_parquet_refuses_lists_of_no_items_and_values_of_no_bytes(wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    for kind in (pa.list_(pa.int8(), 0), pa.binary(0)):
        with pytest.raises(ConvertError, match=r"column 'x': .* cannot hold .*\[0\].*; leave it out, or use"):
            make(ParquetWriter, where(pa.schema([("id", pa.int64()), ("x", wrap(kind))])))


@pytest.mark.parametrize("cls", [ParquetWriter, OrcWriter, AvroWriter, CsvWriter, JsonLinesWriter])
@pytest.mark.parametrize("number", [86_400_005, -1])
def test_milliseconds_of_a_day_are_not_cut_away(cls: type[Any], number: int) -> None:
    days = pa.array([number], pa.int64()).view(pa.date64())
    columns = [days] if cls is CsvWriter else [days, pa.ListArray.from_arrays([0, 1], days)]
    for values in columns:
        rows = pa.table({"id": [1], "d": values})
        with pytest.raises(ConvertError, match=f"{number}"):
            write_all(make(cls, where(rows.schema)), rows)
    rows = pa.table({"id": [1], "d": pa.array([-86_400_000], pa.int64()).view(pa.date64())})
    context = where(rows.schema)
    (file,) = write_all(make(cls, context), rows)
    assert str(_read(context.storage, file)["d"][0].as_py()).startswith("1969-12-31")


@pytest.mark.parametrize("wrap", [LISTS, STRUCTS], ids=["lists", "structs"])
def test_avro_is_nested_as_deep_as_its_readers_open_and_no_deeper(wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    rows = pa.table({"id": [1], "x": pa.nulls(1, nested(wrap, 99))})
    context = where(rows.schema)
    (file,) = write_all(make(AvroWriter, context), rows)
    assert list(avro_reader(io.BytesIO(context.storage.read(file.path)))) == [{"id": 1, "x": None}]
    with pytest.raises(ConvertError, match=r"column 'x': the format needs 1501 levels .* readers open at most 100"):
        make(AvroWriter, where(pa.schema([("id", pa.int64()), ("x", nested(wrap, 1500))])))


@pytest.mark.parametrize("wrap", [LISTS, STRUCTS, MAPS], ids=["lists", "structs", "maps"])
def test_orc_is_read_back_however_deep(wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    rows = pa.table({"id": [1], "x": pa.nulls(1, nested(wrap, 300))})
    context = where(rows.schema)
    (file,) = write_all(make(OrcWriter, context), rows)
    assert orc.read_table(io.BytesIO(context.storage.read(file.path))).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(("wrap", "most"), [(LISTS, 12), (STRUCTS, 30), (MAPS, 12)], ids=["lists", "structs", "maps"])
def test_json_is_nested_as_deep_as_memory_lets_and_no_deeper(
    wrap: Callable[[pa.DataType], pa.DataType], most: int
) -> None:
    rows = pa.table({"id": [1], "x": pa.nulls(1, nested(wrap, most))})
    context = where(rows.schema)
    (file,) = write_all(make(JsonLinesWriter, context), rows)
    assert json.loads(context.storage.read(file.path)) == {"id": 1, "x": None}
    rows = pa.table({"id": [1], "x": pa.nulls(1, nested(wrap, most + 1))})
    with pytest.raises(
        ConvertError, match=f"column 'x': .* in {most + 1} levels; JSON is written with at most 12 lists"
    ):
        write_all(make(JsonLinesWriter, where(rows.schema)), rows)
