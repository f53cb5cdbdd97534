"""Forks that deal rows out: by hash, by share, in turn; and by a user's class."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ForkOperator
from gobblin_dagster.core.errors import ConvertError, ForkBranchMismatchError, InvalidSpecError, UsageError
from gobblin_dagster.spec.job import ConstructSpec
from tests.unit.constructs.samples import CONTEXT, batch

KEYS = batch({"n": list(range(10_000)), "key": [f"k{at % 500}" for at in range(10_000)]})
HERE = "tests.unit.constructs.user_code"


def _fork(spec: dict[str, Any], branches: tuple[str, ...] = ("a", "b")) -> ForkOperator:
    made: ForkOperator = registry.create(
        ConstructKind.FORK, ConstructSpec.model_validate(spec), CONTEXT, branches=branches
    )
    return made


def _taken(fork: ForkOperator, rows: pa.RecordBatch) -> list[list[int]]:
    """Return the numbers of the rows that each branch takes."""
    fork.fork_schema(rows.schema)
    return [rows.filter(mask).column("n").to_pylist() for mask in fork.fork_batch(rows)]


def test_hash_gives_each_row_to_one_branch_and_each_key_to_the_same() -> None:
    taken = _taken(_fork({"type": "hash", "by": ["key"]}, ("a", "b", "c")), KEYS)
    assert sorted(n for rows in taken for n in rows) == list(range(10_000))
    keys = [{n % 500 for n in rows} for rows in taken]
    assert sum(map(len, keys)) == 500
    assert all(120 < len(one) < 220 for one in keys)


def test_hash_depends_on_the_key_alone() -> None:
    whole = _taken(_fork({"type": "hash", "by": ["key"]}), KEYS)
    fork = _fork({"type": "hash", "by": ["key"]})
    parts = [_taken(fork, KEYS.slice(at, 1234)) for at in range(0, 10_000, 1234)]
    assert [[n for part in parts for n in part[branch]] for branch in range(2)] == whole
    renamed = pa.RecordBatch.from_arrays(KEYS.columns, names=["n", "other"])
    assert _taken(_fork({"type": "hash", "by": ["other"]}), renamed) == whole
    assert _taken(_fork({"type": "hash", "by": ["key"], "seed": 1}), KEYS) != whole


def test_hash_stays_the_same_in_later_versions() -> None:
    assert [n for n in _taken(_fork({"type": "hash", "by": ["key"]}), KEYS)[0] if n < 12] == [1, 2, 4, 6, 9, 10]


def test_hash_with_weights_deals_keys_out_by_them() -> None:
    first, second, none = _taken(
        _fork({"type": "hash", "by": ["n"], "weights": {"a": 9, "b": 1, "c": 0}}, ("a", "b", "c")), KEYS
    )
    assert len(first) + len(second) == 10_000
    assert 800 < len(second) < 1200
    assert none == []


def test_hash_takes_null_as_a_key() -> None:
    rows = batch({"n": [1, 2], "key": pa.array([None, None], pa.string())})
    assert sorted(map(len, _taken(_fork({"type": "hash", "by": ["key"]}), rows))) == [0, 2]


def test_sample_takes_shares_that_are_no_parts_of_one_another() -> None:
    fork = {"type": "sample", "ratios": {"a": 0.5, "b": 0.5, "all": 1, "none": 0}}
    first, second, whole, none = _taken(_fork(fork, ("a", "b", "all", "none")), KEYS)
    assert 4800 < len(first) < 5200
    assert 2300 < len(set(first) & set(second)) < 2700
    assert (len(whole), none) == (10_000, [])


def test_sample_of_a_retry_is_the_same_however_rows_come_in_batches() -> None:
    spec = {"type": "sample", "ratios": {"a": 0.1, "b": 0.2}}
    whole, fork = _taken(_fork(spec), KEYS), _fork(spec)
    parts = [_taken(fork, KEYS.slice(at, 999)) for at in range(0, 10_000, 999)]
    assert [[n for part in parts for n in part[branch]] for branch in range(2)] == whole


def test_sample_by_key_takes_all_rows_of_a_key() -> None:
    first, _ = _taken(_fork({"type": "sample", "ratios": {"a": 0.2, "b": 1}, "by": ["key"]}), KEYS)
    assert len(first) == 20 * len({n % 500 for n in first})


def test_round_robin_goes_on_in_turn_over_batches() -> None:
    fork = _fork({"type": "round_robin"}, ("a", "b", "c"))
    assert _taken(fork, KEYS.slice(0, 4)) == [[0, 3], [1], [2]]
    assert _taken(fork, KEYS.slice(4, 4)) == [[6], [4, 7], [5]]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "hash", "by": ["key"], "weights": {"a": 1}}, "one weight per branch: without weight: b"),
        ({"type": "sample", "ratios": {"a": 1, "b": 1, "c": 1}}, "one ratio per branch: .*without branch: c"),
    ],
    ids=str,
)
def test_shares_that_do_not_name_the_branches_are_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        _fork(spec)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"type": "hash", "by": ["key"], "weights": {"a": -1, "b": 2}}, "expected weights of 0 or more"),
        ({"type": "hash", "by": []}, "at least 1"),
        ({"type": "sample", "ratios": {"a": 1.5}}, "expected ratios from 0 to 1, got a: 1.5"),
    ],
    ids=str,
)
def test_shares_that_are_none_are_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpecError, match=problem):
        _fork(spec)


@pytest.mark.parametrize(
    "spec", [{"type": "hash", "by": ["x"]}, {"type": "sample", "ratios": {"a": 1, "b": 1}, "by": ["x"]}], ids=str
)
def test_key_that_is_not_there_is_named(spec: dict[str, Any]) -> None:
    with pytest.raises(ConvertError, match=f"fork operator '{spec['type']}': expected column 'x'; found: n, key"):
        _taken(_fork(spec), KEYS)


NUMBERS = batch({"n": [1, 2, 3, 12, 13]})


def test_class_of_ones_own_sees_one_record_after_the_other() -> None:
    fork = _fork({"type": "records", "operator": f"{HERE}:ByParity", "options": {"bound": 12}})
    assert fork.fork_schema(NUMBERS.schema) == (True, True)
    assert _taken(fork, NUMBERS) == [[2, 12], [12, 13]]
    assert pc.sum(NUMBERS.column("n")).as_py() == 31
    assert _taken(fork, NUMBERS.slice(0, 0)) == [[], []]


def test_class_of_ones_own_says_which_branches_exist() -> None:
    assert _fork({"type": "records", "operator": f"{HERE}:FirstOnly"}).fork_schema(NUMBERS.schema) == [True, False]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "None; expected a list of True and False"),
        ("10", "'10'; expected"),
        ({"eu": True, "us": False}, "{'eu': True, 'us': False}; expected"),
        (["true", "false"], "'true' among its flags; expected"),
        ([True, 0.5], "0.5 among its flags; expected"),
    ],
)
def test_class_that_returns_no_flags_is_told_what_it_returned(returned: Any, problem: str) -> None:
    spec = {"type": "records", "operator": f"{HERE}:OtherFlags"}
    with pytest.raises(
        ConvertError, match=re.escape(f"file f, fork operator 'records': row 1: fork_record returned {problem}")
    ):
        on_rows(
            _fork(spec | {"options": {"record": returned}}).fork_batch, Chunk(NUMBERS, "f", pa.array([1, 2, 3, 4, 5]))
        )
    with pytest.raises(ConvertError, match=re.escape(f"fork operator 'records': fork_schema returned {problem}")):
        _fork(spec | {"options": {"schema": returned}}).fork_schema(NUMBERS.schema)


def test_class_may_return_none_and_numbers_for_flags() -> None:
    fork = _fork({"type": "records", "operator": f"{HERE}:OtherFlags", "options": {"record": [1, None]}})
    assert _taken(fork, NUMBERS) == [[1, 2, 3, 12, 13], []]


def test_class_with_too_few_flags_names_both_numbers() -> None:
    with pytest.raises(ForkBranchMismatchError, match="returned 1 record flags for 2 branches"):
        _fork({"type": "records", "operator": f"{HERE}:OneFlag"}).fork_batch(NUMBERS)


def test_class_that_raises_names_the_row() -> None:
    fork = _fork({"type": "records", "operator": f"{HERE}:ByParity"})
    with pytest.raises(ConvertError, match="file f, fork operator 'records': row 8: fork_record raised TypeError"):
        on_rows(fork.fork_batch, Chunk(batch({"n": [1, None]}), "f", pa.array([7, 8])))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"operator": f"{HERE}:NoForkRecord"}, "has no method fork_record"),
        ({"operator": f"{HERE}:Misspelt"}, "has fork_shema, which is never called"),
        ({"operator": f"{HERE}:Nothing"}, "cannot load"),
        ({"operator": f"{HERE}:ByParity", "options": {"x": 1}}, "cannot be made"),
    ],
    ids=str,
)
def test_class_that_is_no_fork_operator_is_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        _fork({"type": "records"} | spec)
