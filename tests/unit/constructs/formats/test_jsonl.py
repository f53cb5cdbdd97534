from __future__ import annotations

import gzip
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import InputFile
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ExtractError, SpecError
from tests.unit.constructs.formats.reading import extractor, file_format, put, read


def read_lines(root: Path, *names: str, block_bytes: int = 1 << 20, **options: Any) -> pa.Table:
    return read(root, *names, block_bytes=block_bytes, type="jsonl", **options)


def test_schema_is_settled_by_the_first_file_and_times_stay_text(tmp_path: Path) -> None:
    put(
        tmp_path,
        one_jsonl=b'{"id": 1, "at": "2013-01-01 00:00:00", "who": {"at": "2013-01-01"}, "no": null, '
        b'"of": ["2013-01-01"]}\n',
        two_jsonl=b'{"id": 2}\n\n{"at": "later", "id": 3}',
    )
    table = read_lines(tmp_path, "one.jsonl", "two.jsonl")
    assert table.schema.types[:5] == [
        pa.int64(), pa.string(), pa.struct([("at", pa.string())]), pa.string(), pa.list_(pa.string())
    ]  # fmt: skip
    assert table.select(["id", "at", "_row"]).to_pylist() == [
        {"id": 1, "at": "2013-01-01 00:00:00", "_row": 1},
        {"id": 2, "at": None, "_row": 1},
        {"id": 3, "at": "later", "_row": 2},
    ]


def test_undeclared_fields_are_kept_with_the_types_of_the_first_rows(tmp_path: Path) -> None:
    put(
        tmp_path,
        one_jsonl=b'{"id": 1, "at": "2013-01-01 10:00:00", "x": {"on": "2013-01-01"}, "day": "2013-01-02"}\n'
        b'{"id": 2}\n',
        two_jsonl=b'{"n": 9, "id": 3}\n',
        three_jsonl=b'{"day": "2013-01-03", "id": 4}\n',
    )
    declared = {"at": "timestamp", "id": "int32", "n": "string", "day": "date"}
    with pytest.raises(ExtractError, match=r"two\.jsonl, row 1: field 'n' is of the type number, expected string"):
        read_lines(tmp_path, "one.jsonl", "two.jsonl", columns=declared)
    table = read_lines(tmp_path, "one.jsonl", "three.jsonl", columns=declared)
    assert table.column_names[:5] == ["at", "id", "n", "day", "x"]
    assert table.schema.types[:5] == [
        pa.timestamp("us", "UTC"), pa.int32(), pa.string(), pa.date32(), pa.struct([("on", pa.string())])
    ]  # fmt: skip
    assert table.column("at").to_pylist() == [datetime(2013, 1, 1, 10, tzinfo=UTC), None, None]
    assert table.column("day").to_pylist() == [date(2013, 1, 2), None, date(2013, 1, 3)]
    assert table.column("x").to_pylist() == [{"on": "2013-01-01"}, None, None]


def test_included_fields_are_read_in_their_order_and_no_others(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"id": 1, "at": "2013-01-01 10:00:00", "x": 1}\n{"x": "y", "id": 2}\n')
    table = read_lines(tmp_path, "day.jsonl", columns={"at": "timestamp"}, include=["id", "at"])
    assert table.select([0, 1]).to_pylist() == [
        {"id": 1, "at": datetime(2013, 1, 1, 10, tzinfo=UTC)},
        {"id": 2, "at": None},
    ]
    with pytest.raises(ExtractError, match=r"first rows lack the field.s. y, named in `include`; declare their types"):
        read_lines(tmp_path, "day.jsonl", include=["id", "y"])
    table = read_lines(tmp_path, "day.jsonl", columns={"y": "bool"}, include=["y"])
    assert table.select([0]).to_pylist() == [{"y": None}, {"y": None}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"include": ["id"], "columns": {"at": "date"}}, "declares at, which `include` leaves out"),
        ({"include": ["id", "id"]}, "names id more than once"),
    ],
)
def test_include_that_does_not_fit_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        file_format({"type": "jsonl", **options}, ConstructContext(job="flights", base_dir=str(tmp_path)))


