"""Find jobs and datasets in a state store by the names that people type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import NoReturn

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.lease import DamagedLease
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.state.store import StateStore


def known_jobs(store: StateStore, names: Collection[str] | None) -> list[str]:
    """Return the named jobs, or all that the store knows; raises UsageError if it does not know one."""
    known = store.list_jobs()
    if unknown := sorted({*(names or ())} - {*known}):
        raise UsageError(
            problem=f"The state store has no job {unknown[0]!r}; it has {', '.join(known) or 'none'}.",
            hint="Name jobs that have run, or none for all.",
        )
    return list(dict.fromkeys(names)) if names else known


def require_match(selection: Selection, urns: Iterable[str]) -> None:
    """Raise UsageError if globs select none of these datasets: a typing error must not look like an empty store.

    `urns` is used only if there are globs.
    """
    if not selection.select and not selection.exclude:
        return
    known = list(urns)
    if not any(map(selection.matches, known)):
        raise UsageError(
            problem=f"None of {len(known):,} published datasets is selected by "
            f"--select {' '.join(selection.select) or '*'} --exclude {' '.join(selection.exclude) or '-'}.",
            hint="`gobblin state list` shows them.",
        )


def find_state(store: StateStore, dataset: str, job: str | None) -> DatasetState:
    """Return the state of a dataset; raises UsageError if there is none or several jobs have it."""
    jobs = [job] if job else store.list_jobs()
    state = _only_state(store, dataset, jobs)
    return state or _refuse(dataset, job, _urns(store, jobs))


def _only_state(store: StateStore, dataset: str, jobs: Iterable[str]) -> DatasetState | None:
    """Return the state of a dataset, None if it has none; raises UsageError if several jobs have it."""
    found = (store.load_dataset_states(name, [dataset]) for name in jobs)
    states = [states[dataset] for states in found if dataset in states]
    if len(states) > 1:
        where = ", ".join(state.job for state in states)
        raise UsageError(problem=f"Dataset {dataset!r} is in several jobs: {where}.", hint="Name one with --job.")
    return states[0] if states else None


def _urns(store: StateStore, jobs: Iterable[str]) -> set[str]:
    return {urn for name in jobs for urn in store.load_dataset_states(name)}


def _refuse(dataset: str, job: str | None, urns: set[str]) -> NoReturn:
    near = ", ".join(_with_last_part(dataset, urns) or get_close_matches(dataset, urns))
    raise UsageError(
        problem=f"Nothing is published of {dataset!r}" + (f" by a job {job!r}." if job else "."),
        hint=f"Did you mean {near}?" if near else "`gobblin state list` shows what is published.",
    )


def find_named(store: StateStore, name: str, job: str | None) -> DatasetState:
    """Return the state of a dataset; of `shop.orders` and `AA/EWR`, `orders` and `EWR` will do if only one ends so.

    For commands that change nothing. Raises like `find_state`.
    """
    jobs = [job] if job else store.list_jobs()
    if (state := _only_state(store, name, jobs)) is not None:
        return state
    urns = _urns(store, jobs)
    named = _with_last_part(name, urns)
    if len(named) != 1:
        _refuse(name, job, urns)
    return find_state(store, named[0], job)


def _with_last_part(name: str, urns: Iterable[str]) -> list[str]:
    """Return the urns whose part behind the last dot or slash is `name`."""
    return sorted(urn for urn in urns if re.split(r"[./]", urn)[-1] == name)


def damaged_leases(store: StateStore, job: str) -> dict[str, CorruptRecordError]:
    """Return the errors of leases that cannot be read, by dataset.urn."""
    return {urn: lease.error for urn, lease in store.load_leases(job).items() if isinstance(lease, DamagedLease)}


def find_damage(store: StateStore, dataset: str, job: str | None) -> tuple[str, CorruptRecordError | None]:
    """Return the job of a dataset, and the error if its state or its lease cannot be read, else None.

    Raises like `find_state`.
    """
    damaged = {
        name: error
        for name in ([job] if job else store.list_jobs())
        if (error := (damaged_leases(store, name) | store.load_readable_states(name, [dataset])[1]).get(dataset))
        is not None
    }
    if len(damaged) != 1:
        return find_state(store, dataset, job).job, None
    return next(iter(damaged.items()))
