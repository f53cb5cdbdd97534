from __future__ import annotations

import bz2
import gzip
import os
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.constructs.formats.csv import CsvOptions
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.errors import ExtractError, InvalidSpecError
from tests.unit.constructs.formats.reading import extractor, put, read


def read_csv(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    return read(root, *names, block_bytes=block_bytes, type="csv", **options)


def test_every_column_is_text_unless_declared(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"year,flight,tail,when,cost\n2013,0012,N1,2013-01-01T10:00:00Z,1.50\n2013,,NA,,\n")
    table = read_csv(
        tmp_path,
        "day.csv",
        columns={"year": "int32", "when": "timestamp", "cost": "decimal(6,2)"},
        null_values=["", "NA"],
    )
    assert table.schema.types[:5] == [
        pa.int32(), pa.string(), pa.string(), pa.timestamp("us", "UTC"), pa.decimal128(6, 2)
    ]  # fmt: skip
    assert table.column("flight").to_pylist() == ["0012", None]
    assert table.column("tail").to_pylist() == ["N1", None]
    assert table.column("when").to_pylist() == [datetime(2013, 1, 1, 10, tzinfo=UTC), None]
    assert table.column("cost").to_pylist() == [Decimal("1.50"), None]


def test_rows_are_numbered_from_one_in_each_file_across_blocks(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"a\n" + b"x\n" * 50_000, two_csv=b"a\n1\n\n2\n")
    table = read_csv(tmp_path, "one.csv", "two.csv", block_bytes=1 << 16)
    assert table.column("_row").to_pylist() == [*range(1, 50_001), 1, 2]
    assert table.column("_file").to_pylist()[-3:] == ["one.csv", "two.csv", "two.csv"]
    reader = extractor(tmp_path, "one.csv", type="csv", block_bytes=1 << 16)
    assert max(chunk.batch.num_rows for chunk in reader.chunks()) < 40_000
    assert reader.bytes_read == (tmp_path / "one.csv").stat().st_size


def test_quoted_values_hold_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b'a,b\n"x, ""y""\nz",""\n')
    assert read_csv(tmp_path, "day.csv").select(["a", "b"]).to_pylist() == [{"a": 'x, "y"\nz', "b": ""}]


@pytest.mark.parametrize("block_bytes", range(16, 36))
@pytest.mark.parametrize("options", [{}, {"encoding": "utf-16-le"}, {"escape": "/"}], ids=str)
def test_line_feed_of_a_value_is_kept_wherever_a_block_ends(
    tmp_path: Path, options: dict[str, Any], block_bytes: int
) -> None:
    text = 'a,b\r\n1,"x\r\ny"\r\n2,"\r\n"\r\n3,"\r"\r'
    put(tmp_path, day_csv=text.encode(options.get("encoding", "utf-8")))
    table = read_csv(tmp_path, "day.csv", block_bytes=block_bytes, **options)
    assert table.column("b").to_pylist() == ["x\r\ny", "\r\n", "\r"]


@pytest.mark.parametrize("block_bytes", range(16, 36))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_line_end_behind_an_escape_is_read_alike_wherever_a_block_ends(
    tmp_path: Path, encoding: str, block_bytes: int
) -> None:
    (tmp_path / "day.csv").write_bytes(b"a\r\n123456789012345678\\\r\n1234567\r\n2\\\\\r\n".decode().encode(encoding))
    options = {"quote": None, "escape": "\\", "encoding": encoding, "columns": {"a": "string"}}
    table = read_csv(tmp_path, "day.csv", block_bytes=block_bytes, **options)
    assert table["a"].to_pylist() == ["123456789012345678\r", "1234567", "2\\"]


@pytest.mark.parametrize("block_bytes", [24, 1 << 20])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b'a,b\n1,2\n3,"x\n5,6\n', {}),
        (b'a,b\n1,2\n3,"x', {}),
        (b'a,b\r\n1,2\r\n3,"x\r\n', {}),
        (b"1,2\n3,'x\n", {"quote": "'", "header": False, "column_names": ["a", "b"]}),
        ('a,b\n1,2\n3,"x\n5,6\n'.encode("utf-16"), {"encoding": "utf-16"}),
    ],
    ids=["rows behind it", "end of file", "crlf", "no header", "utf-16"],
)
def test_quote_that_nobody_closes_swallows_no_rows(
    tmp_path: Path, data: bytes, options: dict[str, Any], block_bytes: int
) -> None:
    put(tmp_path, day_csv=data)
    with pytest.raises(ExtractError, match="row 2: a quote is opened and never closed"):
        read_csv(tmp_path, "day.csv", block_bytes=block_bytes, **options)


