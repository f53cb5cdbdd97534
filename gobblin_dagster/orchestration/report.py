"""RunReport: tells Dagster what became of a run's datasets, once all commits are done and never between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.engine.results import CommitPlan, DatasetResult, RunResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration._internal import log_planned
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.checks import evaluations
from gobblin_dagster.orchestration.events import Event, Publication, materializations
from gobblin_dagster.orchestration.partitions import to_key, to_urn
from gobblin_dagster.state.store import StateStore

SHOWN = 5
"""Failed datasets that the run's error describes; all are named in its metadata."""
_RECOVERED = frozenset({SequenceState.COMMITTED, SequenceState.ABORTED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the datasets of a run, by dataset.urn."""

    committed: Mapping[str, Publication] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why nothing of a dataset was committed."""
    partly: Mapping[str, str] = field(default_factory=dict)
    """Why parts of a committed dataset were not."""
    quarantined: frozenset[str] = frozenset()
    """Those of `failed` whose commit sequence waits for a person: no run plans them before `gobblin commit recover` or
    `abandon`."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Logs the events of one Dagster run."""

    binding: JobBinding
    store: StateStore
    instance: dg.DagsterInstance
    run: dg.DagsterRun
    step_key: str
    log_event: Callable[[Event], None]

    def log_commits(self, commit: CommitPlan, result: RunResult) -> Outcome:
        """Log materializations and checks of every committed dataset, and the checks of those that failed."""
        decided = {one.result.dataset_urn: one for one in commit.datasets}
        committed, failed, partly = {}, {}, {}
        quarantined = {one.dataset_urn for one in result.with_outcome(DatasetOutcome.QUARANTINED)}
        for dataset in result.datasets:
            urn = dataset.dataset_urn
            message = "; ".join(dict.fromkeys(failure.message for failure in dataset.failures)) or dataset.outcome
            if dataset.outcome is DatasetOutcome.COMMITTED:
                committed[urn] = Publication.of_commit(decided[urn], dataset, result.run_id)
                self._log_materializations(committed[urn])
                if dataset.failures:
                    partly[urn] = message
            elif not dataset.outcome.is_good:
                failed[urn] = message
        # Last, because they are most of all events: what is published is shown first.
        self._log_checks([one for one in result.datasets if one.dataset_urn in {*committed, *failed}])
        for recovered in result.recovered:
            if recovered.state not in _RECOVERED or recovered.manifest == "missing":
                failed.setdefault(recovered.dataset_urn, recovered.reason)
            if recovered.state == SequenceState.QUARANTINED:
                quarantined.add(recovered.dataset_urn)
        return Outcome(committed, failed, partly, frozenset(quarantined))

    def log_idle(
        self, outcome: Outcome, result: RunResult, planned_keys: frozenset[str] | None, reconciled: frozenset[str]
    ) -> None:
        """Keep partitions that Dagster planned, and that had nothing new, as they were.

        Dagster planned every key of the range and all of its checks. Checks not evaluated would be shown as skipped; in a
        run that fails, partitions not materialized would turn red.
        """
        planned = {to_urn(key) for key in planned_keys or ()}
        last = self._last(planned - {*outcome.failed, *outcome.committed, *reconciled}, result.run_id)
        if result.exit_code != 0:
            for publication in last:
                self._log_materializations(publication)
        self._log_checks([publication.result for publication in last])

    def log_failures(self, outcome: Outcome, result: RunResult) -> None:
        """Make the partitions of failed datasets red, and fail the run.

        Raises:
            Failure: where `gobblin run` exits with anything but 0: a dataset, or a part of one, was not committed; says
                which and why.
        """
        if result.exit_code == 0:
            return
        for urn in outcome.failed:
            # Also where Dagster planned it: this run may have reported an earlier commit of it since.
            for key in self.binding.keys.values():
                log_planned(self.instance, self.run, self.step_key, key, to_key(urn))
        problems = {**outcome.failed, **outcome.partly}
        raise dg.Failure(
            description=_describe(outcome, problems, result.status),
            metadata={
                md.RUN_STATUS: result.status.value,
                md.FAILED_DATASETS: dg.JsonMetadataValue(sorted(problems)),
                md.QUARANTINED_DATASETS: dg.JsonMetadataValue(sorted(outcome.quarantined)),
            },
            allow_retries=False,
        )

    def log_again(self, urns: Iterable[str], outcome: Outcome, run_id: str) -> None:
        """Log materializations and checks of all partitions of a run once more, because the newest event is what counts."""
        publications = [*outcome.committed.values(), *self._last({*urns} - {*outcome.committed}, run_id)]
        for publication in publications:
            self._log_materializations(publication)
        self._log_checks([publication.result for publication in publications])

    def _last(self, urns: Iterable[str], run_id: str) -> list[Publication]:
        """Return what was last committed of datasets that had nothing new."""
        found = []
        for urn in sorted(urns):
            last = self.store.load_sequences(self.binding.name, {SequenceState.COMMITTED}, [urn], limit=1)
            idle = Publication(DatasetResult(urn, DatasetOutcome.IDLE), run_id)
            publication = Publication.of_stored(last[0], self.store.places) if last else idle
            found.append(dataclasses.replace(publication, moved=False))
        return found

    def _log_materializations(self, publication: Publication) -> None:
        for event in materializations(self.binding, publication):
            self.log_event(event)

    def _log_checks(self, results: Sequence[DatasetResult]) -> None:
        for event in evaluations(self.binding, self.instance, results):
            self.log_event(event)


def _describe(outcome: Outcome, problems: Mapping[str, str], status: RunStatus) -> str:
    counts = [f"{len(outcome.committed)} committed"]
    counts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    counts += [f"{len(outcome.partly)} of the committed only in part"] if outcome.partly else []
    lines = [f"- {urn!r}: {message[:500]}" for urn, message in list(problems.items())[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"- and {len(problems) - SHOWN} more")
    return "\n".join([f"Run {status}. Datasets: {', '.join(counts)}.", *lines])
