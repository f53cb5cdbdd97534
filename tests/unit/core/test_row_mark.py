from __future__ import annotations

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.row_mark import RowMark, newest_marks
from gobblin_dagster.core.serialization import from_document, to_document
from gobblin_dagster.testing.conformance.state_store.values import state


def test_newest_mark_of_each_component_is_the_highest() -> None:
    before, after = {"t-0": RowMark(9, "a"), "t-1": RowMark(4, "b")}, {"t-0": RowMark(5, "c"), "t-1": RowMark(6, "d")}
    assert newest_marks([before, after]) == {"t-0": RowMark(9, "a"), "t-1": RowMark(6, "d")}


def test_state_without_marks_and_holders_of_an_older_program_is_read() -> None:
    older = to_document(state(1))
    del older["row_marks"], older["holders"], older["places"]
    read = from_document(DatasetState, older)
    assert (read.row_marks, read.holders, read.places) == ({}, {}, {})
