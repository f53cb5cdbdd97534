from __future__ import annotations

from hashlib import md5

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.secrets import forget, hidden, remember
from tests.unit.constructs.samples import CONTEXT, batch


def _select(text: str) -> SqlSelect:
    return SqlSelect(text, "converter 'test'", CONTEXT)


def test_error_names_dataset_expression_columns_and_cause() -> None:
    with pytest.raises(ConvertError) as caught:
        _select("dep_tme + 1").schema(pa.schema([("dep_time", pa.int32()), ("dest", pa.string())]))
    text = str(caught.value)
    assert "'AA/EWR'" in text
    assert "'dep_tme + 1'" in text
    assert 'Referenced column "dep_tme" not found' in text
    assert text.endswith("columns: dep_time, dest")
    assert "LINE" not in text


def test_error_text_is_bounded() -> None:
    wide = pa.schema([(f"column_{at}", pa.int32()) for at in range(1000)])
    with pytest.raises(ConvertError, match=r"\(1000 in all\)") as caught:
        _select("x" * 10_000).schema(wide)
    assert len(str(caught.value)) < 1500


def test_comment_at_the_end_is_harmless() -> None:
    assert _select("a + 1 AS b -- one more").run(batch({"a": [1]})).to_pylist() == [{"b": 2}]


@pytest.mark.parametrize("made", ["upper('s3cr3t-word')", "reverse('s3cr3t-word')", "md5('s3cr3t-word')"])
def test_what_an_expression_makes_of_a_secret_is_in_no_message(made: str) -> None:
    remember({"s3cr3t-word": "${WORD}"})
    try:
        with pytest.raises(ConvertError, match="Error; what it says is left out") as caught:
            _select(f"{made}::int + a").run(batch({"a": [1]}))
        with pytest.raises(ConvertError, match="noname does not exist"):
            _select(f"noname({made})").run(batch({"a": [1]}))
        told = hidden(str(caught.value)).lower()
    finally:
        forget()
    assert "${word}" in told
    assert not [one for one in ("s3cr3t", "drow-t3rc3s", md5(b"s3cr3t-word").hexdigest()) if one in told]
