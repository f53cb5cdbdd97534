"""Schema contracts: what is added, widened, filled in, left out or refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.quality.contract import Contract, is_wider
from gobblin_dagster.constructs.types.schema_text import schema_text, type_from_text
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
def test_nested_column_that_is_gone_cannot_be_filled_in(kind: SchemaContract) -> None:
    before = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(ConvertError, match="column 'tags': expected list"):
        _contract(kind, pa.schema([("id", pa.int64())]), before)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(),
        pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(38, 5),
        pa.decimal256(50, 2), pa.duration("ms"), pa.null(),
    ],
    ids=str,
)  # fmt: skip
def test_plain_types_survive_their_text(kind: pa.DataType) -> None:
    assert type_from_text(str(kind)) == kind
    assert type_from_text(f"{kind} not null") == kind


def test_types_made_of_types_are_not_read_back() -> None:
    assert type_from_text(str(pa.list_(pa.int64()))) is None
    assert type_from_text(str(pa.struct([("a", pa.int64())]))) is None


@pytest.mark.parametrize(
    ("wide", "narrow", "is_so"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int8(), pa.int8(), False),
        (pa.int32(), pa.int64(), False),
        (pa.int64(), pa.uint64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("s", "UTC"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("s"), False),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(12, 3), pa.decimal128(12, 2), False),
        (pa.decimal128(20, 1), pa.int64(), True),
        (pa.decimal128(19, 1), pa.int64(), False),
        (pa.decimal128(38, 18), pa.uint64(), True),
        (pa.int64(), pa.decimal128(5, 0), False),
        (pa.string(), pa.null(), True),
    ],
    ids=str,
)
def test_wider_means_every_value_fits(wide: pa.DataType, narrow: pa.DataType, is_so: bool) -> None:
    assert is_wider(wide, narrow) is is_so


@pytest.mark.parametrize("kind", [EVOLVE, FAIL])
def test_whole_numbers_become_decimals_only_for_publishers_that_take_them(kind: SchemaContract) -> None:
    before, now = schema_text(pa.schema([("n", pa.int32())])), pa.schema([("n", pa.decimal128(12, 2))])
    assert Contract(kind, before, now, BRANCH).schema == now
    with pytest.raises(ConvertError, match=r"'n' was int32, is decimal128\(12, 2\), which is no wider type"):
        Contract(kind, before, now, BRANCH, widens_numbers=False)
