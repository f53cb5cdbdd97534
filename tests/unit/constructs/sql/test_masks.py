from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch


def test_masks_count_null_as_false() -> None:
    masks = SqlMasks(["a > 1", "a IS NULL"], "policy", CONTEXT).masks(batch({"a": [1, 2, None]}))
    assert [mask.to_pylist() for mask in masks] == [[False, True, False], [False, False, True]]
    assert all(mask.null_count == 0 for mask in masks)


def test_mask_that_is_not_boolean_is_refused_before_any_row() -> None:
    masks = SqlMasks(["a > 1", "a + 1"], "policy", CONTEXT)
    with pytest.raises(ConvertError, match=r"'a \+ 1': expected one boolean, got int64"):
        masks.check(pa.schema([("a", pa.int64())]))


def test_condition_that_aggregates_is_refused_also_where_a_batch_has_one_row() -> None:
    for text in ("count(*) > 0", "max(a) IS NULL OR a > 1"):
        with pytest.raises(ConvertError, match="conditions must not aggregate"):
            SqlMasks([text], "policy", CONTEXT).masks(batch({"a": [1]}))
    of_a_list = SqlMasks(["(SELECT sum(x) FROM unnest(l) t(x)) > 2"], "policy", CONTEXT)
    assert of_a_list.masks(batch({'q"': [1, 2], "l": [[1, 2], [1]]}))[0].to_pylist() == [True, False]


def test_mask_that_smuggles_a_second_column_is_refused() -> None:
    with pytest.raises(ConvertError, match="expected one boolean, got bool, bool"):
        SqlMasks(["true) AS a, (false"], "policy", CONTEXT).masks(batch({"a": [1]}))


def test_masks_blame_the_expression_that_failed() -> None:
    masks = SqlMasks(["a = 'x'", "a::INTEGER = 1"], "policy", CONTEXT)
    with pytest.raises(ConvertError, match=r"'a::INTEGER = 1'.*Could not convert string 'x'") as caught:
        masks.masks(batch({"a": ["1", "x"]}))
    assert "a = 'x'" not in str(caught.value)
