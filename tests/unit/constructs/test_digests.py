from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.digests import KeyDigests, mixed, seed_of, shares
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch


def digests(**columns: object) -> list[int]:
    made = KeyDigests(list(columns), "test", CONTEXT)
    return [int(one) for one in made.of(batch(columns))]


def test_digests_are_those_of_every_run_and_machine() -> None:
    assert digests(a=["x", "y"]) == digests(b=["x", "y"])  # whatever the column is called
    assert digests(a=[1])[0] == digests(a=["1"])[0]
    assert len({*digests(a=["x", "y", None])}) == 3
    assert digests(a=["x"], b=["y"]) != digests(a=["xy"], b=[""])


def test_missing_key_is_refused() -> None:
    with pytest.raises(ConvertError, match="expected column 'z'"):
        KeyDigests(["z"], "test", CONTEXT).check(pa.schema([("a", pa.int64())]))


def test_numbers_are_spread_over_the_unit_evenly_and_otherwise_by_another_seed() -> None:
    numbers = np.arange(10_000, dtype=np.uint64)
    places = shares(mixed(numbers, seed_of(0)))
    assert 0 <= places.min() <= places.max() < 1
    assert [round(float((places < share).mean()), 1) for share in (0.1, 0.5, 0.9)] == [0.1, 0.5, 0.9]
    assert (places != shares(mixed(numbers, seed_of(1)))).all()
