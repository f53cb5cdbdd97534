"""Which datasets a run is about."""

from __future__ import annotations

import dagster as dg
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.orchestration.partitions import (
    PARTITION_TAG,
    RANGE_TAGS,
    add_partitions,
    missing_keys,
    tagged_keys,
    to_key,
    to_urn,
)

NAME = "numbers.dataset_urn"


def run_with(**tags: str) -> dg.DagsterRun:
    names = {"key": PARTITION_TAG, "first": RANGE_TAGS[0], "last": RANGE_TAGS[1]}
    return dg.DagsterRun(job_name="numbers_job", tags={names[name]: value for name, value in tags.items()})


@pytest.fixture
def filled(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions(NAME, ["d1", "d2", "d3"])
    return instance


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, None),
        ({"key": "d2"}, {"d2"}),
        ({"first": "d2", "last": "d3"}, {"d2", "d3"}),
        ({"first": "d3", "last": "d3"}, {"d3"}),
    ],
    ids=["none", "one", "range", "range-of-one"],
)
def test_tagged_keys_are_those_of_the_run(
    filled: dg.DagsterInstance, tags: dict[str, str], expected: set[str] | None
) -> None:
    assert tagged_keys(filled, run_with(**tags), NAME) == expected


def test_tagged_keys_of_a_reversed_range_are_refused(filled: dg.DagsterInstance) -> None:
    with pytest.raises(UsageError, match="from 'd3' to 'd1', which are in the other order"):
        tagged_keys(filled, run_with(first="d3", last="d1"), NAME)


@pytest.mark.parametrize("tags", [{"key": "gone"}, {"first": "d1", "last": "gone"}], ids=["one", "range"])
def test_tagged_keys_of_an_unknown_partition_are_refused(filled: dg.DagsterInstance, tags: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"partition 'gone', which numbers\.dataset_urn does not have"):
        tagged_keys(filled, run_with(**tags), NAME)


def test_partitions_are_added_sorted_and_once(filled: dg.DagsterInstance) -> None:
    assert missing_keys(filled, NAME, ["z", "d1", "a b", "z"]) == ["a%20b", "z"]
    add_partitions(filled, NAME, ["z", "d1", "a b"])
    assert filled.get_dynamic_partitions(NAME) == ["d1", "d2", "d3", "a%20b", "z"]
    assert missing_keys(filled, NAME, ["a b"]) == []


def test_empty_urn_has_a_key() -> None:
    assert to_urn(to_key("")) == ""
