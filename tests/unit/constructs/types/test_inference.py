from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.inference import ColumnGuess


def guess(*texts: str | None, fractions: str = "float64") -> ColumnGuess:
    made = ColumnGuess(fractions)  # type: ignore[arg-type]  # one of the two names
    for text in texts:
        made.look(pa.array([text], pa.string()))
    return made


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (("1", "-2", None), "int64"),
        (("1", "0"), "int64"),
        (("1", "2.50"), "float64"),
        (("NaN", "1"), "float64"),
        (("NaN",), "string"),
        (("-0", "1"), "float64"),
        (("-0.00", "12345678901234567890.5"), "string"),
        (("12345678901234567890", "1"), "decimal(38, 0)"),
        (("10000000000000000000",), "decimal(38, 0)"),
        (("0.1234567890123456789", "12"), "decimal(38, 19)"),
        (("9" * 39,), "string"),
        (("true", "FALSE"), "bool"),
        (("T", "F"), "string"),
        (("2024-01-31", "1999-12-31"), "date"),
        (("2024-01-31", "31.01.2024"), "string"),
        (("2024-01-31", "2024-01-31 10:00"), "string"),
        (("2024-01-31 10:00", "2024-01-31T10:00:00.5"), "timestamp_ntz"),
        (("2024-01-31 10:00Z", "2024-01-31T10:00:00+02:00"), "timestamp"),
        (("2024-01-31 10:00Z", "2024-01-31 10:00"), "string"),
        (("007", "1"), "string"),
        (("+5",), "string"),
        (("1,000",), "string"),
        ((" 5",), "string"),
        (("1e5", "2e5"), "string"),
        (("1e+05", "1"), "float64"),
        ((None,), "string"),
        ((), "string"),
    ],
)
def test_type_holds_every_text_of_the_sample_unaltered(texts: tuple[str | None, ...], kind: str) -> None:
    assert guess(*texts).type_name == kind
    assert guess(*reversed(texts)).type_name == kind


def test_fractions_may_be_decimals_of_the_longest_scale() -> None:
    assert guess("1.50", "12", "0.125", fractions="decimal").type_name == "decimal(38, 3)"
    assert guess("1.5e-3", fractions="decimal").type_name == "float64"


def test_words_that_may_mean_null_keep_a_text_and_are_told() -> None:
    found = guess("1", "NA", "", "2")
    assert (found.type_name, found.ignoring_null_words, found.null_words) == ("string", "int64", {"NA", ""})
    assert guess("NA").ignoring_null_words == "string"
