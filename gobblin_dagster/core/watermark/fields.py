"""Field types for stored values: a watermark, or committed ranges, of any registered type."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import PlainSerializer, PlainValidator

import gobblin_dagster.core.watermark.file_set  # registers its watermark types, which a stored value may have
import gobblin_dagster.core.watermark.table_snapshot  # noqa: F401  # as above
from gobblin_dagster.core.watermark import Watermark, watermark_from_json
from gobblin_dagster.core.watermark.ranges import CommittedRanges


def _load_watermark(raw: Any) -> Watermark:
    return raw if isinstance(raw, Watermark) else watermark_from_json(raw)


def _load_ranges(raw: Any) -> CommittedRanges:
    return raw if isinstance(raw, CommittedRanges) else CommittedRanges.from_json(raw)


AnyWatermark: TypeAlias = Annotated[
    Watermark, PlainValidator(_load_watermark), PlainSerializer(lambda mark: mark.to_json(), return_type=dict)
]
"""A watermark of any registered type, stored with its type name."""


AnyRanges: TypeAlias = Annotated[
    CommittedRanges, PlainValidator(_load_ranges), PlainSerializer(lambda ranges: ranges.to_json(), return_type=dict)
]
"""Committed ranges of any registered watermark type, stored with the type's name."""
