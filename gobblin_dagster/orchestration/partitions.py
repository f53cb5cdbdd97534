"""Convert between dataset.urns and Dagster's partition keys, and find the partitions of a run."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.urn import DatasetUrn

PARTITION_TAG = "dagster/partition"
RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def to_key(dataset_urn: str) -> str:
    """Return the partition key of a dataset."""
    return DatasetUrn(dataset_urn).partition_key


def to_urn(key: str) -> str:
    """Return the dataset.urn of a partition key."""
    return DatasetUrn.from_key(key).value


def tagged_keys(instance: dg.DagsterInstance, run: dg.DagsterRun, partitions_name: str) -> frozenset[str] | None:
    """Return the partition keys that a run was launched for; None if it was launched without partitions.

    The keys of a range are in the order of their creation, as in Dagster.

    Raises:
        UsageError: a key is unknown, or the range ends before it begins (Dagster would succeed without any key).
    """
    tags = [run.tags[tag] for tag in (PARTITION_TAG, *RANGE_TAGS) if tag in run.tags]
    if not tags:
        return None
    known = list(instance.get_dynamic_partitions(partitions_name))
    unknown = [key for key in tags if key not in known]
    if unknown:
        raise UsageError(
            problem=f"The run is for partition {unknown[0]!r}, which {partitions_name} does not have.",
            hint="It was deleted or never existed. A run of all datasets adds the partitions of those that exist.",
        )
    first, last = known.index(tags[0]), known.index(tags[-1])
    if first > last:
        raise UsageError(
            problem=f"The run is for partitions from {tags[0]!r} to {tags[-1]!r}, which are in the other order.",
            hint="Partitions are ordered by the time at which they were added; swap the two.",
        )
    return frozenset(known[first : last + 1])


def add_partitions(instance: dg.DagsterInstance, partitions_name: str, urns: Iterable[str]) -> None:
    """Add partitions for datasets that have none yet."""
    new = missing_keys(instance, partitions_name, urns)
    if new:
        instance.add_dynamic_partitions(partitions_name, new)


def missing_keys(instance: dg.DagsterInstance, partitions_name: str, urns: Iterable[str]) -> list[str]:
    """Return the sorted partition keys of datasets that have no partition yet."""
    return sorted({to_key(urn) for urn in urns} - {*instance.get_dynamic_partitions(partitions_name)})