def test_undeclared_whole_number_beyond_64_bits_is_refused_beside_declared_columns(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"id": 12345678901234567890, "x": 12345678901234567890}\n')
    with pytest.raises(ExtractError, match="row 1: x is 12345678901234567890"):
        read_lines(tmp_path, "day.jsonl", columns={"id": "float64"})


def test_late_field_is_named_with_its_place(tmp_path: Path) -> None:
    put(
        tmp_path,
        day_jsonl=b'{"id": 1, "who": {"a": 1}}\n' * 9 + b'{"id": 2, "long": "%s", "who": {"b": 1}}\n' % (b"x" * 99),
    )
    with pytest.raises(
        ExtractError, match=r"row 10: unexpected field\(s\) long, who\.b, which the first rows lack: .*include"
    ):
        read_lines(tmp_path, "day.jsonl", block_bytes=200, columns={"id": "int64"})


@pytest.mark.parametrize("levels", [300, 3_000])
@pytest.mark.parametrize("value", [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
@pytest.mark.parametrize("options", [{}, {"columns": {"id": "int64"}}], ids=["settled", "declared"])
def test_values_nested_too_deep_are_refused_with_their_row(
    tmp_path: Path, levels: int, value: tuple[bytes, bytes], options: dict[str, Any]
) -> None:
    deep = value[0] * levels + b"1" + value[1] * levels
    put(tmp_path, day_jsonl=b'{"id": 1, "b": "%s"}\n{"id": 2, "a": %s}\n{"id": 3}\n' % (b"[" * 500, deep))
    with pytest.raises(ExtractError, match=r"row 2: values nested .* at most 200 are read"):
        read_lines(tmp_path, "day.jsonl", **options)


def test_fields_that_are_left_out_may_be_nested_as_deep_as_they_like(tmp_path: Path) -> None:
    deep = b"[" * 3_000 + b"]" * 3_000
    put(tmp_path, day_jsonl=b'{"x": 1.5, "a": %s}\n' % deep)
    table = read_lines(tmp_path, "day.jsonl", include=["x"], columns={"x": "float32"})
    assert table.column("x").to_pylist() == [1.5]
    put(tmp_path, day_jsonl=b'{"x": 1e99, "a": %s}\n' % deep)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)  # some libraries raise it, and then the line can be read
    try:
        with pytest.raises(ExtractError, match="row 1: values nested more than 200 levels deep"):
            read_lines(tmp_path, "day.jsonl", include=["x"], columns={"x": "float32"})
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("declared", [{}, {"text": "string"}], ids=["settled", "declared"])
def test_text_that_is_no_utf8_is_refused_with_its_row(tmp_path: Path, declared: dict[str, str]) -> None:
    put(tmp_path, day_jsonl=b'{"text": "x"}\n' * 9_999 + b'{"text": "M\xfcller"}\n')
    with pytest.raises(ExtractError, match=r"day\.jsonl, row 10000: is no text in UTF-8"):
        read_lines(tmp_path, "day.jsonl", columns=declared, block_bytes=1 << 16)


def test_signature_before_the_first_line_is_no_part_of_it(tmp_path: Path) -> None:
    put(tmp_path, one_jsonl=b'\xef\xbb\xbf{"id": 1}\r\n{"id": 2}\r\n', two_jsonl=b'\xef\xbb\xbf{"id": 3}')
    assert read_lines(tmp_path, "one.jsonl", "two.jsonl").column("id").to_pylist() == [1, 2, 3]


def test_dates_inside_of_objects_alone_may_be_texts(tmp_path: Path) -> None:
    put(tmp_path, a_jsonl=b'{"stay": {"days": ["2013-01-31"]}}\n{"stay": null}\n')
    table = read_lines(tmp_path, "a.jsonl", columns={"stay": {"days": ["date"]}})
    assert table.column("stay").to_pylist() == [{"days": [date(2013, 1, 31)]}, None]


def test_dates_are_texts_or_days_since_1970(tmp_path: Path) -> None:
    put(tmp_path, text_jsonl=b'{"on": "2013-01-31"}\n{"on": null}\n', number_jsonl=b'{"on": 15736}\n')
    table = read_lines(tmp_path, "text.jsonl", "number.jsonl", columns={"on": "date"})
    assert table.column("on").to_pylist() == [date(2013, 1, 31), None, date(2013, 1, 31)]
    put(tmp_path, bad_jsonl=b'{"on": "2013-01-31"}\n' * 5 + b'{"on": "31.1.2013"}\n')
    with pytest.raises(ExtractError, match=r"row 6: .*31\.1\.2013"):
        read_lines(tmp_path, "bad.jsonl", columns={"on": "date"})


def test_rows_are_numbered_across_blocks(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b"".join(b'{"id": %d}\n' % number for number in range(1, 20_001)))
    table = read_lines(tmp_path, "day.jsonl", block_bytes=1 << 16)
    assert table.column("_row").to_pylist() == table.column("id").to_pylist() == list(range(1, 20_001))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"id": 1', "JSON|Missing|Invalid|parse"),
        (b"nonsense", "expected one object per line, got"),
        (b'{"id": "x"}', "field 'id' is of the type string, expected number"),
        (b'{"id": 1.5}', "1.5"),
        (b'{"id": 1, "new": 2}', "unexpected field.*Declare `columns`"),
        (b"[1]", "expected one object per line, got"),
    ],
)
def test_row_that_does_not_fit_is_named_with_its_number(tmp_path: Path, line: bytes, problem: str) -> None:
    put(tmp_path, day_jsonl=b'{"id": 1}\n\n' * 20_000 + line + b"\n" + b'{"id": 1}\n' * 9)
    with pytest.raises(ExtractError, match=problem) as caught:
        read_lines(tmp_path, "day.jsonl", block_bytes=1 << 16)
    assert (caught.value.dataset_urn, caught.value.file, caught.value.row) == ("AA", "day.jsonl", 20_001)


