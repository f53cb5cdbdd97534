"""Each type of Arrow, in a Delta and an Iceberg table: its values come back, or its column is refused by the plan."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.spec.job import ConstructSpec
from tests.unit.constructs.publishers.lake import STORAGE, Lake

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UUIDS = pa.array([b"1234567890123456", None], pa.binary(16))
TIMES = {"time_s": pa.time32("s"), "time_us": pa.time64("us"), "time_ns": pa.time64("ns")}
DURATIONS = {f"duration_{unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")}
UNSIGNED = {str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())}
DECIMALS = {"decimal32": pa.decimal32(5, 2), "decimal64": pa.decimal64(12, 2), "decimal256": pa.decimal256(50, 3)}
EXTENSIONS: dict[str, pa.Array] = {
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), UUIDS),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None])),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2], None], pa.list_(pa.int32(), 2))
    ),
}
EXTENSIONS["uuids"] = pa.ListArray.from_arrays(pa.array([0, 2, 2]), EXTENSIONS["uuid"])
EXTENSIONS["jsons"] = pa.StructArray.from_arrays([EXTENSIONS["json"]], ["j"])
COLUMNS: dict[str, pa.Array] = {
    **{
        name: pa.array([1, None], kind)
        for name, kind in {
            **{str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
            **UNSIGNED,
            **TIMES,
            **DURATIONS,
        }.items()
    },
    **{name: pa.array([Decimal(100), None], kind) for name, kind in DECIMALS.items()},
    "decimal": pa.array([Decimal(100), None], pa.decimal128(38, 2)),
    "half": pa.array([1.0, None], pa.float32()).cast(pa.float16()),
    "bool": pa.array([True, None]),
    "text": pa.array(["a", None]),
    "long_text": pa.array(["a", None], pa.large_string()),
    "bytes": pa.array([b"abc", None]),
    "three_bytes": pa.array([b"abc", None], pa.binary(3)),
    "day": pa.array([date(2026, 1, 1), None]),
    "day_ms": pa.array([date(2026, 1, 1), None], pa.date64()),
    **{f"clock_{unit}": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp(unit)) for unit in ("s", "ms", "us")},
    **{f"instant_{unit}": pa.array([NOON, None], pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us")},
    "berlin": pa.array([NOON, None], pa.timestamp("us", "Europe/Berlin")),
    "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
    "long_list": pa.array([[1, 2], None], pa.large_list(pa.int32())),
    "pair": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"x": 1}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
    **EXTENSIONS,
}
"""Left out: types that the writer does not write (intervals, unions), and those that only newer Iceberg tables hold."""
ALWAYS = {*DURATIONS, *DECIMALS}
OF_DELTA = {*ALWAYS, *TIMES, *UNSIGNED, "half", "uuid", "uuids", "jsons", "tensor"}
OF_ICEBERG = {*ALWAYS, "time_s", "time_ns", "json", "jsons", "bool8", "tensor"}


@pytest.mark.parametrize(
    ("kind", "mode", "refused"),
    [
        ("delta", "append", OF_DELTA | {"berlin"}),
        ("delta", "merge", OF_DELTA),
        ("delta", "scd2", OF_DELTA | {"json", "bool8"}),
        ("iceberg", "append", OF_ICEBERG | {"berlin", "half"}),
        ("iceberg", "merge", OF_ICEBERG),
        ("iceberg", "scd2", OF_ICEBERG | {"uuids"}),
    ],
)
def test_values_of_each_type_come_back_or_the_plan_names_column_and_type(
    tmp_path: Path, kind: str, mode: str, refused: set[str]
) -> None:
    lake = Lake(kind, tmp_path)
    how: dict[str, Any] = {"mode": mode, "key": [] if mode == "append" else ["id"]}
    spec = ConstructSpec.model_validate({"type": kind, **lake.options, **how})
    context = ConstructContext(job="numbers", base_dir=str(tmp_path), dataset_urn="c", branch="all")
    judge = registry.create(ConstructKind.PUBLISHER, spec, context)
    ids = pa.array([1, 2])
    said = {
        name: judge.unfit_columns(Extract("test", "numbers"), pa.schema({"id": pa.int64(), name: column.type}))
        for name, column in COLUMNS.items()
    }
    assert {name for name, why in said.items() if why} == refused
    for name in refused:
        assert said[name].startswith(f"column {name!r} is {COLUMNS[name].type}, ")
    whole = pa.table({"id": ids, **{name: column for name, column in COLUMNS.items() if name not in refused}})
    lake.step(whole, in_place=mode == "append", **how).execute(STORAGE)
    if mode != "append":
        lake.step(whole, **how).execute(STORAGE)  # compared with the rows that are there
    expected = whole.set_column(whole.schema.get_field_index("id"), "id", ids)
    found = [{name: row[name] for name in expected.schema.names} for row in lake.rows()]
    assert found == expected.to_pylist()