@pytest.mark.parametrize("block_bytes", [24, 1 << 20])
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ('pipe,5"\ntube,"\nhose,3\n', {}),
        ('pipe,5"\ntube,"\n', {}),
        ('"pipe\\\\",5\n1,"\nhose,3', {"escape": "\\"}),
        ('pipe,\\""\ntube,"', {"escape": "\\"}),
        ('pipe\\,",5\ntube,"\nhose,3', {"escape": "\\"}),
    ],
    ids=["a mark alone", "at the end", "escaped escape", "escaped quote", "escaped delimiter"],
)
def test_quote_that_nobody_closes_behind_one_inside_of_a_value_swallows_no_rows(
    tmp_path: Path, rows: str, options: dict[str, Any], block_bytes: int
) -> None:
    put(tmp_path, day_csv=f"item,size\n{rows}".encode())
    with pytest.raises(ExtractError, match="row 2: a quote is opened and never closed"):
        read_csv(tmp_path, "day.csv", block_bytes=block_bytes, **options)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_empty_last_value_behind_a_quoted_one_is_null_whether_its_line_ends_or_not(tmp_path: Path, end: str) -> None:
    put(tmp_path, day_csv=f'a,b,c\n"1","",2\n"x","",{end}'.encode())
    table = read_csv(tmp_path, "day.csv", columns={"a": "string", "b": "string", "c": "int64"})
    assert table.select(["b", "c"]).to_pylist() == [{"b": "", "c": 2}, {"b": "", "c": None}]


def test_quote_that_nobody_closes_in_the_header_loses_no_rows(tmp_path: Path) -> None:
    for header in ('"a,b', 'a,"b'):
        put(tmp_path, day_csv=f"{header}\n1,2\n3,4\n".encode())
        with pytest.raises(ExtractError, match="its header: a quote is opened and never closed"):
            read_csv(tmp_path, "day.csv")
    put(tmp_path, day_csv=b'"a","b""\n"\n')
    assert read_csv(tmp_path, "day.csv").num_rows == 0


def test_no_batch_with_the_value_behind_an_unclosed_quote_is_passed_on(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b'a,b\n1,2\n3,"4\n5,6\n')
    with (
        closing(extractor(tmp_path, "day.csv", type="csv")) as reader,
        pytest.raises(ExtractError, match="row 2: a quote is opened and never closed"),
    ):
        next(iter(reader.chunks()))


@pytest.mark.parametrize("block_bytes", range(14, 40, 3))
@pytest.mark.parametrize(
    "value", [b'"x"y', b'"x"y"', b'"x" ', b'"x""z"y', b'"x"""y', b'""y', b'"x\n"y', b'"x"\\y'], ids=bytes.decode
)
@pytest.mark.parametrize("after", [b"", b'\n"""5,6""",5" pipe\n'], ids=["last", "others behind it"])
def test_value_that_goes_on_behind_its_quote_is_refused_with_its_row(
    tmp_path: Path, value: bytes, after: bytes, block_bytes: int
) -> None:
    put(tmp_path, day_csv=b'a,b\n1,2\n"""3"" of 4",""\n9,' + value + after)
    with pytest.raises(ExtractError, match=r"row 3: a quoted value continues after its closing quote"):
        read_csv(tmp_path, "day.csv", block_bytes=max(block_bytes, 30))
    put(tmp_path, head_csv=b'a,"b"c\n1,2\n')
    with pytest.raises(ExtractError, match=r"head\.csv: its header: a quoted value continues"):
        read_csv(tmp_path, "head.csv")


@pytest.mark.parametrize("block_bytes", range(24, 40))
def test_quotes_inside_of_values_are_kept(tmp_path: Path, block_bytes: int) -> None:
    values = ['a""b', '5" pipe', '5"', "x", '"q" z', '{"k": "v"}', '","', "", '"']
    lines = ['a""b', '5" pipe', '5"', "x", '"""q"" z"', '"{""k"": ""v""}"', '""","""', '""', '""""']
    put(tmp_path, day_csv="\n".join(["n,a", *(f"1,{line}" for line in lines)]).encode())
    assert read_csv(tmp_path, "day.csv", block_bytes=block_bytes).column("a").to_pylist() == values
    put(tmp_path, esc_csv=b'n,a\n1,"x \\"y\\" z"\n')
    assert read_csv(tmp_path, "esc.csv", escape="\\").column("a").to_pylist() == ['x "y" z']


