"""Spelling: how a CSV file writes numbers and days, and the same values as other programs write them.

Texts that already are as other programs write them, such as `2024-01-31`, stay; a number with the other mark, which
separates thousands where commas are decimal, becomes no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator

DecimalPoint: TypeAlias = Literal[".", ","]
_DIGITS = {"%d": r"(\d\d)", "%m": r"(\d\d)", "%Y": r"(\d{4})"}
_PARTS = re.compile("(%[dmY])")


def _known(form: str) -> str:
    if sorted(_PARTS.findall(form)) != sorted(_DIGITS) or not set(_PARTS.sub("", form)) <= set("./- "):
        raise ValueError(f"expected %d, %m and %Y once each, with one of . / - between, such as %d.%m.%Y; got {form!r}")
    return form


DateFormat: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Form of days: `%d`, `%m` and `%Y`, each once."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the texts of a file write numbers and days.

    Args:
        decimal_point: between the whole part and the fraction of a number.
        date_format: form of days, also in front of times; None: as ISO 8601 has them.
    """

    decimal_point: DecimalPoint = "."
    date_format: str | None = None

    def usual(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the texts of a type's values with a decimal point, and days in ISO's order.

        Example:
            >>> german = Spelling(",", "%d.%m.%Y")
            >>> german.usual(pa.array(["1,5", "1.000", None]), pa.float64()).to_pylist()
            ['1.5', '1,000', None]
            >>> german.usual(pa.array(["31.01.2024", "2024-01-31", "1.2.24"]), pa.date32()).to_pylist()
            ['2024-01-31', '2024-01-31', '1.2.24']
        """
        if self.decimal_point == "," and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            # Through a letter that no number has, because the two marks change places.
            for found, written in ((".", "\0"), (",", "."), ("\0", ",")):
                texts = pc.replace_substring(texts, found, written)
        if self.date_format is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            parts = _PARTS.split(self.date_format)
            pattern = "".join(_DIGITS.get(part, re.escape(part)) for part in parts)
            places = {part: number for number, part in enumerate(parts[1::2], 1)}
            iso = "-".join(rf"\{places[part]}" for part in ("%Y", "%m", "%d"))
            texts = pc.replace_substring_regex(texts, rf"^{pattern}($|[ T])", rf"{iso}\4")
        return texts
