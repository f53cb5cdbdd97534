"""Text and bytes that are not UTF-8 are refused with their column; what is not written does not count."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.utf8 import refuse_bad_bytes, refuse_bad_text

BAD = pa.array([b"a", b"\xff\xfe"])


def test_column_of_a_text_that_is_not_utf8_is_named() -> None:
    with pytest.raises(pa.ArrowInvalid, match="column 'note' holds a text that is not UTF-8"):
        refuse_bad_text("note", BAD.view(pa.string()))


def test_rows_behind_the_end_of_a_slice_are_not_looked_at() -> None:
    refuse_bad_text("note", BAD.view(pa.string()).slice(0, 1))
    refuse_bad_bytes("note", BAD.slice(0, 1))
    with pytest.raises(pa.ArrowInvalid, match="column 'note' holds bytes that are not UTF-8"):
        refuse_bad_bytes("note", BAD.slice(1, 1))
