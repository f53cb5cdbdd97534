"""Infer the type of a column from a sample of its texts.

A type is chosen only if `exact_text` converts every text of the sample: `007`, `+5`, `1,000`, ` 5` and `31.01.2024`
stay texts. Later texts that do not fit are found when they are read, never altered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.exact_text import MisfitError, exact_values

Fractions: TypeAlias = Literal["float64", "decimal"]
"""Which of the two types is tried first for numbers with fractions."""

Usual: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Returns texts of a type's values as other programs write them."""
NULL_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "Null", "null", "None", "none", "nil", "\\N", "-", "--", "?", ".")
"""Texts that often mean null; if only they keep a column from having a type, the plan says so."""
_WHOLE = r"^(0|-?[1-9]\d*)$"
_MINUS_ZERO = r"^-0(\.0*)?$"
"""Only a float keeps the sign."""
_PLAIN_NUMBER = r"^-?(?P<whole>0|[1-9]\d*)(?:\.(?P<fraction>\d+))?$"
_DIGITS = 38
"""Most digits of a decimal."""
_WHOLE_DIGITS = 20
"""Digits before the point of a decimal that `int64` becomes; with one less, Spark does not read 64 bits as decimals."""
_SHAPES = {
    "bool": re.compile(r"[tTfF]"),
    "int64": re.compile(r"-?\d+$"),
    "float64": re.compile(r"-?([\d.]+([eE][-+]?\d+)?$|[iInN])"),
    "decimal": re.compile(r"-?\d+(\.\d+)?$"),
    "date": re.compile(r"\d{4}-\d\d-\d\d$"),
    "timestamp_ntz": re.compile(r"\d{4}-\d\d-\d\d[ T]"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[ T]"),
}
"""What all texts of the type look like: a text that does not rules the type out, without the others being converted."""


class ColumnGuess:
    """The types that hold all texts of one column seen so far.

    Keeps the texts, each once per `look`, until it is asked: most types are then ruled out by a single text.
    """

    def __init__(self, fractions: Fractions = "float64", usual: Usual | None = None) -> None:
        self._usual = usual
        numbers = ["float64", "decimal"] if fractions == "float64" else ["decimal", "float64"]
        self._kinds = ["bool", "int64", *numbers, "date", "timestamp_ntz", "timestamp"]
        self._seen: list[pa.Array] = []
        """Arrays with at least one text, and neither null nor words that often mean null."""
        self._found: str | None = None
        """The type of `_seen`; None until it was asked for."""
        self.null_words: set[str] = set()
        """Texts seen that often mean null."""

    def look(self, texts: pa.Array) -> None:
        """Take some more texts of the column into account."""
        texts = pc.unique(texts).drop_null()
        is_word = pc.is_in(texts, value_set=_null_words())
        if pc.any(is_word).as_py():
            self.null_words.update(texts.filter(is_word).to_pylist())
            texts = texts.filter(pc.invert(is_word))
        if len(texts):
            self._seen.append(texts)
            self._found = None

    @property
    def ignoring_null_words(self) -> str:
        """The type if `null_words` meant null; `string` if no other type fits."""
        if self._found is None:
            self._found = next(filter(None, map(self._type_of_kind, self._kinds if self._seen else ())), "string")
        return self._found

    @property
    def type_name(self) -> str:
        """The name of the type; `string` if no other fits, or if the sample has no text."""
        return "string" if self.null_words else self.ignoring_null_words

    def _type_of_kind(self, kind: str) -> str | None:
        """Return the name of the type of this kind that holds all texts; None if there is none."""
        is_like, seen = _SHAPES[kind].match, self._as_usual(kind)
        if not all(is_like(texts[at].as_py()) for texts in seen for at in (0, -1)):
            return None
        if kind == "decimal":
            return self._decimal()
        if kind == "float64" and self._is_whole():
            return None  # it would print them differently
        is_finite = False
        for texts in seen:
            try:
                values = exact_values(texts, arrow_type(kind))
            except MisfitError:
                return None
            is_finite = is_finite or kind != "float64" or bool(pc.any(pc.is_finite(values)).as_py())
        return kind if is_finite else None

    def _as_usual(self, kind: str) -> list[pa.Array]:
        """Return the texts as other programs write values of this kind."""
        if self._usual is None:
            return self._seen
        like = pa.float64() if kind == "decimal" else arrow_type(kind)
        return [self._usual(texts, like) for texts in self._seen]

    def _is_whole(self) -> bool:
        """Return whether all texts are whole numbers."""
        return all(pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py() for texts in self._seen)

    def widened(self, known: str) -> str | None:
        """Return the decimal that holds all texts seen and all numbers of a type; None if there is none, or no need.

        Args:
            known: name of the type that was inferred before; only `int64` and decimals become wider.
        """
        kind = arrow_type(known)
        if self.null_words or not (known == "int64" or pa.types.is_decimal(kind)) or self._fit(kind):
            return None
        if (digits := self._digits()) is None:
            return None
        before = (_WHOLE_DIGITS, 0) if known == "int64" else (kind.precision - kind.scale, kind.scale)
        whole, scale = map(max, before, digits)
        return f"decimal({whole + scale}, {scale})" if whole + scale <= _DIGITS else None

    def _fit(self, kind: pa.DataType) -> bool:
        """Return whether a type alters none of the texts."""
        try:
            for texts in self._seen:
                exact_values(texts if self._usual is None else self._usual(texts, kind), kind)
        except MisfitError:
            return False
        return True

    def _decimal(self) -> str | None:
        if (digits := self._digits()) is None:
            return None
        whole, scale = digits
        if whole + scale > _DIGITS:
            return None
        # Usual numbers leave digits free, so that later ones may have more behind the point.
        precision = _WHOLE_DIGITS + scale if whole < _WHOLE_DIGITS else _DIGITS
        return f"decimal({min(precision, _DIGITS)}, {scale})"

    def _digits(self) -> tuple[int, int] | None:
        """Return the most digits before and behind the point; None if a text is no plain number."""
        whole = scale = 0
        for texts in self._as_usual("decimal"):
            parts = pc.extract_regex(texts, _PLAIN_NUMBER)
            if parts.null_count or pc.any(pc.match_substring_regex(texts, _MINUS_ZERO)).as_py():
                return None
            whole, scale = (
                max(most, pc.max(pc.utf8_length(pc.struct_field(parts, name))).as_py() or 0)
                for most, name in ((whole, "whole"), (scale, "fraction"))
            )
        return whole, scale


@cache
def _null_words() -> pa.Array:
    # Made when it is used, and of a named type, because finding out the type would import pandas.
    return pa.array(NULL_WORDS, pa.string())
