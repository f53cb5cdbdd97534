"""Sweep: one look at a job's store, for commits of other processes, dead runs, and what they left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import dagster as dg

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import Publication, materializations, to_dagster_run
from gobblin_dagster.orchestration.reconcile import is_known, last_publication
from gobblin_dagster.orchestration.requests import Answer, request
from gobblin_dagster.orchestration.sweep_cursor import SweepCursor
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class Sweep:
    """One look at one job."""

    binding: JobBinding
    store: StateStore
    instance: dg.DagsterInstance

    def result(self, cursor: SweepCursor, first: Sequence[str], at_once: int) -> tuple[Answer, SweepCursor]:
        """Return what to do, and the new cursor.

        Args:
            cursor: as an earlier sweep returned it.
            first: datasets that need a partition before their first run.
            at_once: number of commits to compare at most.
        """
        held = self._end_dead_runs(self.store.load_leases(self.binding.name))
        waiting = [one for one in self.store.load_sequences(self.binding.name) if one.dataset_urn not in held]
        publications, looked = self._unreported(at_once)
        states = self.store.load_readable_states(self.binding.name)[0]
        if not publications:
            compared, cursor = self._newer(cursor, states, at_once)
            publications, looked = self._unknown(compared), looked + len(compared)
        urns = [one.dataset_urn for one in waiting]
        found = [[one.id, one.redo_failures] for one in waiting]
        answer = Answer(
            (request(self.binding, "recover", found, urns),) if waiting else (),
            {*publications, *states, *first, *urns},
            # No check evaluations: Dagster stores one per check, partition and run, and a sensor has no run, so it
            # would refuse those of a dataset's second commit. The counts are in the metadata of the materializations.
            [event for one in publications.values() for event in materializations(self.binding, one)],
            looked,
        )
        return answer, cursor

    def _end_dead_runs(self, leases: dict[str, Lease]) -> frozenset[str]:
        """Report runs of dead owners as failed; return the datasets that living owners hold."""
        living = living_datasets(self.binding, leases)
        working = {leases[urn].owner.run_id for urn in living}
        # A run that left a dataset to the next run, because its manifest could not be written, goes on with the others.
        over = [one for urn, one in leases.items() if urn not in living]
        dead = {one.owner.run_id for one in over if not one.is_left or one.owner.is_provably_dead()} - working
        for run_id in sorted({to_dagster_run(engine_run_id) for engine_run_id in dead}):
            run = self.instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                self.instance.report_run_failed(
                    run,
                    "The run's process is gone: it did not renew its leases. The next run finishes what it left.",
                )
        return living

    def _unreported(self, at_once: int) -> tuple[dict[str, Publication], int]:
        """Return commits to report to Dagster by dataset.urn, and how many were compared; mark those that it knows.

        Of several commits of a dataset only the newest is reported: an older one that is logged later would be shown.
        """
        found, heard = {}, []
        stored = self.store.load_unreported(self.binding.name, at_once)
        by_dataset = groupby(sorted(stored, key=lambda one: one.dataset_urn), lambda one: one.dataset_urn)
        for urn, group in by_dataset:
            commits = [one for one in group if not self._is_running(one.run_id)]
            if commits:
                last = Publication.of_stored(commits[-1], self.store.places)
                if is_known(self.binding, self.instance, last):
                    heard += [one.id for one in commits]
                else:
                    found[urn] = last
        self.store.mark_reported(heard)
        return found, len(stored)

    def _newer(
        self, cursor: SweepCursor, states: Mapping[str, DatasetState], at_once: int
    ) -> tuple[Sequence[str], SweepCursor]:
        """Return datasets with commits that this instance may not have heard of, and the cursor behind them."""
        seen_at = self.store.now()
        new = [
            one for urn, one in states.items() if one.updated_at > cursor.since and one.version != cursor.known.get(urn)
        ]
        unsure: dict[str, DatasetState] = {}
        ended: dict[str, DatasetState] = {}
        runs: dict[str, dg.DagsterRun | None] = {}
        is_cut = False
        for one in sorted(new, key=lambda one: one.updated_at):
            if max(len(unsure), len(runs)) >= at_once:
                seen_at, is_cut = one.updated_at, True
                break
            if one.run_id not in runs:
                runs[one.run_id] = self.instance.get_run_by_id(to_dagster_run(one.run_id))
            run = runs[one.run_id]
            if run is not None and not run.is_finished:
                continue  # it tells its commits itself
            ended[one.dataset_urn] = one
            if run is None or not run.is_success:  # made elsewhere, or by a run that may have died before it told
                unsure[one.dataset_urn] = one
        after = SweepCursor(max(cursor.until, seen_at))
        # What was cut off comes next; without the others, the next sweep would begin with the same runs for ever.
        judged = ended if is_cut else unsure
        known = {**cursor.known, **{urn: one.version for urn, one in judged.items()}}
        kept = {urn: one for urn, one in known.items() if urn in states and states[urn].updated_at > after.since}
        return list(unsure), dataclasses.replace(after, known=kept)

    def _unknown(self, urns: Iterable[str]) -> dict[str, Publication]:
        """Return the newest commits of datasets that Dagster does not show, by dataset.urn."""
        found = {}
        for urn in urns:
            last = last_publication(self.binding, self.store, urn)
            if last and not self._is_running(last.run_id) and not is_known(self.binding, self.instance, last):
                found[urn] = last
        return found

    def _is_running(self, run_id: str) -> bool:
        """Return whether a run of Dagster goes on; it reports its commits itself."""
        run = self.instance.get_run_by_id(to_dagster_run(run_id))
        return run is not None and not run.is_finished


def living_datasets(binding: JobBinding, leases: Mapping[str, Lease]) -> frozenset[str]:
    """Return the datasets whose leases have not expired and whose owners may still be alive."""
    now = binding.project.clock.now()
    return frozenset(urn for urn, lease in leases.items() if lease.is_held(now))