def test_quoted_nulls_are_texts_unless_asked_for(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b'"a","n"\n"","1"\n"NA",""\n,\n"x","NA"\n')
    options: dict[str, Any] = {"null_values": ["", "NA"]}
    assert read_csv(tmp_path, "day.csv", **options).column("a").to_pylist() == ["", "NA", None, "x"]
    columns = {"n": "int64"}
    with pytest.raises(ExtractError, match=r"column 'n': '' does not fit int64; .*`quoted_nulls: true`"):
        read_csv(tmp_path, "day.csv", columns=columns, **options)
    table = read_csv(tmp_path, "day.csv", columns=columns, quoted_nulls=True, **options)
    assert table.select(["a", "n"]).to_pylist() == [
        {"a": None, "n": 1}, {"a": None, "n": None}, {"a": None, "n": None}, {"a": "x", "n": None}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "signs", [{"escape": '"'}, {"delimiter": "\\", "escape": "\\"}, {"quote": ","}, {"delimiter": "\n"}]
)
def test_signs_that_are_equal_or_end_lines_are_refused(signs: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="must be different characters, and no line breaks"):
        CsvOptions.model_validate(signs)
    with pytest.raises(ValidationError, match="must be different characters, and no line breaks"):
        CsvOptions.model_validate({"dialects": {"a": signs}})


@pytest.mark.parametrize("dialect", [{"escape": "\\"}, {"dialects": {"shop/*": {"escape": "\\"}}}], ids=["all", "some"])
def test_null_with_the_escape_is_refused_because_values_lose_theirs_before(
    tmp_path: Path, dialect: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError, match=r"`null_values` has .* would be read as 'N'; leave `escape` out"):
        CsvOptions.model_validate({"null_values": ["", "\\N"], **dialect})
    put(tmp_path, day_csv=b"a,b\n1,\\N\n2,\\\\N\n3,N\n")
    table = read_csv(tmp_path, "day.csv", null_values=["\\N"])
    assert table.column("b").to_pylist() == [None, r"\\N", "N"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [b'"x"', b"x", b'"x\n"', b'"x""y"', b'""', b'x"'])
@pytest.mark.parametrize("block_bytes", range(14, 22))
def test_file_that_is_sound_may_end_in_any_way(tmp_path: Path, last: bytes, end: bytes, block_bytes: int) -> None:
    put(tmp_path, day_csv=b"a,b\n1,2\n3," + last + end)
    assert read_csv(tmp_path, "day.csv", block_bytes=block_bytes).column("a").to_pylist() == ["1", "3"]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"a;b\n1;'x;y'\n", {"delimiter": ";", "quote": "'"}),
        (b"a\tb\n1\tx;y\n", {"delimiter": "\t", "quote": None}),
        (b"a,b\n1,x;y\n", {}),
        (b"\xef\xbb\xbfa,b\r\n1,x;y\r\n", {}),
        (b"\xef\xbb\xbfa,b\r\n1,x;y\r\n", {"encoding": "UTF_8"}),
        (b'\n\n"a",b\n1,x;y', {}),
        (b"a,b\n1,x\\;y\n", {"escape": "\\"}),
        (b"1,x;y\n", {"header": False, "column_names": ["a", "b"]}),
        ("a,b\n1,x;y\n".encode("utf-16"), {"encoding": "utf-16"}),
    ],
    ids=[
        "semicolon",
        "tab",
        "plain",
        "signature-and-crlf",
        "another-name",
        "blank-lines",
        "escape",
        "no-header",
        "utf-16",
    ],
)
def test_dialects_read_the_same_row(tmp_path: Path, data: bytes, options: dict[str, Any]) -> None:
    put(tmp_path, day_csv=data)
    assert read_csv(tmp_path, "day.csv", **options).select(["a", "b"]).to_pylist() == [{"a": "1", "b": "x;y"}]


def test_latin_1_is_read_where_it_is_declared_and_refused_where_not(tmp_path: Path) -> None:
    put(tmp_path, day_csv="a,b\n1,x\n2,Zürich\n".encode("latin-1"))
    assert read_csv(tmp_path, "day.csv", encoding="latin-1").column("b").to_pylist() == ["x", "Zürich"]
    with pytest.raises(ExtractError, match=r"file day\.csv, row 2: column 'b': .*invalid UTF8.*set `encoding`"):
        read_csv(tmp_path, "day.csv")


