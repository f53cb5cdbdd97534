"""Find the watermark of a work unit after some of its files were read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gobblin_dagster.core.watermark import NameWatermark, TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.file_set import FileSetWatermark
from gobblin_dagster.core.work_unit import WorkUnit


def position_behind(unit: WorkUnit, files: Sequence[Mapping[str, Any]], done: int) -> Watermark | None:
    """Return the watermark behind the first `done` files of a work unit; None if there is none at this place.

    By date, there is none between files of one date. By name, it is the position behind the last name. If files are
    remembered one by one, it is the set of the files read.
    """
    if done in (0, len(files)):
        return unit.low if not done else unit.expected_high
    low, high = unit.low, unit.expected_high
    root = str(unit.read.get("root", ""))
    if isinstance(high, NameWatermark):
        return NameWatermark.after(files[done - 1]["path"].removeprefix(root))
    if isinstance(low, FileSetWatermark) and isinstance(high, FileSetWatermark) and high.files:
        read = {file["path"].removeprefix(root) for file in files[:done]}
        # The date before which all is committed moves on only with the whole unit.
        return FileSetWatermark({name: (high if name in read else low).files[name] for name in high.files}, low.before)
    before, after = files[done - 1].get("date"), files[done].get("date")
    if before is None or after is None or not _instant(before) < _instant(after):
        return None
    if isinstance(high, TimestampWatermark):
        return TimestampWatermark(_instant(after))
    return FileSetWatermark({}, _instant(after)) if isinstance(high, FileSetWatermark) else None


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)