def test_two_objects_on_a_line_are_refused(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"id": 1}\n{"id": 2}{"id": 3}\n')
    with pytest.raises(ExtractError, match="one object per line"):
        read_lines(tmp_path, "day.jsonl")


@pytest.mark.parametrize("line", ["null", "  null", "5", "[1]", '"text"'])
@pytest.mark.parametrize("columns", [{}, {"id": "int64"}], ids=["settled", "declared"])
@pytest.mark.parametrize("before", [0, 2])
def test_line_that_is_no_object_is_refused(tmp_path: Path, before: int, columns: dict[str, str], line: str) -> None:
    put(tmp_path, day_jsonl=b'{"id": 1}\n' * before + line.encode() + b'\n {"id": 3}\n')
    with pytest.raises(ExtractError, match="expected one object per line, got ") as caught:
        read_lines(tmp_path, "day.jsonl", columns=columns)
    assert caught.value.row == before + 1


def test_line_longer_than_many_blocks_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b"[" + b'{"id": 1},' * 200_000 + b"]")
    with pytest.raises(ExtractError, match=r"expected one object per line.*execution\.block_bytes"):
        read_lines(tmp_path, "day.jsonl", block_bytes=1 << 16)


def test_empty_file_needs_declared_columns(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b"\n")
    with pytest.raises(ExtractError, match="declare `columns`"):
        read_lines(tmp_path, "day.jsonl")
    assert read_lines(tmp_path, "day.jsonl", columns={"id": "int64"}).num_rows == 0
    with pytest.raises(ExtractError, match="declare `columns`"):
        read_lines(tmp_path, "day.jsonl", include=["id", "x"], columns={"id": "int64"})
    assert read_lines(tmp_path, "day.jsonl", include=["id"], columns={"id": "int64"}).num_rows == 0


def test_number_too_large_for_a_declared_float_is_not_made_infinite(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"x": 3.40282356e38}\n{"x": -Infinity}\n{"x": null}\n{}\n')
    columns = {"x": "float32"}
    assert read_lines(tmp_path, "day.jsonl", columns=columns).column("x").null_count == 2
    put(tmp_path, day_jsonl=b'{"x": -Infinity}\n{"x": 3.402823568e38}\n')
    with pytest.raises(ExtractError, match=r"row 2: x is 3.402823568e\+38, which is too large for float32"):
        read_lines(tmp_path, "day.jsonl", columns=columns)