@pytest.mark.parametrize(
    ("name", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", lambda data: pa.compress(data, "zstd", asbytes=True))],
)
def test_packed_files_are_unpacked_by_their_ending(tmp_path: Path, name: str, pack: Any) -> None:
    data = b"a,b\n" + b"1,2\n" * 9
    (tmp_path / f"day.csv.{name}").write_bytes(pack(data))
    reader = extractor(tmp_path, f"day.csv.{name}", type="csv")
    assert sum(chunk.batch.num_rows for chunk in reader.chunks()) == 9
    assert reader.bytes_read == (tmp_path / f"day.csv.{name}").stat().st_size


def test_truncated_packed_file_is_an_error(tmp_path: Path) -> None:
    data = gzip.compress(os.urandom(50_000).hex().encode())
    put(tmp_path, day_gz=b"")
    (tmp_path / "day.csv.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ExtractError, match=r"file day\.csv\.gz"):
        read_csv(tmp_path, "day.csv.gz", header=False, column_names=["a"])


@pytest.mark.parametrize("block_bytes", [1 << 16, 1 << 20])
@pytest.mark.parametrize(("row", "got"), [(b"1", 1), (b"1,2,3", 3)], ids=["short", "long"])
def test_row_of_another_length_is_named_with_its_number(tmp_path: Path, block_bytes: int, row: bytes, got: int) -> None:
    put(tmp_path, day_csv=b"a,b\n" + b'"x\ny",2\n' * 30_000 + row + b"\n" + b"1,2\n" * 9)
    with pytest.raises(ExtractError) as caught:
        read_csv(tmp_path, "day.csv", block_bytes=block_bytes)
    assert (caught.value.dataset_urn, caught.value.file, caught.value.row) == ("AA", "day.csv", 30_001)
    assert caught.value.problem == f"expected 2 values, got {got}: {row.decode()!r}"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyarrow's own, of such a row
def test_row_of_another_length_that_is_no_text_in_the_encoding_is_named_too(tmp_path: Path) -> None:
    put(tmp_path, day_csv="a,b\n1,2\ncafé,x,y\n".encode("cp1252"))
    with pytest.raises(ExtractError, match=r"got 3: 'caf.+,x,y', which is no utf-8 either; set `encoding`") as caught:
        read_csv(tmp_path, "day.csv")
    assert caught.value.row == 2


def test_row_of_another_length_without_header_is_numbered_from_one(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"1,2\n3\n")
    with pytest.raises(ExtractError, match="row 2: expected 2 values, got 1"):
        read_csv(tmp_path, "day.csv", header=False, column_names=["a", "b"])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int32", b"12", b"1.5"),
        ("int8", b"127", b"128"),
        ("int32", b" 7 ", b"seven"),
        ("float64", b"1e3", b"one"),
        ("date", b"2013-01-01", b"01.01.2013"),
        ("timestamp", b"2013-01-01T00:00:00Z", b"noon"),
        ("bool", b"true", b"maybe"),
        ("decimal(4,2)", b"12.34", b"123.45"),
    ],
)
def test_value_that_does_not_fit_its_type_is_named_with_its_number(
    tmp_path: Path, kind: str, good: bytes, bad: bytes
) -> None:
    put(tmp_path, day_csv=b"a,b\n" + b"x," + good + b"\n" + b"x,\n" * 50_000 + b"x," + bad + b"\n" + b"x,\n" * 9)
    with pytest.raises(ExtractError) as caught:
        read_csv(tmp_path, "day.csv", columns={"b": kind}, block_bytes=1 << 16)
    assert caught.value.row == 50_002
    assert "column 'b'" in caught.value.problem
    assert bad.decode() in caught.value.problem
    assert "Row #" not in caught.value.problem


@pytest.mark.parametrize(("kind", "large"), [("float32", "-1e39"), ("float64", " 1e400 ")])
def test_number_too_large_for_a_float_is_not_made_infinite(tmp_path: Path, kind: str, large: str) -> None:
    words = b"a,b\nx,inf\nx,-Infinity\nx,\nx,1.5\n"
    put(tmp_path, sound_csv=words, day_csv=words + b'"x\nx",1\n' * 50_000 + f"x,{large}\n".encode())
    found = read_csv(tmp_path, "sound.csv", columns={"b": kind}).column("b").to_pylist()
    assert found == [float("inf"), -float("inf"), None, 1.5]
    with pytest.raises(ExtractError, match=rf"row 50005: column 'b': {large} is too large for (float|double)"):
        read_csv(tmp_path, "day.csv", columns={"b": kind}, block_bytes=1 << 16)


