"""Reconciliation: report commits to Dagster that it does not know yet.

Such commits come from the command line, or from a run that died after the commit and before reporting it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import dagster as dg

from gobblin_dagster.core.commit import SequenceState
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
    """Log materializations and checks of the newest unreported commit of each dataset, and mark all as reported.

    Returns:
        The dataset.urns whose materializations were logged now.
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
    # Log checks also for commits that Dagster knows: the sweep sensor logs none, and a run may have died before its
    # checks.
    for evaluation in evaluations(binding, instance, [one.result for one in publications.values()]):
        log_event(evaluation)
    # Mark them after the events: if the run dies in between, `is_known` keeps the next one from logging events twice.
    store.mark_reported([stored.id for stored in unreported])
    return frozenset(unknown)


def last_publication(binding: JobBinding, store: StateStore, dataset_urn: str) -> Publication | None:
    """Return the newest commit of a dataset, or None if there is none; raises CorruptRecordError."""
    last = store.load_sequences(binding.name, {SequenceState.COMMITTED}, [dataset_urn], limit=1)
    return Publication.of_stored(last[0], store.places) if last else None


def newest(publications: Iterable[Publication]) -> dict[str, Publication]:
    """Return the last publication of each dataset by dataset.urn; `publications` are oldest first."""
    return {publication.result.dataset_urn: publication for publication in publications}


def is_known(binding: JobBinding, instance: dg.DagsterInstance, publication: Publication) -> bool:
    """Return whether Dagster's newest materialization of the dataset's last branch is of this commit."""
    return is_shown(instance, list(binding.keys.values())[-1], publication)


def is_shown(instance: dg.DagsterInstance, key: dg.AssetKey, publication: Publication) -> bool:
    """Return whether Dagster's newest materialization of the dataset in a branch's asset is of this commit."""
    wanted = dg.AssetRecordsFilter(key, asset_partitions=[to_key(publication.result.dataset_urn)])
    for record in instance.fetch_materializations(wanted, limit=1).records:
        event = record.asset_materialization
        commit = event.metadata.get(md.COMMIT_ID) if event else None
        return commit is not None and commit.value == publication.commit_id
    return False
