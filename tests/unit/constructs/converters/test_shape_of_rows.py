"""Converters that choose columns and rows, or make rows of lists: select, filter, flatten, explode, split, sample,
dedup, add."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.core.errors import ConvertError, InvalidSpecError, UsageError
from gobblin_dagster.spec.job import ConverterSpec
from tests.unit.constructs.samples import CONTEXT, FILE, chunk, converted, pylist

USERS = chunk(
    {
        "id": [1, 2, 3],
        "user": [{"name": "Ann", "home": {"city": "Rome"}}, None, {"name": None, "home": None}],
        "tags": [["a", "b"], [], None],
    },
    first_row=11,
)


def _make(spec: dict[str, Any], context: ConstructContext = CONTEXT) -> Converter:
    made: Converter = registry.create(ConstructKind.CONVERTER, ConverterSpec.model_validate(spec), context)
    return made


def _convert(spec: dict[str, Any], given: Chunk) -> Chunk:
    return converted(_make(spec), given)


def _refused(spec: dict[str, Any], given: Chunk) -> str:
    with pytest.raises(ConvertError) as caught:
        pylist([_convert(spec, given)])
    return str(caught.value)


def test_select_picks_columns_and_fields_of_structs_in_order() -> None:
    result = _convert({"type": "select", "columns": ["user.home.city", "id"]}, USERS)
    assert result.batch.to_pylist() == [{"city": "Rome", "id": 1}, {"city": None, "id": 2}, {"city": None, "id": 3}]
    assert result.rows.to_pylist() == [11, 12, 13]


def test_select_gives_new_names() -> None:
    result = _convert({"type": "select", "columns": {"who": "user.name", "key": "id"}}, USERS)
    assert result.batch.to_pylist()[0] == {"who": "Ann", "key": 1}


def test_select_prefers_a_column_whose_own_name_has_a_dot() -> None:
    given = chunk({"a.b": [1], "a": [{"b": 2}]})
    assert _convert({"type": "select", "columns": ["a.b"]}, given).batch.to_pylist() == [{"a.b": 1}]


def test_select_of_what_is_not_there_lists_what_is() -> None:
    text = _refused({"type": "select", "columns": ["user.age"]}, USERS)
    assert "converter 'select': expected column 'user.age'; found: id, user, tags, user.name, user.home" in text


def test_select_refuses_one_name_twice() -> None:
    assert "more than one column would be named 'id'" in _refused(
        {"type": "select", "columns": {"id": "id", "x": "id"}} | {"columns": ["id", "id"]}, USERS
    )


NAMES = chunk({"name": ["JFK", "LGA", None, "JFKX"], "n": [1, 2, None, 3]}, first_row=5)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"column": "name", "equals": "JFK"}, [5]),
        ({"column": "name", "equals": ["JFK", "LGA"]}, [5, 6]),
        ({"column": "name", "equals": "JFK", "keep": False}, [6, 7, 8]),
        ({"column": "name", "matches": "J.K"}, [5]),
        ({"column": "name", "matches": "J.K", "keep": False}, [6, 7, 8]),
        ({"column": "name", "matches": "JFK|LGA"}, [5, 6]),
        ({"column": "n", "equals": 2}, [6]),
        ({"column": "n", "equals": "2"}, [6]),
    ],
    ids=str,
)
def test_filter_keeps_rows_and_their_places(options: dict[str, Any], rows: list[int]) -> None:
    assert _convert({"type": "filter"} | options, NAMES).rows.to_pylist() == rows


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        ({"type": "filter", "equals": "a;b"}, [1]),
        ({"type": "filter", "matches": "a.*"}, [1]),
        ({"type": "split", "delimiter": ";"}, [1, 1, 2]),
        ({"type": "csv_text", "columns": ["x"]}, [1, 2, 3]),
    ],
    ids=str,
)
def test_text_may_be_wide_or_dictionary_encoded(spec: dict[str, Any], rows: list[int], kind: pa.DataType) -> None:
    given = chunk({"s": pa.array(["a;b", "c", None]).cast(kind)})
    assert _convert(spec | {"column": "s"}, given).rows.to_pylist() == rows


def test_filter_without_a_match_yields_nothing() -> None:
    assert list(_make({"type": "filter", "column": "name", "equals": "EWR"}).convert(NAMES)) == []


def test_filter_on_another_type_names_column_expected_and_got() -> None:
    assert "column 'n': expected text to match, got int64" in _refused(
        {"type": "filter", "column": "n", "matches": "1"}, NAMES
    )
    assert "column 'n': expected a value of type int64 in `equals`, got 'x'" in _refused(
        {"type": "filter", "column": "n", "equals": "x"}, NAMES
    )


@pytest.mark.parametrize("options", [{}, {"equals": "a", "matches": "b"}, {"matches": "("}], ids=str)
def test_filter_options_that_say_nothing_clear_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=r"expected (equals or matches|a regular expression)"):
        _make({"type": "filter", "column": "name"} | options)


def test_flatten_goes_down_to_the_last_struct() -> None:
    result = _convert({"type": "flatten"}, USERS)
    assert result.batch.schema.names == ["id", "user_name", "user_home_city", "tags"]
    assert result.batch.column("user_home_city").to_pylist() == ["Rome", None, None]
    assert result.rows.to_pylist() == [11, 12, 13]


def test_flatten_stops_at_the_level_asked_for() -> None:
    result = _convert({"type": "flatten", "columns": ["user"], "separator": "__", "levels": 1}, USERS)
    assert result.batch.schema.names == ["id", "user__name", "user__home", "tags"]


def test_flatten_names_the_column_that_is_no_struct() -> None:
    assert "column 'id': expected a struct, got int64" in _refused({"type": "flatten", "columns": ["id"]}, USERS)


def test_explode_repeats_the_place_of_a_row() -> None:
    result = _convert({"type": "explode", "column": "tags"}, USERS)
    assert result.batch.select(["id", "tags"]).to_pylist() == [{"id": 1, "tags": "a"}, {"id": 1, "tags": "b"}]
    assert result.rows.to_pylist() == [11, 11]


def test_explode_can_keep_rows_without_items_and_number_items() -> None:
    result = _convert({"type": "explode", "column": "tags", "keep_empty": True, "position": "at"}, USERS)
    assert result.batch.column("tags").to_pylist() == ["a", "b", None, None]
    assert result.batch.column("at").to_pylist() == [0, 1, None, None]
    assert result.rows.to_pylist() == [11, 11, 12, 13]


def test_explode_works_on_a_part_of_a_batch() -> None:
    part = Chunk(USERS.batch.slice(0, 1), FILE, USERS.rows.slice(0, 1))
    assert _convert({"type": "explode", "column": "tags"}, part).batch.column("tags").to_pylist() == ["a", "b"]
    rest = Chunk(USERS.batch.slice(1), FILE, USERS.rows.slice(1))
    assert list(_make({"type": "explode", "column": "tags"}).convert(rest)) == []


def test_explode_names_the_column_that_is_no_list() -> None:
    assert "column 'id': expected a list, got int64" in _refused({"type": "explode", "column": "id"}, USERS)


def test_explode_of_a_long_list_needs_no_memory_for_its_square() -> None:
    given = chunk({"id": [1], "items": [list(range(3000))]})
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    assert _convert({"type": "explode", "column": "items"}, given).batch.num_rows == 3000
    assert pool.max_memory() - before < 20_000_000  # 3000 times the list would be 72 MB


def test_split_drops_empty_parts_and_repeats_places() -> None:
    given = chunk({"id": [1, 2, 3, 4], "parts": ["a;b", ";;c;", "", None]}, first_row=7)
    result = _convert({"type": "split", "column": "parts", "delimiter": ";"}, given)
    assert result.batch.to_pylist() == [{"id": 1, "parts": "a"}, {"id": 1, "parts": "b"}, {"id": 2, "parts": "c"}]
    assert result.rows.to_pylist() == [7, 7, 8]


def test_split_names_the_column_that_is_no_text() -> None:
    assert "column 'id': expected text, got int64" in _refused(
        {"type": "split", "column": "id", "delimiter": ";"}, USERS
    )


MANY = chunk({"key": [f"k{at % 100}" for at in range(10_000)]})


def _sampled(options: dict[str, Any], given: Chunk) -> list[int]:
    rows: list[int] = [
        row for part in _make({"type": "sample"} | options).convert(given) for row in part.rows.to_pylist()
    ]
    return rows


def test_sample_depends_on_the_row_alone() -> None:
    whole = _sampled({"ratio": 0.1}, MANY)
    parts = [Chunk(MANY.batch.slice(at, 777), FILE, MANY.rows.slice(at, 777)) for at in range(0, 10_000, 777)]
    assert [row for part in parts for row in _sampled({"ratio": 0.1}, part)] == whole
    assert 850 < len(whole) < 1150
    assert _sampled({"ratio": 0.1, "seed": 1}, MANY) != whole
    assert _sampled({"ratio": 0.1}, dataclasses.replace(MANY, file="other.csv")) != whole


def test_sample_stays_the_same_in_later_versions() -> None:
    assert _sampled({"ratio": 0.001}, MANY) == [2728, 2926, 3530, 3620, 3808, 5401]


@pytest.mark.parametrize(("ratio", "rows"), [(0, 0), (1, 10_000)])
def test_sample_of_none_and_of_all(ratio: float, rows: int) -> None:
    assert len(_sampled({"ratio": ratio}, MANY)) == rows


def test_sample_by_key_keeps_or_leaves_all_rows_of_a_key() -> None:
    rows = set(_sampled({"ratio": 0.3, "by": ["key"]}, MANY))
    assert {(row - 1) % 100 for row in rows} == {at for at in range(100) if at + 1 in rows}
    assert len(rows) % 100 == 0
    assert 0 < len(rows) < 10_000


def test_sample_of_rows_without_a_place_asks_for_keys() -> None:
    given = Chunk(MANY.batch, FILE, pa.nulls(10_000, pa.int64()))
    with pytest.raises(ConvertError, match="rows made by a converter; name key columns in `by`"):
        _sampled({"ratio": 0.1}, given)


def test_dedup_keeps_the_first_row_of_a_key_over_all_batches() -> None:
    dedup = _make({"type": "dedup", "by": ["a", "b"]})
    first = chunk({"a": [1, 1, None, 1], "b": ["x", "x", None, "y"]}, first_row=1)
    second = chunk({"a": [1, None, 2], "b": ["y", None, "x"]}, first_row=5)
    rows = [row for given in (first, second) for part in dedup.convert(given) for row in part.rows.to_pylist()]
    assert rows == [1, 3, 4, 7]


def test_dedup_with_more_keys_than_allowed_says_what_to_do() -> None:
    dedup = _make({"type": "dedup", "by": ["a"], "max_keys": 2})
    assert len(pylist(dedup.convert(chunk({"a": [1, 2, 1]})))) == 2
    with pytest.raises(UsageError, match=r"'AA/EWR', converter 'dedup': more than 2 keys .* Raise `max_keys`"):
        pylist(dedup.convert(chunk({"a": [3]})))


def test_dedup_names_the_key_that_is_no_plain_type() -> None:
    assert "column 'tags': expected a plain type as key, got list" in _refused({"type": "dedup", "by": ["tags"]}, USERS)


def test_add_puts_constants_and_origins_at_the_end() -> None:
    began = dt.datetime(2013, 1, 2, 3, tzinfo=dt.UTC)
    context = dataclasses.replace(CONTEXT, run_id="run-7", load_time=began)
    columns = {
        "country": "US",
        "version": {"value": 3, "type": "int8"},
        "day": {"value": "2013-01-02", "type": "date"},
        **{
            name: {"source": name}
            for name in ("dataset_urn", "job", "run_id", "load_time", "source_file", "source_row")
        },
    }
    given = chunk({"n": [1, 2]}, first_row=8)
    result = converted(_make({"type": "add", "columns": columns}, context), given)
    assert result.batch.to_pylist()[1] == {
        "n": 2, "country": "US", "version": 3, "day": dt.date(2013, 1, 2), "dataset_urn": "AA/EWR", "job": "flights",
        "run_id": "run-7", "load_time": began, "source_file": FILE, "source_row": 9,
    }  # fmt: skip
    assert result.batch.schema.field("version").type == pa.int8()


def test_add_refuses_a_name_that_is_there() -> None:
    assert "more than one column would be named 'id'" in _refused({"type": "add", "columns": {"id": 1}}, USERS)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({}, "expected value or source"),
        ({"value": 1, "source": "job"}, "expected value or source"),
        ({"value": "x", "type": "int8"}, "expected a value of type int8, got 'x'"),
        ({"value": 0.126, "type": "decimal(5,2)"}, r"expected a value of type decimal\(5,2\), got 0.126"),
        ({"value": 1e300, "type": "float32"}, "expected a value of type float32"),
        ({"source": "job", "type": "string"}, "job has a type of its own"),
    ],
    ids=str,
)
def test_add_options_are_checked_before_any_row(column: dict[str, Any], problem: str) -> None:
    cls = registry.load(ConstructKind.CONVERTER, "add")
    with pytest.raises(ValidationError, match=problem):
        cls.Options.model_validate({"columns": {"a": column}})