def test_number_with_more_digits_than_its_decimal_is_not_altered(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b\nx,-999.99\nx,\nx,0.5\n" + b"x,1\n" * 50_000 + b"x,99999\n")
    with pytest.raises(ExtractError, match=r"row 50004: column 'b': '99999' does not fit decimal128\(5, 2\)"):
        read_csv(tmp_path, "day.csv", columns={"b": "decimal(5,2)"}, block_bytes=1 << 16)


def test_hexadecimal_number_wraps_around_in_no_type(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b\n0x7F, 0xFF\n-1,-2\n0x80,-3\n")
    columns = {"b": "int16"}
    with pytest.raises(ExtractError, match="row 3: column 'a': '0x80' does not fit int8"):
        read_csv(tmp_path, "day.csv", columns={**columns, "a": "int8"})
    table = read_csv(tmp_path, "day.csv", columns={**columns, "a": "int16"})
    assert [table.column(name).to_pylist() for name in "ab"] == [[127, -1, 128], [255, -2, -3]]


@pytest.mark.parametrize(
    ("kind", "text"), [("decimal(38,32)", "9" * 26), ("decimal(10,2)", "7e-45"), ("decimal(38,0)", str(2**128))]
)
def test_no_decimal_wraps_around(tmp_path: Path, kind: str, text: str) -> None:
    put(tmp_path, day_csv=f"a,b\nx, +1e3 \nx,{text}\n".encode())
    with pytest.raises(ExtractError, match=rf"row 2: column 'b': '{text}' does not fit"):
        read_csv(tmp_path, "day.csv", columns={"b": kind})


def test_declared_column_that_the_header_lacks_is_named_with_the_header(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b\n1,2\n")
    with pytest.raises(ExtractError) as caught:
        read_csv(tmp_path, "day.csv", columns={"c": "int32"})
    assert caught.value.problem == "expected the column(s) c (declared in `columns`), the file has a, b."


def test_include_reads_fewer_columns_in_the_given_order(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"a,b,c\n1,2,3\n", two_csv=b"d,c,b,a\n4,3,2,1\n")
    table = read_csv(tmp_path, "one.csv", "two.csv", include=["c", "a"], columns={"a": "int8"})
    assert table.select([0, 1]).to_pylist() == [{"c": "3", "a": 1}] * 2
    with pytest.raises(ExtractError, match="named in `include`"):
        read_csv(tmp_path, "one.csv", include=["z"])


def test_columns_are_found_by_name_in_each_file(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"a,b\n1,2\n", two_csv=b"b,a\n4,3\n")
    assert read_csv(tmp_path, "one.csv", "two.csv").select(["a", "b"]).to_pylist() == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (
            b"a\n1\n",
            r"expected the column\(s\) b \(as in the first file .*\), the file has a; set `files_per_work_unit: 1`",
        ),
        (b"a,b,c\n1,2,3\n", r"has the column\(s\) c, .*`include`.*`files_per_work_unit: 1`"),
    ],
    ids=["one-less", "one-more"],
)
def test_later_file_with_other_columns_is_refused_not_cut(tmp_path: Path, second: bytes, problem: str) -> None:
    put(tmp_path, one_csv=b"a,b\n1,2\n", two_csv=second)
    with pytest.raises(ExtractError, match=rf"file two\.csv: {problem}"):
        read_csv(tmp_path, "one.csv", "two.csv")


@pytest.mark.parametrize("data", [b"a,b", b"a,b\n", b"a,b\n\n\n"])
def test_file_with_nothing_but_a_header_has_no_rows(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, day_csv=data, next_csv=b"a,b\n1,2\n")
    assert read_csv(tmp_path, "day.csv", "next.csv").num_rows == 1
    empty = read_csv(tmp_path, "day.csv", columns={"a": "date"})
    assert (empty.num_rows, empty.schema.field("a").type) == (0, pa.date32())


@pytest.mark.parametrize("options", [{}, {"header": False, "column_names": ["a"]}])
def test_empty_file_is_an_error_that_says_so(tmp_path: Path, options: dict[str, Any]) -> None:
    put(tmp_path, day_csv=b"")
    with pytest.raises(ExtractError, match="is empty; a CSV file has at least its header"):
        read_csv(tmp_path, "day.csv", **options)


def test_columns_without_a_name_are_told_by_their_numbers(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"id,,\n1,2,3\n")
    with pytest.raises(ExtractError, match="gives no name to the columns 2, 3 of 3; name each column"):
        read_csv(tmp_path, "day.csv")


@pytest.mark.parametrize("content", [bytes(1000), b"id,v\0\0\n1,2\n", "id,v\n1,2\n".encode("utf-16-le")])
def test_header_with_nul_is_refused(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, day_csv=content)
    with pytest.raises(ExtractError, match="its header holds NUL"):
        read(tmp_path, "day.csv", type="csv")


def test_column_named_twice_is_refused(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b,a\n1,2,3\n")
    with pytest.raises(ExtractError, match=r"header repeats the column\(s\) a\."):
        read_csv(tmp_path, "day.csv")


def test_first_row_of_values_is_no_header(tmp_path: Path) -> None:
    put(tmp_path, day_csv=",".join([*map(str, range(14)), *map(str, range(14))]).encode() + b"\n")
    says = r"repeats the column\(s\) 0, 1, [^a]*, 7 and 2 more. Are these values\? Then set `header: false`"
    with pytest.raises(ExtractError, match=says):
        read_csv(tmp_path, "day.csv")


@pytest.mark.parametrize("byte", [b"\0", b"\n"])
def test_header_that_does_not_end_is_not_read_into_memory(tmp_path: Path, byte: bytes) -> None:
    """Some file systems leave zeros where a file was cut off by a crash."""
    put(tmp_path, day_csv=byte * (9 << 20))
    with pytest.raises(ExtractError, match=r"day.csv: has no header in its first 4,194,304 bytes: its first line is"):
        read_csv(tmp_path, "day.csv")
    with pytest.raises(ExtractError, match=r"day.csv: has no header in its first 1,048,576 bytes"):
        read_csv(tmp_path, "day.csv", block_bytes=100)


def test_many_empty_lines_after_the_header_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"id\n" + b"\n" * (3 << 19) + b"7\n")
    assert read_csv(tmp_path, "day.csv", block_bytes=1 << 16)["id"].to_pylist() == ["7"]
    put(tmp_path, day_csv=b"id\n" + b"\n" * (3 << 19))
    assert read_csv(tmp_path, "day.csv", block_bytes=1 << 16).num_rows == 0


def test_messages_name_few_of_many_columns(tmp_path: Path) -> None:
    put(tmp_path, one_csv=b"id\n1\n", two_csv=",".join(f"c{number}" for number in range(20_000)).encode() + b"\n")
    with pytest.raises(ExtractError, match=r"the file has c0, c1, [^a]*, c11 and 19,988 more; set"):
        read_csv(tmp_path, "one.csv", "two.csv")
    put(tmp_path, two_csv=b"x" * 100_000 + b"\n")
    with pytest.raises(ExtractError, match=r"the file has x{80}…; set"):
        read_csv(tmp_path, "one.csv", "two.csv")


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"PAR1\xff\xfe\x00\x80" * 99)
    with pytest.raises(
        ExtractError, match=r"its first line is no text in utf-8; it looks like Parquet \(`format: parquet`\)"
    ):
        read_csv(tmp_path, "day.csv")
    put(tmp_path, day_csv=b"\xbc\xbd" * 99)
    with pytest.raises(ExtractError, match="its first line is no text in utf-8; set `encoding`, if it is a text"):
        read_csv(tmp_path, "day.csv")


