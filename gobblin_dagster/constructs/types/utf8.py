"""Refuse text that is not UTF-8: Arrow writes it into files, and readers cannot read them."""

from __future__ import annotations

import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import has_part, is_binary, is_text


def refuse_bad_text(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid, with the column, if a text in it is not UTF-8, at any depth."""
    if not is_utf8(values):
        raise pa.ArrowInvalid(f"column {column!r} holds a text that is not UTF-8; binary columns hold any bytes")


def refuse_bad_bytes(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid, with the column, if it holds bytes that are not UTF-8, where a format has no bytes."""
    if not is_binary(values.type):
        return
    texts = values.cast(pa.large_binary()).view(pa.large_string())
    if not is_utf8(texts):
        raise pa.ArrowInvalid(
            f"column {column!r} holds bytes that are not UTF-8, and the format has only text; write them as text "
            "before, e.g. with `base64` or `hex` of the converter `sql`, or leave the column out"
        )


def is_utf8(values: pa.Array) -> bool:
    """Return whether all texts in an array are UTF-8, at any depth; True if it has none."""
    if not has_part(values.type, is_text):
        return True
    # `validate` looks behind the ends of a slice too, at rows that are not its own; a copy has only its own.
    return _validates(values) or _validates(values.take(pa.array(range(len(values)), pa.int64())))


def _validates(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
