"""Make the publishers of a job's branches: on the driver, for whoever asks something of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import UnionType

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext, DataPublisher
from gobblin_dagster.spec.job import BranchSpec, JobSpec, SchemaContract


def each_publisher(
    job: JobSpec, context: ConstructContext, kind: UnionType | type | None = None
) -> Iterator[tuple[BranchSpec, DataPublisher]]:
    """Yield each branch with its publisher; raises as `Registry.create`.

    Args:
        job: the job.
        context: as `RunContext.construct_context` returns it, of no branch.
        kind: leave out publishers whose class is of none of these protocols, without making them.
    """
    for branch in job.fork.branches:
        spec = job.publisher_of(branch)
        if kind is not None and not issubclass(registry.load(ConstructKind.PUBLISHER, spec.type), kind):
            continue
        evolves = (branch.schema_contract or job.schema_contract) is SchemaContract.EVOLVE
        own = replace(context, branch=branch.name, evolves=evolves)
        publisher: DataPublisher = registry.create(ConstructKind.PUBLISHER, spec, own)
        yield branch, publisher
