from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.exact_text import MisfitError, exact_values
from gobblin_dagster.constructs.types.inference import NULL_WORDS, ColumnGuess
from gobblin_dagster.constructs.types.wider import is_wider


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


SAID = {
    "text": "string",
    "1.1, 2.5": "float64",
    "decimal": "decimal",
    "boolean": "bool",
    "integer": "int64",
    "date": "date",
    "time without a zone": "timestamp_ntz",
    "instant": "timestamp",
    "NaN, 1.5": "float64",
    "-0.0, 1.0": "float64",
}
"""Types, by how the page of schemas begins to tell them."""


def test_types_are_those_that_the_comparison_with_dlt_tells() -> None:
    page = Path(__file__).parents[4] / "docs/concepts/schemas.md"
    rows = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| ([^|]+) \|[^|]+\|$", page.read_text(), re.MULTILINE)
    assert len(rows) == 17
    for texts, told in rows:
        found = guess(*re.findall("`([^`]+)`", texts)).type_name
        said = max((words for words in SAID if told.startswith(words)), key=len)
        assert found.partition("(")[0] == SAID[said], (texts, told)


_TEXTS = (
    st.text("0123456789.-+eEnNiIaAfF", min_size=1, max_size=8)
    | st.sampled_from(["true", "False", "TRUE", "nan", "-inf", "Infinity"])
    | st.datetimes().map(lambda at: str(at.date()))
    | st.builds("{}{}".format, st.datetimes().map(str), st.sampled_from(["", "Z", "+02:00"]))
)


@given(st.lists(_TEXTS.filter(lambda text: text not in NULL_WORDS), min_size=1, max_size=3))
def test_type_is_the_first_that_converts_all_texts(texts: list[str]) -> None:
    """Whatever rules types out beforehand; fractions apart, which decimals and whole numbers take part in."""
    kinds = []
    for kind in ("bool", "int64", "float64", "date", "timestamp_ntz", "timestamp"):
        with suppress(MisfitError):
            exact_values(pa.array(texts), arrow_type(kind))
            kinds.append(kind)
    found = guess(*texts).type_name
    if found == "string":
        assert not set(kinds) - {"float64"}
        assert "float64" not in kinds or not any(re.search(r"\d[.eE]", text) for text in texts)
    elif not found.startswith("decimal"):
        assert found == kinds[0]


def test_fractions_may_be_decimals_of_the_longest_scale() -> None:
    found = guess("1.50", "12", "0.125", fractions="decimal")
    assert found.type_name == "decimal(23, 3)"
    assert guess("0.1234", "1").widened(found.type_name) == "decimal(24, 4)"
    assert guess("0.125", "1" * 20, fractions="decimal").type_name == "decimal(38, 3)"
    assert guess("0." + "1" * 25, fractions="decimal").type_name == "decimal(38, 25)"
    assert guess("1.5e-3", fractions="decimal").type_name == "float64"


def test_words_that_may_mean_null_keep_a_text_and_are_told() -> None:
    found = guess("1", "NA", "", "2")
    assert (found.type_name, found.ignoring_null_words, found.null_words) == ("string", "int64", {"NA", ""})
    assert guess("NA").ignoring_null_words == "string"


@pytest.mark.parametrize(
    ("known", "texts", "wider"),
    [
        ("int64", ["5.5", "1"], "decimal(21, 1)"),
        ("int64", ["9223372036854775808"], "decimal(20, 0)"),
        ("int64", ["9223372036854775807", "-1"], None),
        ("int64", ["5.5", "NA"], None),
        ("int64", ["5.5", "x"], None),
        ("int64", ["0.1234567890123456789"], None),
        ("decimal(21, 1)", ["1", "2.5"], None),
        ("decimal(21, 1)", ["2.25"], "decimal(22, 2)"),
        ("decimal(21, 1)", ["1" * 30], "decimal(31, 1)"),
        ("decimal(38, 2)", ["2.125"], None),
        ("float64", ["x"], None),
        ("date", ["2024-01-31 10:00"], None),
    ],
)
def test_only_numbers_widen_and_hold_all_they_held(known: str, texts: list[str], wider: str | None) -> None:
    assert guess(*texts).widened(known) == wider
    assert wider is None or is_wider(arrow_type(wider), arrow_type(known))
