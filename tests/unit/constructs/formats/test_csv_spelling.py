from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.csv_spelling import Spelling
from gobblin_dagster.constructs.types.inference import ColumnGuess

GERMAN = Spelling(",", "%d.%m.%Y")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1,5", "2"], "float64"),
        (["1.000", "2,5"], "string"),
        (["1.5"], "string"),
        (["0,12345678901234567890"], "decimal(38, 20)"),
        (["12", "-7"], "int64"),
        (["31.01.2024", "2024-02-01"], "date"),
        (["31.13.2024"], "string"),
        (["1.2.2024"], "string"),
        (["31.01.2024 10:00", "01.02.2024 11:00:05"], "timestamp_ntz"),
        (["31.01.2024T10:00Z"], "timestamp"),
    ],
)
def test_types_are_guessed_of_texts_as_they_are_spelt(texts: list[str], kind: str) -> None:
    guess = ColumnGuess(usual=GERMAN.usual)
    guess.look(pa.array(texts))
    assert guess.type_name == kind


def test_numbers_with_commas_widen() -> None:
    guess = ColumnGuess(usual=GERMAN.usual)
    guess.look(pa.array(["5,25", "1"]))
    assert guess.widened("int64") == "decimal(22, 2)"
    assert guess.widened("decimal(22, 2)") is None


@pytest.mark.parametrize(
    ("form", "text"),
    [("%m/%d/%Y", "01/31/2024"), ("%d-%m-%Y", "31-01-2024"), ("%Y/%m/%d", "2024/01/31"), ("%d%m%Y", "31012024")],
)
def test_days_of_each_form_get_the_order_of_iso(form: str, text: str) -> None:
    assert Spelling(date_format=form).usual(pa.array([text]), pa.date32()).to_pylist() == ["2024-01-31"]
    assert Spelling(date_format=form).usual(pa.array([text]), pa.string()).to_pylist() == [text]
