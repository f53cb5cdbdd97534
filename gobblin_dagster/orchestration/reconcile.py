"""Reconciliation: commits that Dagster has not heard of, found by commit id in the state store.

They come from the command line, or from a run that died between commit and event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import dagster as dg

from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.checks import evaluations
from gobblin_dagster.orchestration.events import Event, Publication, materializations
from gobblin_dagster.orchestration.partitions import add_partitions, to_key
from gobblin_dagster.state.store import StateStore


def reconcile(
    binding: JobBinding,
    store: StateStore,
    instance: dg.DagsterInstance,
    log_event: Callable[[Event], None],
) -> frozenset[str]:
    """Log materialization and checks of each unreported commit, the newest of each dataset only, and mark all as reported.

    Returns:
        The dataset.urns of commits that were logged now.
    """
    unreported = store.load_unreported(binding.name)
    if not unreported:
        return frozenset()
    publications = newest(Publication.of_stored(stored, store.places) for stored in unreported)
    add_partitions(instance, binding.partitions_name, publications)
    unknown = {urn: one for urn, one in publications.items() if not is_known(binding, instance, one)}
    for publication in unknown.values():
        for event in materializations(binding, publication):
            log_event(event)
    # Also of those that Dagster knows: the sweep tells none, and a run may have died before it told them.
    for evaluation in evaluations(binding, instance, [one.result for one in publications.values()]):
        log_event(evaluation)
    # After the events: a run that dies in between logs nothing twice, because it asks Dagster first.
    store.mark_reported([stored.id for stored in unreported])
    return frozenset(unknown)


def newest(publications: Iterable[Publication]) -> dict[str, Publication]:
    """Return the last publication of each dataset, of publications in order."""
    return {publication.result.dataset_urn: publication for publication in publications}


def is_known(binding: JobBinding, instance: dg.DagsterInstance, publication: Publication) -> bool:
    """Return whether Dagster's newest event of the dataset, in its last branch, is that of this commit."""
    key = list(binding.keys.values())[-1]
    wanted = dg.AssetRecordsFilter(key, asset_partitions=[to_key(publication.result.dataset_urn)])
    for record in instance.fetch_materializations(wanted, limit=1).records:
        event = record.asset_materialization
        commit = event.metadata.get(md.COMMIT_ID) if event else None
        return commit is not None and commit.value == publication.commit_id
    return False