def test_nested_number_too_large_for_a_declared_float_is_not_made_infinite(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"p": {"x": [1]}}\n{"p": {"x": [null, 1e39], "y": 1e39}}\n')
    columns = {"p": {"x": ["float32"], "y": "float64"}}
    with pytest.raises(ExtractError, match=r"row 2: p.x is 1e\+39, which is too large for float32"):
        read_lines(tmp_path, "day.jsonl", columns=columns)


@pytest.mark.parametrize("bad", ["1.8e308", "-1" + 309 * "0"])
def test_number_too_large_for_a_float64_is_not_made_infinite(tmp_path: Path, bad: str) -> None:
    put(tmp_path, day_jsonl=f'{{"x": [1.7976931348623157e308, Infinity]}}\n{{"x": [{bad}]}}\n'.encode())
    with pytest.raises(ExtractError, match=r"row 2: x is .*, which is too large for float64"):
        read_lines(tmp_path, "day.jsonl", columns={"x": ["float64"]})


@pytest.mark.parametrize("text", [b'{"x": Infinity}{"x": 1}\n', b'{"x": Infinity, "y":\n{"z": 1}}{"x": 1}\n'])
def test_objects_that_are_not_one_a_line_are_refused_beside_an_infinity(tmp_path: Path, text: bytes) -> None:
    put(tmp_path, day_jsonl=text)
    with pytest.raises(ExtractError, match="row 1: expected one object per line"):
        read_lines(tmp_path, "day.jsonl", columns={"x": "float64", "y": {"z": "int64"}})


def test_inf_is_an_infinity(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"x": -Inf, "y": 1e17}\n{"x": 1, "y": 2.5}\n')
    rows = read_lines(tmp_path, "day.jsonl", columns={"x": "float64"})
    assert rows.column("x").to_pylist() == [float("-inf"), 1.0]


@pytest.mark.parametrize("bad", ["99999", '"1000"'])
def test_number_with_more_digits_than_its_decimal_is_not_altered(tmp_path: Path, bad: str) -> None:
    put(tmp_path, day_jsonl=f'{{"p": [{{"x": "999.99"}}]}}\n{{"p": [null, {{"x": {bad}}}]}}\n'.encode())
    with pytest.raises(ExtractError, match=r"row 2: .*has more digits than"):
        read_lines(tmp_path, "day.jsonl", columns={"p": [{"x": "decimal(5,2)"}]})


@pytest.mark.parametrize("infer", [True, False])
def test_dates_in_one_block_may_be_texts_and_days(tmp_path: Path, infer: bool) -> None:
    lines = [
        '{"c": 1, "x": 0.1}',
        '{"c": "2024-02-29", "x": 2}',
        '{"d": [{"c": 1}], "t": "a"}',
        '{"d": [{"c": "1970-01-03"}]}',
    ]
    put(tmp_path, a_jsonl="\n".join(lines).encode(), bad_jsonl="\n".join([*lines, '{"c": "x"}']).encode())
    columns = {"c": "date", "d": [{"c": "date"}]}
    table = read_lines(tmp_path, "a.jsonl", columns=columns, infer=infer)
    assert table.column("c").to_pylist() == [date(1970, 1, 2), date(2024, 2, 29), None, None]
    assert table.column("d").to_pylist() == [None, None, [{"c": date(1970, 1, 2)}], [{"c": date(1970, 1, 3)}]]
    assert table.column("x").to_pylist() == [0.1, 2.0, None, None]
    with pytest.raises(ExtractError, match=r"row 5: .*'x'"):
        read_lines(tmp_path, "bad.jsonl", columns=columns, infer=infer)
    put(tmp_path, two_jsonl="\n".join([f"{lines[0]} {lines[0]}", lines[1]]).encode())
    with pytest.raises(ExtractError, match="row 1: "):
        read_lines(tmp_path, "two.jsonl", columns=columns, infer=infer)


