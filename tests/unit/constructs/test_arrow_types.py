from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.arrow_types import arrow_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int64", pa.int64()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("decimal( 9 ,2 )", pa.decimal128(9, 2)),
    ],
)
def test_arrow_type_known_name_is_its_type(name: str, expected: pa.DataType) -> None:
    assert arrow_type(name) == expected


@pytest.mark.parametrize("name", ["integer", "decimal(39,0)", "decimal(4,5)", "decimal(0,0)", ""])
def test_arrow_type_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown column type .*; known: string, bool, int8"):
        arrow_type(name)
