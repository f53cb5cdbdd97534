"""Values that show themselves as tables or facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.core.utils.table import MAX_ROWS, Column, Listing, ShownAsFacts

COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "text", lambda one: one.get("name")),
    Column("rows", "number", lambda one: one.get("rows")),
    Column("good", "flag", lambda one: one.get("good")),
    Column("at", "instant", lambda one: one.get("at")),
    Column("detail", "text", lambda one: one.get("detail"), is_shown=False),
)


def listing(*items: dict[str, Any]) -> Listing[dict[str, Any]]:
    return Listing("made up", COLUMNS, items)


def test_table_aligns_numbers_to_the_right_and_leaves_out_empty_columns() -> None:
    shown = repr(listing({"name": "a", "rows": 1200}, {"name": "long", "rows": 5}))
    assert shown == "made up\nname   rows\na     1,200\nlong      5"


def test_table_shows_flags_instants_and_what_is_missing() -> None:
    at = datetime(2026, 3, 1, 5, tzinfo=UTC)
    shown = repr(listing({"name": "a", "good": True, "at": at}, {"name": "b", "good": False}))
    assert shown.splitlines()[2:] == ["a     yes   2026-03-01 05:00:00Z", "b     no    -"]


def test_table_without_rows_is_its_title() -> None:
    assert repr(listing()) == "made up"


def test_table_of_many_rows_shows_the_first_and_counts_the_others() -> None:
    shown = repr(listing(*({"name": str(number)} for number in range(MAX_ROWS + 7)))).splitlines()
    assert (len(shown), shown[-1]) == (MAX_ROWS + 3, "... 7 more")


@pytest.mark.parametrize(
    ("name", "shown"), [("a\nb", "a b"), ("\x1b[2J", "\\x1b[2J"), ("x" * 99, "x" * 57 + "...")], ids=repr
)
def test_cell_is_one_line_that_a_terminal_prints_as_it_is(name: str, shown: str) -> None:
    assert repr(listing({"name": name})).splitlines()[-1] == shown


def test_notebook_gets_html_without_foreign_markup() -> None:
    html = listing({"name": "<b>x</b>", "rows": 3})._repr_html_()
    assert "<td>&lt;b&gt;x&lt;/b&gt;</td><td>3</td>" in html
    assert "<th>good</th>" not in html


def test_arrow_has_all_columns_with_their_types_even_if_nothing_is_in_them() -> None:
    table = listing({"name": "a", "detail": "d"}).to_arrow()
    assert table.schema.types == [pa.string(), pa.int64(), pa.bool_(), pa.timestamp("us", "UTC"), pa.string()]
    assert table.to_pylist() == [{"name": "a", "rows": None, "good": None, "at": None, "detail": "d"}]
    assert listing().to_arrow().schema == table.schema


def test_listing_is_a_sequence_and_a_part_of_it_is_a_listing() -> None:
    three = listing({"name": "a"}, {"name": "b"}, {"name": "c"})
    assert (len(three), three[0], {"name": "b"} in three) == (3, {"name": "a"}, True)
    assert repr(three[1:]) == "made up\nname\nb\nc"
    assert three[:1] == listing({"name": "a"})


class Facts(ShownAsFacts):
    def _facts(self) -> Mapping[str, object]:
        return {"name": "a <b>", "rows": 1200, "note": "", "why": None}


def test_facts_leave_out_what_is_missing() -> None:
    assert repr(Facts()) == "name  a <b>\nrows  1,200"
    assert Facts()._repr_html_().count("<tr>") == 2
    assert "a &lt;b&gt;" in Facts()._repr_html_()
