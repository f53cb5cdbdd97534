"""RunReport: log the results of a run's datasets to Dagster, after all commits are done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import advice_of
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.engine.results import CommitPlan, DatasetResult, RunResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration._internal import log_planned, log_unplanned, materialized_keys
from gobblin_dagster.orchestration.backfill import BACKFILL_TAG
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.checks import evaluations
from gobblin_dagster.orchestration.events import (
    Event,
    Publication,
    failure_observation,
    materializations,
    recent_runs,
    to_dagster_run,
)
from gobblin_dagster.orchestration.partitions import to_key, to_urn
from gobblin_dagster.orchestration.reconcile import last_publication
from gobblin_dagster.orchestration.rejected import rejected_examples
from gobblin_dagster.state.store import StateStore

SHOWN = 5
"""Number of failed datasets that the run's error describes; the metadata names all of them."""
LONGEST = 500
"""Characters of a dataset's reason in the run's error; the dataset's own event has all."""
REJECTED_READ = 100
"""Number of datasets of a run whose rejected rows are looked up: each costs reading the head of a file."""
_RECOVERED = frozenset({SequenceState.COMMITTED, SequenceState.ABORTED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of the datasets of a run, by dataset.urn."""

    committed: Mapping[str, Publication] = field(default_factory=dict)
    """Datasets that were committed, in whole or in part."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Datasets that committed nothing, with the reason."""
    partly: Mapping[str, str] = field(default_factory=dict)
    """Datasets of `committed` that were committed in part, with the reason."""
    busy: Mapping[str, str] = field(default_factory=dict)
    """Datasets that another run holds, with the reason: that run commits them, so they do not fail this one."""
    quarantined: frozenset[str] = frozenset()
    """Datasets of `failed` whose commit sequence waits for a person: no run plans them before `gobblin commit recover`
    or `gobblin commit abandon`."""

    @property
    def problems(self) -> Mapping[str, str]:
        """Datasets that were not committed, or only in part, with the reason; without busy ones."""
        return {**self.failed, **self.partly}


@dataclass(frozen=True, slots=True)
class RunReport:
    """Logs the events of one run to Dagster."""

    binding: JobBinding
    store: StateStore
    instance: dg.DagsterInstance
    run: dg.DagsterRun
    step_key: str
    log_event: Callable[[Event], None]

    def log_commits(self, commit: CommitPlan, result: RunResult, failed_before: Mapping[str, str]) -> Outcome:
        """Log materializations and checks of committed datasets, and checks of failed ones; return the results.

        `failed_before` are datasets of the run that another run of its backfill has tried in vain, with the reason.
        """
        decided = {one.result.dataset_urn: one for one in commit.datasets}
        failed = dict(failed_before)
        committed, partly, busy = {}, {}, {}
        waits = result.status is RunStatus.BUSY
        quarantined = {one.dataset_urn for one in result.with_outcome(DatasetOutcome.QUARANTINED)}
        for dataset in result.datasets:
            urn = dataset.dataset_urn
            message = _reason(dataset)
            if dataset.outcome is DatasetOutcome.COMMITTED:
                committed[urn] = Publication.of_commit(decided[urn], dataset, result.run_id)
                if dataset.failures:
                    partly[urn] = message
            elif dataset.outcome is DatasetOutcome.BUSY or (waits and not dataset.outcome.is_good):
                busy[urn] = message
            elif not dataset.outcome.is_good:
                failed[urn] = message
        self._log_materializations(committed.values())
        # Checks last, because they are most of the events: Dagster shows the materializations first.
        self._log_checks([one for one in result.datasets if one.dataset_urn in {*committed, *failed}])
        for recovered in result.recovered:
            if recovered.is_busy:
                busy.setdefault(recovered.dataset_urn, recovered.reason)
            elif recovered.state not in _RECOVERED or recovered.manifest == "missing":
                failed.setdefault(recovered.dataset_urn, recovered.reason)
            if recovered.state == SequenceState.QUARANTINED:
                quarantined.add(recovered.dataset_urn)
        return Outcome(committed, failed, partly, busy, frozenset(quarantined))

    def log_idle(
        self, outcome: Outcome, result: RunResult, planned_keys: frozenset[str] | None, reconciled: frozenset[str]
    ) -> None:
        """Have Dagster show the partitions of datasets without new data unchanged, without materializing them.

        Dagster has planned all keys of the range and all of their checks. It shows a check without evaluation as
        skipped, and a partition whose newest plan is of a failed run as failed. A new Dagster instance has no
        materialization of what was committed before it was made: it gets one, and so does a backfill.
        """
        planned = {to_urn(key) for key in planned_keys or ()}
        # The page of a backfill shows partitions without a materialization of its runs as failed.
        is_backfill = BACKFILL_TAG in self.run.tags
        if is_backfill:
            planned -= outcome.busy.keys()
        last = self._last(planned - {*outcome.failed, *outcome.committed, *reconciled}, result.run_id)
        shown = materialized_keys(self.instance, list(self.binding.keys.values())[-1]) if last else frozenset()
        told = [
            one
            for one in last
            if is_backfill or (one.commit_id and to_key(one.result.dataset_urn) not in shown)  # new to this instance
        ]
        self._log_materializations(told)
        for one in last if outcome.problems else ():
            for key in self.binding.keys.values() if one not in told else ():
                log_unplanned(self.instance, self.run, self.step_key, key, to_key(one.result.dataset_urn))
        self._log_checks([publication.result for publication in last])

    def log_failures(self, outcome: Outcome, result: RunResult, told: Mapping[str, dg.MetadataValue[Any]]) -> None:
        """Mark the partitions of failed datasets as failed, say why, and fail the run; `told` goes with the error.

        Do nothing if no dataset failed. A dataset that another run holds has not failed: that run commits it.

        Raises:
            Failure: a dataset, or a part of one, was not committed; the message says which and why.
        """
        problems = outcome.problems
        if not problems:
            return
        status = result.status
        if status is RunStatus.SUCCEEDED:  # what failed was tried by another run of the backfill
            status = RunStatus.PARTIAL if outcome.committed else RunStatus.FAILED
        for urn, reason in outcome.failed.items():
            # Also if Dagster has planned it: this run may have reported an earlier commit of the dataset since then.
            for key in self.binding.keys.values():
                log_planned(self.instance, self.run, self.step_key, key, to_key(urn))
                # Dagster's page of a failed partition says only that it was not materialized.
                self.log_event(failure_observation(key, urn, reason))
        raise dg.Failure(
            description=_describe(outcome, problems, status),
            metadata={
                md.RUN_STATUS: status.value,
                md.FAILED_DATASETS: dg.JsonMetadataValue(sorted(problems)),
                md.QUARANTINED_DATASETS: dg.JsonMetadataValue(sorted(outcome.quarantined)),
                **told,
            },
            allow_retries=False,
        )

    def log_again(self, urns: Iterable[str]) -> None:
        """Log materializations and checks of all partitions of a run again, because the newest event counts."""
        last = self._last(urns, self.run.run_id)
        publications = [dataclasses.replace(one, moved=to_dagster_run(one.run_id) == self.run.run_id) for one in last]
        self._log_materializations(publications)
        self._log_checks([publication.result for publication in publications])

    def _last(self, urns: Iterable[str], run_id: str) -> list[Publication]:
        """Return the last commits of datasets without new data."""
        found = []
        for urn in sorted(urns):
            idle = Publication(DatasetResult(urn, DatasetOutcome.IDLE), run_id)
            last = last_publication(self.binding, self.store, urn)
            found.append(dataclasses.replace(last or idle, moved=False))
        return found

    def _log_materializations(self, publications: Iterable[Publication]) -> None:
        chosen = list(publications)
        recent = recent_runs(self.store, self.binding.name) if chosen else {}
        wanted = [one for one in chosen if one.result.rows_quarantined][:REJECTED_READ]
        examples = {
            one.result.dataset_urn: rejected_examples(self.binding.job, one.result.dataset_urn, one.files)
            for one in wanted
        }
        for publication in chosen:
            urn = publication.result.dataset_urn
            told = dataclasses.replace(publication, recent=recent.get(urn, ()), rejected=examples.get(urn, ""))
            for event in materializations(self.binding, told):
                self.log_event(event)

    def _log_checks(self, results: Sequence[DatasetResult]) -> None:
        for event in evaluations(self.binding, self.instance, results):
            self.log_event(event)


def _reason(dataset: DatasetResult) -> str:
    """Return why a dataset, or a part of it, was not committed, and what to do about it."""
    said = "; ".join(dict.fromkeys(failure.message for failure in dataset.failures)) or dataset.outcome.value
    advice = [text for text in dict.fromkeys(advice_of(failure.code) for failure in dataset.failures) if text]
    return " ".join([said if said.endswith(".") or not advice else f"{said}.", *advice])


def shortened(message: str) -> str:
    """Return at most `LONGEST` characters of a message, with its end, which says what to do."""
    return message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"


def _describe(outcome: Outcome, problems: Mapping[str, str], status: RunStatus) -> str:
    counts = [f"{len(outcome.committed)} committed"]
    counts += [f"{len(outcome.failed)} failed"] if outcome.failed else []
    counts += [f"{len(outcome.busy)} left to the runs that hold them"] if outcome.busy else []
    counts += [f"{len(outcome.partly)} of the committed only in part"] if outcome.partly else []
    lines = [f"- {urn!r}: {shortened(message)}" for urn, message in list(problems.items())[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"- and {len(problems) - SHOWN} more")
    return "\n".join([f"Run {status}. Datasets: {', '.join(counts)}.", *lines])