def test_row_longer_than_a_block_says_how_to_go_on(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a,b\n1,2\n" + b'"' + b"x" * 200_000 + b'",2\n1,2\n')
    with pytest.raises(ExtractError, match=r"execution\.block_bytes"):
        read_csv(tmp_path, "day.csv", block_bytes=1 << 16)
    assert read_csv(tmp_path, "day.csv").num_rows == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": ";;"}, "at most 1"),
        ({"encoding": "utf-99"}, "no encoding"),
        ({"header": False}, "either a header or `column_names`"),
        ({"column_names": ["a"]}, "either a header or `column_names`"),
        ({"include": ["a"], "columns": {"b": "int8"}}, "`columns` declares b, which `include` leaves out"),
        ({"columns": {"b": "integer"}}, "unknown column type 'integer'"),
        ({"delimiter": "§"}, "expected a character of ASCII, got '§'"),
    ],
)
def test_bad_option_is_refused_with_a_reason(options: dict[str, Any], problem: str) -> None:
    ((_, message),) = registry.check(ConstructKind.FORMAT, "csv", options)
    assert problem in message


@pytest.mark.parametrize("size", [3, 100_000], ids=["small", "many blocks"])
def test_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    put(tmp_path, day_csv=b"a\n" + b"x\n" * size)
    opened: list[str] = []
    open_raw = InputFile.open_raw

    def open_and_note(file: InputFile) -> pa.NativeFile:
        opened.append(file.path)
        return open_raw(file)

    monkeypatch.setattr(InputFile, "open_raw", open_and_note)
    assert read_csv(tmp_path, "day.csv", block_bytes=1 << 16).column("a").to_pylist() == ["x"] * size
    assert opened == [str(tmp_path / "day.csv")]


