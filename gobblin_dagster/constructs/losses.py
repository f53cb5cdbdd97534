"""What Arrow would leave out of values of Python without a word: fractions, fields of structs, times of day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow as pa


def first_loss(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[int, str] | None:
    """Return the index of a row of which its columns would not hold all, and what they would leave out.

    Values that Arrow refuses by itself are none of these.
    """
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_integer(field.type) or pa.types.is_date(field.type):
            for index, row in enumerate(rows):
                value = row.get(field.name)
                if value.__class__ not in (int, date) and (problem := _loss(value, field.type, field.name)):
                    return index, problem
    return None


def _loss(value: Any, kind: pa.DataType, name: str) -> str:
    if pa.types.is_integer(kind):
        is_cut = isinstance(value, Real | Decimal) and value % 1 != 0
        return f"{value} in the column {name}, which holds whole numbers" if is_cut else ""
    if pa.types.is_date(kind):
        is_cut = isinstance(value, datetime) and value.time() != time()
        return f"{value} in the column {name}, which holds days" if is_cut else ""
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        known = {field.name for field in kind}
        if new := sorted(value.keys() - known):
            return f"the field(s) {', '.join(f'{name}.{one}' for one in new)}, which its columns lack"
    return next(filter(None, (_loss(*part) for part in _parts(value, kind, name))), "")


def _parts(value: Any, kind: pa.DataType, name: str) -> Iterator[tuple[Any, pa.DataType, str]]:
    """Yield the values inside a value, each with its type and the name of its place."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return
    if pa.types.is_struct(kind):
        fields = dict(value)
        yield from ((fields.get(field.name), field.type, f"{name}.{field.name}") for field in kind)
    elif pa.types.is_map(kind):
        yield from ((one, kind.item_type, f"{name}.{key}") for key, one in dict(value).items())
    elif pa.types.is_nested(kind):
        yield from ((one, kind.value_type, name) for one in value)
