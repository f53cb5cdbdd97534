"""Schema contracts: what is added, widened, filled in, left out or refused."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.quality.contract import Contract
from gobblin_dagster.constructs.types.schema_text import schema_text
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.spec.job import SchemaContract
from tests.unit.constructs.samples import CONTEXT, batch

EVOLVE, FREEZE, DISCARD, FAIL = (
    SchemaContract.EVOLVE,
    SchemaContract.FREEZE,
    SchemaContract.DISCARD,
    SchemaContract.FAIL,
)
BRANCH = dataclasses.replace(CONTEXT, branch="all")
PUBLISHED = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("name", pa.string())])


def _contract(kind: SchemaContract, now: pa.Schema, before: pa.Schema = PUBLISHED) -> Contract:
    return Contract(kind, schema_text(before), now, BRANCH)


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _with(**changed: Any) -> pa.Schema:
    """Return the published schema with columns changed, added or (None) left out."""
    fields = {field.name: field.type for field in PUBLISHED} | changed
    return pa.schema([(name, kind) for name, kind in fields.items() if kind is not None])


@pytest.mark.parametrize("kind", SchemaContract)
def test_same_columns_in_any_order_pass_untouched(kind: SchemaContract) -> None:
    now = pa.schema([PUBLISHED.field(name) for name in ("name", "id", "price")])
    contract = _contract(kind, now)
    assert set(contract.schema) == set(PUBLISHED)
    assert contract.notes == ()


def _tagged(name: str, kind: pa.DataType) -> pa.Schema:
    """Return columns whose lists and maps have parts of this name, as each library gives them another one."""
    map_type = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field(name, kind))
    return pa.schema([("tags", pa.list_(pa.field(name, kind))), ("by", map_type), ("all", pa.list_(map_type))])


@pytest.mark.parametrize("kind", SchemaContract)
def test_names_of_the_parts_of_lists_and_maps_are_no_difference(kind: SchemaContract) -> None:
    contract = _contract(kind, _tagged("element", pa.int8()), _tagged("it's", pa.int8()))
    assert (contract.notes, contract.schema) == ((), _tagged("value", pa.int8()))


@pytest.mark.parametrize(("before", "now"), [(pa.int8(), pa.int64()), (pa.int64(), pa.int8())], ids=["wider", "same"])
def test_maps_and_lists_of_parquet_become_wider(before: pa.DataType, now: pa.DataType) -> None:
    contract = _contract(EVOLVE, _tagged("by", now), _tagged("element", before))
    assert contract.schema == _tagged("item", pa.int64())
    rows = {"tags": [[1], None, [2, None]], "by": [[("a", 1)], [], [("b", None)]], "all": [[[("c", 3)]], [None], []]}
    columns = [pa.array(values, kind) for values, kind in zip(rows.values(), _tagged("by", now).types, strict=True)]
    given = pa.RecordBatch.from_arrays(columns, schema=_tagged("by", now))
    for part in (given, given.slice(1), given.slice(2)):
        assert contract.conform(part).to_pylist() == part.to_pylist()


@pytest.mark.parametrize(
    ("kind", "changed", "written"),
    [
        (EVOLVE, {"vat": pa.int8()}, {"vat": "int8"}),
        (EVOLVE, {"id": pa.int32()}, {"id": "int64"}),
        (EVOLVE, {"price": pa.decimal128(12, 2)}, {"price": "decimal128(12, 2)"}),
        (EVOLVE, {"price": pa.decimal128(8, 1)}, {"price": "decimal128(10, 2)"}),
        (EVOLVE, {"name": None}, {}),
        (EVOLVE, {"name": pa.null()}, {}),
        (DISCARD, {"vat": pa.int8()}, {}),
        (DISCARD, {"price": pa.decimal128(12, 2)}, {}),
        (DISCARD, {"id": pa.string()}, {}),
        (DISCARD, {"name": None}, {}),
        (FAIL, {"vat": pa.int8()}, {"vat": "int8"}),
        (FAIL, {"price": pa.decimal128(12, 2)}, {"price": "decimal128(12, 2)"}),
    ],
    ids=str,
)
def test_what_is_written(kind: SchemaContract, changed: dict[str, Any], written: dict[str, str]) -> None:
    contract = _contract(kind, _with(**changed))
    assert _types(contract.schema) == _types(PUBLISHED) | written
    assert len(contract.notes) == 1


@pytest.mark.parametrize(
    ("kind", "changed", "problem"),
    [
        (EVOLVE, {"id": pa.string()}, "'id' was int64, is string, which is no wider type"),
        (EVOLVE, {"id": pa.float64()}, "'id' was int64, is double"),
        (FREEZE, {"vat": pa.int8()}, "column 'vat' \\(int8\\) is new"),
        (FREEZE, {"name": None}, "column 'name' \\(string\\) is gone"),
        (FREEZE, {"id": pa.int32()}, "column 'id' was int64, is int32"),
        (FAIL, {"name": None}, "'name' is gone"),
        (FAIL, {"id": pa.int32()}, "'id' was int64, is int32, which is no wider type"),
    ],
    ids=str,
)
def test_broken_contract_names_branch_column_expected_and_got(
    kind: SchemaContract, changed: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConvertError, match=f"branch 'all', schema contract '{kind}': .*{problem}"):
        _contract(kind, _with(**changed))


def test_notes_tell_every_difference() -> None:
    notes = _contract(EVOLVE, _with(vat=pa.int8(), name=None, id=pa.int32())).notes
    assert notes == (
        "branch 'all': column 'vat' (int8) is new",
        "branch 'all': column 'name' (string) is gone",
        "branch 'all': column 'id' was int64, is int32",
    )


def test_batches_come_out_in_the_agreed_schema() -> None:
    now = pa.schema([("extra", pa.string()), ("id", pa.int32())])
    contract = _contract(DISCARD, now)
    rows = contract.conform(batch({"extra": ["a", "b"], "id": [1, None]}, now))
    assert rows.schema == contract.schema
    assert rows.to_pylist() == [{"id": 1, "price": None, "name": None}, {"id": None, "price": None, "name": None}]


def test_value_that_does_not_fit_the_published_type_is_named() -> None:
    now = _with(id=pa.string())
    rows = batch({"id": ["1", "x7"], "price": [None, None], "name": ["a", "b"]}, now)
    with pytest.raises(
        ConvertError,
        match="file f, schema contract 'discard': row 8: column 'id': expected int64 as published before, got 'x7'",
    ):
        on_rows(_contract(DISCARD, now).conform, Chunk(rows, "f", pa.array([7, 8])))


@pytest.mark.parametrize("kind", [EVOLVE, DISCARD])
def test_nested_column_that_is_gone_is_null(kind: SchemaContract) -> None:
    before = pa.schema([("id", pa.int64()), ("tags", pa.map_(pa.string(), pa.list_(pa.string())))])
    now = pa.schema([("id", pa.int64())])
    contract = _contract(kind, now, before)
    assert contract.schema == before
    assert contract.conform(batch({"id": [1]}, now)).to_pylist() == [{"id": 1, "tags": None}]


def test_column_whose_type_has_no_known_text_cannot_be_filled_in() -> None:
    before = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string(), 2))])
    with pytest.raises(ConvertError, match="column 'tags': expected fixed_size_list"):
        _contract(EVOLVE, pa.schema([("id", pa.int64())]), before)


@pytest.mark.parametrize("kind", [EVOLVE, FAIL])
@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        (pa.int32(), pa.decimal128(12, 2), "a decimal for whole numbers"),
        (pa.int32(), pa.float64(), "a float for whole numbers"),
        (pa.decimal128(5, 1), pa.decimal128(6, 2), "a decimal with more digits behind the point"),
        (pa.date32(), pa.timestamp("us"), "a time for days"),
        (pa.list_(pa.struct({"a": pa.int8()})), pa.list_(pa.struct({"a": pa.int8(), "b": pa.int8()})), "more fields"),
    ],
    ids=str,
)
def test_types_of_another_kind_come_only_where_they_are_taken(
    kind: SchemaContract, before: pa.DataType, now: pa.DataType, kinds: str
) -> None:
    published, rows = schema_text(pa.schema([("n", before)])), pa.schema([("n", now)])
    assert Contract(kind, published, rows, BRANCH).schema == rows
    with pytest.raises(ConvertError, match=f"is .*, but what is published cannot become .*{kinds}.*`rename`"):
        Contract(kind, published, rows, BRANCH, widens=())


def test_column_becomes_the_type_that_holds_both() -> None:
    before = pa.schema(
        [("price", pa.decimal128(10, 2)), ("n", pa.decimal128(9, 4)), ("place", pa.struct({"a": pa.int8()}))]
    )
    now = pa.schema([("price", pa.decimal128(8, 4)), ("n", pa.int32()), ("place", pa.struct({"b": pa.bool_()}))])
    contract = _contract(EVOLVE, now, before)
    assert [str(kind) for kind in contract.schema.types] == [
        "decimal128(12, 4)",
        "decimal128(14, 4)",
        "struct<a: int8, b: bool>",
    ]
    rows = contract.conform(batch({"price": [Decimal("1.25")], "n": [7], "place": [{"b": True}]}, now))
    assert rows.to_pylist() == [{"price": Decimal("1.2500"), "n": Decimal("7.0000"), "place": {"a": None, "b": True}}]


PLACES = pa.schema([("places", pa.list_(pa.struct({"a": pa.int8()})))])
MORE = pa.schema([("places", pa.list_(pa.struct({"a": pa.int8(), "b": pa.string()})))])


def test_new_fields_of_structs_are_left_out_and_rows_with_a_value_there_put_aside() -> None:
    rows = batch({"places": [[{"a": 1, "b": None}], [{"a": 2, "b": "x"}], None]}, MORE)
    contract = _contract(DISCARD, MORE, PLACES)
    assert contract.conform(rows).to_pylist() == [{"places": [{"a": 1}]}, {"places": [{"a": 2}]}, {"places": None}]
    ((mask, reason),) = _contract(SchemaContract.DISCARD_ROW, MORE, PLACES).unfit(rows)
    assert mask.to_pylist() == [False, True, False]
    assert "column 'places': expected list<" in reason


def test_numbers_that_are_none_put_no_row_aside() -> None:
    kind = pa.list_(pa.float64())
    rows = batch({"n": [[math.nan, 1.5], [0.1]]}, pa.schema([("n", kind)]))
    before = pa.schema([("n", pa.list_(pa.float32()))])
    ((mask, _),) = _contract(SchemaContract.DISCARD_ROW, rows.schema, before).unfit(rows)
    assert mask.to_pylist() == [False, True]


def test_field_that_is_gone_is_null_or_fails() -> None:
    assert _contract(EVOLVE, PLACES, MORE).schema == MORE
    with pytest.raises(ConvertError, match=r"'places' was list<.*which is no wider type"):
        _contract(FAIL, PLACES, MORE)
