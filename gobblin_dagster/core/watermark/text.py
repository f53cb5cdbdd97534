"""Watermarks as people write them on the command line."""

from __future__ import annotations

from datetime import datetime

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.core.watermark import CompositeWatermark, LongWatermark, NameWatermark, Watermark
from gobblin_dagster.core.watermark.file_set import FileSetSummary, FileSetWatermark


def parse_watermark(kind: type[Watermark], text: str) -> Watermark:
    """Parse a watermark as people write it.

    Examples of texts: `42`, `2013-01-31`, `2013-01-31T05:00:00Z`, `{"0": 5, "1": 9}`, `after b.csv`. A time without a
    zone is taken as UTC.

    Raises:
        UsageError: the text is no watermark of this type.
    """
    if kind in (FileSetWatermark, FileSetSummary):
        raise UsageError(
            problem="The watermark of this dataset is a set of files; it cannot be written by hand.",
            hint="`gobblin state reset` lets the next run read every file again.",
        )
    try:
        if kind is CompositeWatermark:
            return CompositeWatermark(parse_json(text))
        if kind is LongWatermark:
            return LongWatermark(int(text))
        if kind is NameWatermark and text.startswith("after "):  # as `NameWatermark.__str__` writes it
            return NameWatermark.after(text.removeprefix("after "))
        return kind.from_components({"": kind.position_from_json(_with_zone(kind, text))})
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        what = f"{text!r} is no watermark of type {kind.type_name!r}"
        if example := _EXAMPLES.get(kind.type_name):
            raise UsageError(problem=f"{what}.", hint=f"Write it as {example}.") from None
        raise UsageError(problem=f"{what}: {error}.") from None


_EXAMPLES = {
    "long": "42",
    "date": "2013-01-31",
    "timestamp": "2013-01-31T05:00:00Z (without a zone: UTC)",
    "hour": "2013-01-31T05:00Z (a whole hour; without a zone: UTC)",
    "composite": '{"0": 5, "1": 9}, a position for each part',
    "table_snapshot": "3@8723, a snapshot's number and id",
}
"""An example of each watermark type, for messages."""


def _with_zone(kind: type[Watermark], text: str) -> str:
    if kind.type_name not in ("timestamp", "hour"):
        return text
    instant = datetime.fromisoformat(text)
    return text if instant.tzinfo else f"{instant.isoformat()}Z"