def test_dates_are_dates(tmp_path: Path) -> None:
    put(tmp_path, day_csv=b"a\n2013-02-28\n")
    assert read_csv(tmp_path, "day.csv", columns={"a": "date"}).column("a").to_pylist() == [date(2013, 2, 28)]


@pytest.mark.parametrize("delimiter", [";", ","])
def test_line_of_excel_that_tells_the_separator_is_no_header(tmp_path: Path, delimiter: str) -> None:
    put(tmp_path, day_csv=b"\xef\xbb\xbfsep=;\r\nts;value\r\n1;2\r\n")
    with pytest.raises(ExtractError, match=r"day\.csv: begins with Excel's line `sep=`, which is no header; remove"):
        read_csv(tmp_path, "day.csv", delimiter=delimiter)


GERMAN: dict[str, Any] = {"delimiter": ";", "comment": "#", "decimal_point": ",", "date_format": "%d.%m.%Y"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_numbers_and_days_are_read_as_they_are_written(tmp_path: Path, encoding: str) -> None:
    text = "#\n# größe\npreis;menge;tag;um;n\n1,50;2,5;31.01.2024;01.02.2024 10:00;7\n;;2024-02-01;;\n"
    put(tmp_path, a_csv=text.encode(encoding))
    columns = {"preis": "decimal(9,2)", "menge": "float64", "tag": "date", "um": "timestamp_ntz", "n": "int64"}
    options = GERMAN | {"encoding": encoding.removesuffix("-sig")}
    table = read_csv(tmp_path, "a.csv", columns=columns, **options)
    assert table.select([*columns]).to_pylist() == [
        {"preis": Decimal("1.50"), "menge": 2.5, "tag": date(2024, 1, 31), "um": datetime(2024, 2, 1, 10), "n": 7},
        {"preis": None, "menge": None, "tag": date(2024, 2, 1), "um": None, "n": None},
    ]


@pytest.mark.parametrize(
    ("columns", "text", "said"),
    [
        ({"x": "date"}, "x\n31.01.2024\n31.02.2024\n", "row 2: column 'x': '31.02.2024' does not fit date32.*%d.%m.%Y"),
        ({"x": "float64"}, "x\n1.5\n", "row 1: column 'x': .*invalid value '1.5'"),
        ({}, "#\n", "is empty; a CSV file has at least its header"),
    ],
)
def test_values_of_another_spelling_are_named_as_they_are(
    tmp_path: Path, columns: dict[str, str], text: str, said: str
) -> None:
    put(tmp_path, a_csv=text.encode())
    with pytest.raises(ExtractError, match=said):
        read_csv(tmp_path, "a.csv", columns=columns, **GERMAN)


def test_lines_that_begin_with_the_character_behind_the_header_are_rows(tmp_path: Path) -> None:
    put(tmp_path, a_csv=b"# x\nid\n#1\n2\n")
    assert read_csv(tmp_path, "a.csv", comment="#")["id"].to_pylist() == ["#1", "2"]


@pytest.mark.parametrize("form", ["%d.%m", "%d.%m.%y", "%d.%m.%Y %H", "%d.%d.%m.%Y", "%dT%m.%Y"])
def test_forms_of_days_that_are_none_are_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(InvalidSpecError, match="expected %d, %m and %Y once each"):
        extractor(tmp_path, type="csv", date_format=form)
