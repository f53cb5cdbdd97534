from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.exact_text import MisfitError, exact_values


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int64", "007"),
        ("int64", "+5"),
        ("int64", " 5"),
        ("int64", "-0"),
        ("int64", "0x1F"),
        ("int64", "9223372036854775808"),
        ("float64", "0.12345678901234567890"),
        ("float64", "9007199254740993"),
        ("float64", "1e400"),
        ("float64", "1e-400"),
        ("float64", "00.5"),
        ("float64", "+1.5"),
        ("float64", "12e4"),
        ("float64", "NAN"),
        ("decimal(38, 2)", "1.555"),
        ("decimal(38, 0)", "1" + "0" * 39),
        ("decimal(38, 0)", str(2**128 + 7)),
        ("decimal(38, 2)", "07.50"),
        ("decimal(38, 2)", "-0.00"),
        ("bool", "1"),
        ("bool", "yes"),
        ("bool", ""),
        ("date", "2024-02-30"),
        ("date", "0000-01-01"),
        ("date", "20240131"),
        ("timestamp_ntz", "2024-01-31"),
        ("timestamp_ntz", "2024-01-31T10"),
        ("timestamp_ntz", "2024-01-31T10:00:00.1234567"),
        ("timestamp_ntz", "2024-01-31T10:00:00Z"),
        ("timestamp", "2024-01-31T10:00:00"),
    ],
)
def test_text_that_a_type_would_alter_is_refused_with_its_place(kind: str, text: str) -> None:
    good = {"bool": "true", "date": "2024-01-31", "timestamp": "2024-01-31 10:00Z"}.get(kind, "1")
    good = "2024-01-31 10:00" if kind == "timestamp_ntz" else good
    with pytest.raises(MisfitError) as caught:
        exact_values(pa.array([good, None, good, text, good]), arrow_type(kind))
    assert (caught.value.index, caught.value.text) == (3, text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("float64", "1.10", 1.1),
        ("float64", "1e+05", 1e5),
        ("float64", "1.5e3", 1500.0),
        ("float64", ".5", 0.5),
        ("float64", "1.154681084062493923e+00", 1.154681084062493923),
        ("float64", "999999999999998592", 999999999999998592.0),
        ("float64", "0.10000000000000000555", 0.1),
        ("float64", "5.", 5.0),
        ("decimal(38, 2)", "1.1", Decimal("1.10")),
        ("bool", "TRUE", True),
        ("bool", "False", False),
    ],
)
def test_other_spelling_of_the_same_value_is_taken(kind: str, text: str, value: object) -> None:
    assert exact_values(pa.array([text, None]), arrow_type(kind)).to_pylist() == [value, None]


@given(st.lists(st.floats(allow_nan=False) | st.none()))
def test_floats_as_programs_print_them_come_back(values: list[float | None]) -> None:
    texts = pa.array([None if value is None else repr(value) for value in values], pa.string())
    assert exact_values(texts, pa.float64()).to_pylist() == values


@given(st.lists(st.text("0123456789.-+eE", min_size=1, max_size=25)))
def test_no_text_is_read_as_another_number(texts: list[str]) -> None:
    with suppress(MisfitError):
        values = exact_values(pa.array(texts, pa.string()), pa.float64())
        for value, text in zip(values.to_pylist(), texts, strict=True):
            digits = max(len(Decimal(text).as_tuple().digits), 17)
            assert Decimal(text) in (Decimal(repr(value)), Decimal(f"{value:.{digits - 1}e}"))
