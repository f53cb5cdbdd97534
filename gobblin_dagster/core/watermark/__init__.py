"""Watermarks: positions in a dataset, and intervals of them. Importing this package registers every built-in type.

Read first: `base`.
"""

from __future__ import annotations

from gobblin_dagster.core.watermark.base import (
    Position,
    Ranges,
    Watermark,
    register_watermark_type,
    same_type,
    typed_json,
    watermark_from_json,
    watermark_type,
)
from gobblin_dagster.core.watermark.types import (
    CompositeWatermark,
    DateWatermark,
    HourWatermark,
    LongWatermark,
    NameWatermark,
    SingleWatermark,
    TimestampWatermark,
)

__all__ = [
    "CompositeWatermark",
    "DateWatermark",
    "HourWatermark",
    "LongWatermark",
    "NameWatermark",
    "Position",
    "Ranges",
    "SingleWatermark",
    "TimestampWatermark",
    "Watermark",
    "register_watermark_type",
    "same_type",
    "typed_json",
    "watermark_from_json",
    "watermark_type",
]

for _cls in (LongWatermark, TimestampWatermark, DateWatermark, HourWatermark, NameWatermark, CompositeWatermark):
    register_watermark_type(_cls)
