from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.converters.child_table import ChildTableConverter
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ConvertError

PART = pa.struct({"name": pa.string()})
LINE = pa.struct({"id": pa.int64(), "parts": pa.list_(PART), "tags": pa.large_list(pa.string())})
ORDERS = pa.RecordBatch.from_pydict(
    {
        "id": pa.array([1, 2, 3, 4]),
        "box": pa.array(
            [
                {"lines": [{"id": 7, "parts": [{"name": "a"}, None], "tags": ["x"]}, {"id": 8}]},
                {"lines": []},
                None,
                {"lines": [None, {"id": 9, "parts": [{"name": "b"}]}]},
            ],
            pa.struct({"lines": pa.list_(LINE)}),
        ),
        "a.b": pa.array([[1], [2, None], None, []], pa.list_(pa.int64(), -1)),
    }
)


def converter(**options: Any) -> ChildTableConverter:
    return ChildTableConverter(ChildTableConverter.Options(**options), ConstructContext(job="j", base_dir="/"))


def rows(batch: pa.RecordBatch = ORDERS, **options: Any) -> tuple[list[dict[str, Any]], list[int]]:
    chunk = Chunk(batch, "f", pa.array(range(11, 11 + batch.num_rows)))
    parts = list(converter(**options).convert(chunk))
    assert all(part.batch.schema == converter(**options).convert_schema(batch.schema) for part in parts)
    return [row for part in parts for row in part.batch.to_pylist()], [
        at for part in parts for at in part.rows.to_pylist()
    ]


def test_items_know_their_row_and_their_place() -> None:
    lines, places = rows(list="box.lines", keys=("id",), key_prefix="order_")
    assert [(row["order_id"], row["lines_number"], row["id"]) for row in lines] == [
        (1, 0, 7),
        (1, 1, 8),
        (4, 0, None),
        (4, 1, 9),
    ]
    assert lines[0]["parts"] == [{"name": "a"}, None]
    assert places == [11, 11, 14, 14]


def test_lists_in_lists_have_a_place_for_each() -> None:
    assert rows(list="box.lines.parts", keys=("id",)) == (
        [
            {"id": 1, "lines_number": 0, "parts_number": 0, "name": "a"},
            {"id": 1, "lines_number": 0, "parts_number": 1, "name": None},
            {"id": 4, "lines_number": 1, "parts_number": 0, "name": "b"},
        ],
        [11, 11, 14],
    )


def test_items_that_are_no_objects_are_values() -> None:
    assert rows(list="box.lines.tags", keys=("id",))[0] == [
        {"id": 1, "lines_number": 0, "tags_number": 0, "value": "x"}
    ]
    assert rows(list="a.b", keys=("id",))[0][1:] == [
        {"id": 2, "a.b_number": 0, "value": 2},
        {"id": 2, "a.b_number": 1, "value": None},
    ]


def test_part_of_a_batch_gives_its_own_items() -> None:
    assert [row["id"] for row in rows(ORDERS.slice(3), list="box.lines.parts", keys=("id",))[0]] == [4]
    assert rows(ORDERS.slice(1, 2), list="box.lines", keys=("id",), key_prefix="o_") == ([], [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"list": "box.lines", "keys": ("id",)}, "named 'id'; name the keys otherwise, by `key_prefix`"),
        ({"list": "box.lines", "keys": ("nr",)}, "expected column 'nr'; found: id, box, a.b"),
        ({"list": "lines", "keys": ("id",)}, "expected column 'lines'"),
        ({"list": "box", "keys": ("id",)}, "'box': expected a list, got struct"),
        ({"list": "box.rows", "keys": ("id",)}, "'box' has no field 'rows'; it has lines"),
        (
            {"list": "box.lines.id.x", "keys": ("id",)},
            "'box.lines.id': expected a list of structs, or a struct, with 'x'",
        ),
        ({"list": "box.lines.id", "keys": ("id",), "key_prefix": "o"}, "'box.lines.id': expected a list, got int64"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConvertError, match=re.escape(said)):
        converter(**options).convert_schema(ORDERS.schema)
