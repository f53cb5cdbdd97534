"""Infer the shapes of JSON fields from a sample of objects: plain types, lists and objects inside each other.

Values that no shape holds exactly (a number here, a text there; whole numbers beyond 64 bits) make the field `json`: a
text column with the JSON of each value.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, TypeAlias

from gobblin_dagster.core.utils.json_text import object_of

JSON = "json"
"""The shape of a column that holds the JSON of its values as text."""

OPEN = "null"
"""The type, as states store it, of a column that has had no value yet: it is in no published row, and gets its type
with its first value."""

Shape: TypeAlias = "str | list[Any] | dict[str, Any] | None"
"""As in job files; None if no value but null was seen."""

_EXACT = 1 << 53
"""A float of 64 bits holds every integer up to this one."""
_LONG_LIMIT = 1 << 63
_BIG = "big integer"
"""Whole numbers that a float would round; they fit into `int64` only."""
_MARK = secrets.token_hex(8)
"""Around the digits of a fraction while it is a text; no text of the data has it."""
_MARKED = re.compile(f'"{_MARK}([^"]*){_MARK}"')
_DEEPEST = 30
"""Levels of lists and objects; deeper values are `json`, because Parquet holds about 50."""


class RecordShape:
    """The shape of each field of the objects seen so far, in the order in which fields came.

    A run keeps this order inside of objects; it reads the columns themselves in the order of their names, as work units
    and states are stored.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Shape] = {}

    def look(self, record: Mapping[str, Any]) -> None:
        """Take one more object into account."""
        for name, value in record.items():
            self._fields[name] = _merged(self._fields.get(name), _shape_of(value, _DEEPEST))

    @property
    def empty(self) -> frozenset[str]:
        """The fields that were always null."""
        return frozenset(name for name, shape in self._fields.items() if shape is None)

    def shapes(self) -> dict[str, str | list[Any] | dict[str, Any]]:
        """Return the shapes; `string` for fields that were always null."""
        return {name: _settled(shape) for name, shape in self._fields.items()}


def _shape_of(value: Any, levels: int) -> Shape:  # noqa: PLR0911 - one case for each kind of JSON
    if not levels:
        return JSON
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return JSON if not -_LONG_LIMIT <= value < _LONG_LIMIT else "int64" if abs(value) <= _EXACT else _BIG
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            item: Shape = None
            for one in value:
                item = _merged(item, _shape_of(one, levels - 1))
            return JSON if item == JSON else [item]
        case dict():
            fields = {str(name): _shape_of(one, levels - 1) for name, one in value.items()}
            return JSON if not fields or JSON in fields.values() else fields
    raise TypeError(f"expected a value of JSON, got {type(value).__name__}")


def _merged(known: Shape, found: Shape) -> Shape:
    """Return the shape that holds the values of both; `json` if there is none."""
    if known is None or found is None or known == found:
        return known if found is None else found
    if isinstance(known, list) and isinstance(found, list):
        item = _merged(known[0], found[0])
        return JSON if item == JSON else [item]
    if isinstance(known, dict) and isinstance(found, dict):
        fields = {name: _merged(known.get(name), found.get(name)) for name in {**known, **found}}
        return JSON if JSON in fields.values() else fields
    if isinstance(known, str) and isinstance(found, str):
        return {
            frozenset({"int64", "float64"}): "float64",
            frozenset({"int64", _BIG}): _BIG,
        }.get(frozenset({known, found}), JSON)
    return JSON


def _settled(shape: Shape) -> str | list[Any] | dict[str, Any]:
    match shape:
        case None:
            return "string"
        case str():
            return "int64" if shape == _BIG else shape
        case list():
            return [_settled(shape[0])]
        case dict():
            return {name: _settled(one) for name, one in shape.items()}
    raise TypeError(f"expected a shape, got {shape!r}")


def with_new_fields(known: str, found: Shape) -> str:
    """Return the text of a shape with the fields that only `found` has inside of objects; nothing else of it changes.

    Example:
        >>> with_new_fields('[{"a": "int64"}]', [{"a": "string", "b": {"c": "bool"}}])
        '[{"a": "int64", "b": {"c": "bool"}}]'
    """
    return shape_text(_grown(shape_of_text(known), found))


def _grown(known: Any, found: Shape) -> Any:
    if isinstance(known, list) and isinstance(found, list):
        return [_grown(known[0], found[0])]
    if isinstance(known, dict) and isinstance(found, dict):
        new = {name: shape for name, shape in found.items() if name not in known}
        return {name: _grown(shape, found.get(name)) for name, shape in known.items()} | new
    return known


def fields_of(shape: Shape, place: str = "") -> list[str]:
    """Return the paths of all fields inside of objects: `city`, `at.lat`."""
    if isinstance(shape, list):
        return fields_of(shape[0], place)
    if not isinstance(shape, dict):
        return []
    paths = {f"{place}{name}": one for name, one in shape.items()}
    return [path for name, one in paths.items() for path in (name, *fields_of(one, f"{name}."))]


def shape_text(shape: str | list[Any] | dict[str, Any]) -> str:
    """Return a shape as text, which states store: a type's name, or JSON."""
    return shape if isinstance(shape, str) else json.dumps(shape, ensure_ascii=False)


def shape_of_text(text: str) -> str | list[Any] | dict[str, Any]:
    """Return the shape of a text from `shape_text`."""
    shape: str | list[Any] | dict[str, Any] = json.loads(text) if text[:1] in "[{" else text
    return shape


def load_exactly(line: str | bytes) -> Any:
    """Parse JSON; fractions become texts that `dump_exactly` writes digit by digit as they were.

    Raises:
        ValueError: the text is no JSON, or an object has two values of one name, so that one would be lost.
    """
    return json.loads(line, parse_float=marked, object_pairs_hook=object_of)


def marked(digits: str) -> str:
    """Return a text that `dump_exactly` writes as the number with these digits."""
    return f"{_MARK}{digits}{_MARK}"


def dump_exactly(value: Any, *, allow_nan: bool = False) -> str:
    """Write what `load_exactly` parsed as JSON, fractions with all their digits.

    Raises:
        ValueError: NaN or an infinity, and `allow_nan` is false: they are no JSON, though Python and Arrow read them.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)
    except ValueError:
        raise ValueError("NaN, Infinity or -Infinity, which is no value of JSON") from None
    return _MARKED.sub(r"\1", text)