def test_days_are_not_named_if_another_field_does_not_fit(tmp_path: Path) -> None:
    put(tmp_path, a_jsonl=b'{"c": 1, "n": 1}\n', b_jsonl=b'{"c": 1, "n": 1}\n{"c": 2, "n": "x"}\n')
    with pytest.raises(ExtractError, match=r"b\.jsonl, row 2: field 'n'"):
        read_lines(tmp_path, "a.jsonl", "b.jsonl", columns={"c": "date", "n": "int64"})


@pytest.mark.parametrize("bad", ["01:02:03+05:30", "01:02Z", "01:02:03.5-0530", "01+05", "01:02:03\\u005a"])
def test_time_with_an_offset_is_not_altered_to_fit_a_column_without_a_zone(tmp_path: Path, bad: str) -> None:
    columns = {"p": [{"x": "timestamp_ntz"}], "z": "timestamp", "day": "date"}
    good = (
        '{"p": [{"x": "2024-02-29 01:02:03.5"}], "z": "2024-02-29T01:02:03+05:30", "day": "2024-02-29", "t": "01:02Z"}'
    )
    put(tmp_path, day_jsonl=f'{good}\n{{"p": [null, {{"x": "2024-02-29T{bad}"}}], "day": "2024-02-29"}}\n'.encode())
    with pytest.raises(
        ExtractError, match=r"row 2: field 'p.\[\].x' 2024-02-29T01\S+ has an offset, and timestamp\[us\] has"
    ):
        read_lines(tmp_path, "day.jsonl", columns=columns, infer=True)
    put(tmp_path, day_jsonl=f"{good}\n".encode())
    assert read_lines(tmp_path, "day.jsonl", columns=columns).column("p").to_pylist() == [
        [{"x": datetime(2024, 2, 29, 1, 2, 3, 500000)}]
    ]


def test_no_decimal_wraps_around(tmp_path: Path) -> None:
    lines = f'{{"p": [{{"x": "1e3"}}]}}\n{{"p": [null, {{"x": {"9" * 26}}}]}}\n'
    put(tmp_path, day_jsonl=lines.encode())
    with pytest.raises(ExtractError, match=r"row 2: .*has more digits than"):
        read_lines(tmp_path, "day.jsonl", columns={"p": [{"x": "decimal(38,32)"}]})


def test_empty_file_takes_the_columns_of_another_of_its_work_unit(tmp_path: Path) -> None:
    put(tmp_path, one_jsonl=b"", two_jsonl=b"\n", three_jsonl=b'{"id": 1}\n', four_jsonl=b"")
    table = read_lines(tmp_path, "one.jsonl", "two.jsonl", "three.jsonl", "four.jsonl")
    assert table.to_pylist() == [{"id": 1, "_file": "three.jsonl", "_row": 1}]
    declared = read_lines(tmp_path, "one.jsonl", "three.jsonl", columns={"x": "string"})
    assert declared.select([0, 1]).to_pylist() == [{"x": None, "id": 1}]
    assert read_lines(tmp_path, "one.jsonl", "two.jsonl", columns={"x": "string"}).column_names[0] == "x"
    with pytest.raises(ExtractError, match=r"two\.jsonl: has no line"):
        read_lines(tmp_path, "one.jsonl", "two.jsonl")


def test_count_rows_counts_lines_of_packed_files(tmp_path: Path) -> None:
    (tmp_path / "day.jsonl.gz").write_bytes(gzip.compress(b'{"id": 1}\n\n{"id": 2}'))
    context = ConstructContext(job="flights", base_dir=str(tmp_path))
    assert file_format({"type": "jsonl"}, context).count_rows(InputFile(str(tmp_path / "day.jsonl.gz"))) == 2
    reader = extractor(tmp_path, "day.jsonl.gz", type="jsonl")
    assert sum(chunk.batch.num_rows for chunk in reader.chunks()) == 2
    assert reader.bytes_read == (tmp_path / "day.jsonl.gz").stat().st_size


