from __future__ import annotations

from pydantic import TypeAdapter

from gobblin_dagster.core.watermark import LongWatermark, Watermark
from gobblin_dagster.core.watermark.fields import AnyRanges, AnyWatermark
from gobblin_dagster.core.watermark.file_set import FileSetWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges


def test_watermark_of_any_type_is_stored_with_its_type_and_comes_back() -> None:
    field: TypeAdapter[Watermark] = TypeAdapter(AnyWatermark)
    mark = LongWatermark(7)
    assert field.dump_python(mark)["type"] == "long"
    assert field.validate_json(field.dump_json(mark)) == mark
    assert field.validate_python(mark) is mark


def test_ranges_of_a_type_that_nobody_imported_come_back() -> None:
    field: TypeAdapter[CommittedRanges] = TypeAdapter(AnyRanges)
    for ranges in (CommittedRanges(LongWatermark, {"": ((1, 2), (4, 9))}), CommittedRanges(FileSetWatermark, {})):
        assert field.validate_json(field.dump_json(ranges)) == ranges
