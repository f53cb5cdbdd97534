from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.core.errors import ConvertError
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