def test_whole_number_beyond_64_bits_is_refused_where_its_column_would_become_a_float(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"id": 1}\n{"id": 12345678901234567890}\n{"id": 9007199254740993}\n')
    with pytest.raises(
        ExtractError, match="row 2: id is 12345678901234567890, which no column of numbers can hold exactly"
    ) as caught:
        read(tmp_path, "day.jsonl", type="jsonl")
    assert "Declare `columns`" in str(caught.value)
    columns = {"id": "decimal(20,0)"}
    table = read(tmp_path, "day.jsonl", type="jsonl", columns=columns)
    assert [int(value) for value in table["id"].to_pylist()] == [1, 12345678901234567890, 9007199254740993]
    put(tmp_path, day_jsonl=b'{"id": 1}\n{"id": 1e30}\n')
    assert read(tmp_path, "day.jsonl", type="jsonl")["id"].to_pylist() == [1, 1e30]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (b'{"a": {"id": 12345678901234567890}}', "a.id is 12345678901234567890"),
        (b'{"a": {"id": 1.5}}\n{"a": {"id": 9007199254740993}}', "a.id is 9007199254740993"),
        (b'{"a": [[1.5], [9007199254740993]]}', "a is 9007199254740993"),
        (b'{"a": [{"id": 12345678901234567890}]}', "a.id is 12345678901234567890"),
        (b'{"a": 1.5}\n{"a": null}\n{"a": 9007199254740993}', "a is 9007199254740993"),
    ],
    ids=["struct", "among fractions", "list", "struct in a list", "top"],
)
def test_whole_number_that_a_float_only_comes_near_is_refused_wherever_it_stands(
    tmp_path: Path, line: bytes, place: str
) -> None:
    put(tmp_path, day_jsonl=line + b"\n")
    with pytest.raises(ExtractError, match=place):
        read(tmp_path, "day.jsonl", type="jsonl")


def test_whole_number_that_a_later_block_would_round_is_refused_with_its_row(tmp_path: Path) -> None:
    lines = [b'{"v": 1.5, "pad": "%s"}' % (b"x" * 100)] * 2000
    put(tmp_path, day_jsonl=b"\n".join([*lines, b'{"v": 9007199254740993, "pad": ""}', b""]))
    with pytest.raises(ExtractError, match="row 2001: v is 9007199254740993"):
        read_lines(tmp_path, "day.jsonl", block_bytes=65536)


def test_large_whole_numbers_that_a_float_holds_are_read(tmp_path: Path) -> None:
    put(tmp_path, day_jsonl=b'{"a": {"v": 1.5}}\n{"a": {"v": 9007199254740992}}\n{"a": {"v": 1e30}}\n')
    assert read(tmp_path, "day.jsonl", type="jsonl")["a"].to_pylist() == [{"v": 1.5}, {"v": 2.0**53}, {"v": 1e30}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": [1, "x"], "b": 1, "b": 2}', r"row 2: field 'b' was specified twice"),
        (b'{"a": {"x": 1, "x": 2}}', r"row 2: field 'x' was specified twice"),
        (b'{"a": {"x": NaN}}', r"row 2: NaN, Infinity or -Infinity, which is no value of JSON"),
        (b'{"a": 1, "b": %s}' % (b"9" * 5000), r"row 2: Exceeds the limit \(4300 digits\)"),
        (rb'{"a": ["\ud800", 1]}', r"row 2: half of a surrogate pair"),
        (rb'{"\uD800": 1}', r"row 2: (half of a surrogate pair|The surrogate pair)"),
    ],
)
def test_line_that_a_field_of_json_would_alter_is_refused_with_its_row(
    tmp_path: Path, line: bytes, message: str
) -> None:
    put(tmp_path, one_jsonl=b'{"a": 1, "b": 1}\n' + line)
    with pytest.raises(ExtractError, match=message):
        read_lines(tmp_path, "one.jsonl", columns={"a": "json"})


def test_number_of_thousands_of_digits_is_refused_with_its_row(tmp_path: Path) -> None:
    put(tmp_path, one_jsonl=b'{"a": 1.5}\n{"a": %s}' % (b"9" * 5000))
    with pytest.raises(ExtractError, match=r"row 2: (Exceeds the limit|Number too big)"):
        read_lines(tmp_path, "one.jsonl")
