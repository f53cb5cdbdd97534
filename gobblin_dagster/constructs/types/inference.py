"""Infer the type of a column from a sample of its texts.

A type is chosen only if `exact_text` converts every text of the sample: `007`, `+5`, `1,000`, ` 5` and `31.01.2024`
stay texts. Later texts that do not fit are found when they are read, never altered.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.exact_text import MisfitError, exact_values

Fractions: TypeAlias = Literal["float64", "decimal"]
"""Which of the two types is tried first for numbers with fractions."""

NULL_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "Null", "null", "None", "none", "nil", "\\N", "-", "--", "?", ".")
"""Texts that often mean null; if only they keep a column from having a type, the plan says so."""
_WHOLE = r"^(0|-?[1-9]\d*)$"
_MINUS_ZERO = r"^-0(\.0*)?$"
"""Only a float keeps the sign."""
_PLAIN_NUMBER = r"^-?(?P<whole>0|[1-9]\d*)(?:\.(?P<fraction>\d+))?$"
_DIGITS = 38
"""Most digits of a decimal."""


class ColumnGuess:
    """The types that hold all texts of one column seen so far."""

    def __init__(self, fractions: Fractions = "float64") -> None:
        numbers = ["float64", "decimal"] if fractions == "float64" else ["decimal", "float64"]
        self._open = ["bool", "int64", *numbers, "date", "timestamp_ntz", "timestamp"]
        self._is_whole = True
        """Whether all texts are whole numbers; such a column is never float, which would print them differently."""
        self._has_finite = self._has_texts = False
        self._whole = self._scale = 0
        """Most digits before and behind the point."""
        self.null_words: set[str] = set()
        """Texts seen that often mean null."""

    def look(self, texts: pa.Array) -> None:
        """Take some more texts of the column into account."""
        texts = pc.unique(texts).drop_null()
        words = texts.filter(pc.is_in(texts, value_set=pa.array(NULL_WORDS)))
        self.null_words.update(words.to_pylist())
        texts = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(NULL_WORDS))))
        if not len(texts):
            return
        self._has_texts = True
        self._is_whole = self._is_whole and pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py()
        self._open = [name for name in self._open if self._fits(name, texts)]

    @property
    def ignoring_null_words(self) -> str:
        """The type if `null_words` meant null; `string` if no other type fits."""
        kinds = [name for name in self._open if self._is_apt(name)] if self._has_texts else []
        if not kinds:
            return "string"
        return f"decimal({_DIGITS}, {self._scale})" if kinds[0] == "decimal" else kinds[0]

    @property
    def type_name(self) -> str:
        """The name of the type; `string` if no other fits, or if the sample has no text."""
        return "string" if self.null_words else self.ignoring_null_words

    def _is_apt(self, name: str) -> bool:
        return name != "float64" or (self._has_finite and not self._is_whole)

    def _fits(self, name: str, texts: pa.Array) -> bool:
        if name == "decimal":
            return self._fits_decimal(texts)
        try:
            values = exact_values(texts, arrow_type(name))
        except MisfitError:
            return False
        if name == "float64":
            self._has_finite = self._has_finite or bool(pc.any(pc.is_finite(values)).as_py())
        return True

    def _fits_decimal(self, texts: pa.Array) -> bool:
        parts = pc.extract_regex(texts, _PLAIN_NUMBER)
        if parts.null_count or pc.any(pc.match_substring_regex(texts, _MINUS_ZERO)).as_py():
            return False
        whole, fraction = (
            pc.max(pc.utf8_length(pc.struct_field(parts, name))).as_py() for name in ("whole", "fraction")
        )
        self._whole, self._scale = max(self._whole, whole), max(self._scale, fraction or 0)
        return self._whole + self._scale <= _DIGITS
