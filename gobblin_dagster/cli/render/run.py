"""Print a run for people: recovery, plan, progress, checks, commits, and one summary line with the next step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

from gobblin_dagster.cli.render.console import MAX_ROWS, bytes_of, dataset_name, print_table, rows_of
from gobblin_dagster.cli.render.plan import print_plan, shared_notes
from gobblin_dagster.cli.render.progress import ProgressView
from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.errors import QuarantinedError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.task_state import PolicyResult, TaskState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import Audit, DatasetResult, RecoveredDataset, RunResult
from gobblin_dagster.spec.job import QUARANTINE_BRANCH

_MAX_FAILURES = 5
"""Number of failures of one dataset that are shown."""
_STYLES = {
    DatasetOutcome.COMMITTED: "green",
    DatasetOutcome.FAILED: "red",
    DatasetOutcome.QUARANTINED: "red",
}


class RunDisplay(RunListener):
    """Prints one run of one job to a console; use it as a context manager, which always ends the bars."""

    def __init__(self, console: Console, progress: ProgressView) -> None:
        self._console = console
        self._progress = progress
        self._steps: Counter[str] = Counter()
        self._plan: JobPlan | None = None
        self._recovered: list[RecoveredDataset] = []
        self._lock = threading.Lock()

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def recovered(self, dataset: RecoveredDataset) -> None:
        self._recovered.append(dataset)
        if len(self._recovered) <= MAX_ROWS:
            print_recovered(self._console, dataset)

    def planned(self, plan: JobPlan) -> None:
        self._plan = plan
        if self._recovered:
            self._console.print(recovery_summary(self._recovered), style="bold")
        if plan.has_work or any(dataset.problem or dataset.notes for dataset in plan.datasets):
            print_plan(self._console, plan)

    def spark_starting(self) -> None:
        if self._plan is not None:
            self._progress.start(self._plan)

    def processes_starting(self) -> None:
        self.spark_starting()

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self._progress.task_done(state, done, total)

    def extracted(self) -> None:
        self._progress.stop()

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        with self._lock:
            self._steps[sequence.dataset_urn] += 1

    def finished(self, result: RunResult) -> None:
        self._progress.stop()
        _print_checks(self._console, result.datasets)
        self._print_datasets(result)
        _print_failures(self._console, result)
        self._console.print(summary_line(result), style="bold")

    def _print_datasets(self, result: RunResult) -> None:
        moved = [dataset for dataset in result.datasets if dataset.outcome is not DatasetOutcome.IDLE]
        if not moved:
            return
        self._console.print("Commit", style="bold")
        rows = [self._row(dataset) for dataset in moved[:MAX_ROWS]]
        if len(moved) > MAX_ROWS:
            rows.append((f"  ... {len(moved) - MAX_ROWS:,} more", "", "", "", "", ""))
        headings = {"  dataset": "left", "outcome": "left", "watermark": "left"}
        print_table(self._console, headings | dict.fromkeys(("read", "files", "steps"), "right"), rows)

    def _row(self, dataset: DatasetResult) -> tuple[str | Text, ...]:
        return (
            f"  {dataset_name(dataset.dataset_urn)}",
            Text(dataset.outcome.value, style=_STYLES.get(dataset.outcome, "yellow")),
            _movement(dataset),
            rows_of(dataset.rows_read),
            rows_of(dataset.files),
            rows_of(self._steps[dataset.dataset_urn]),
        )


def print_recovered(console: Console, dataset: RecoveredDataset) -> None:
    """Print the result of one sequence of an earlier run."""
    console.print(recovery_line(dataset), style=_recovery_style(dataset))


def _recovery_style(dataset: RecoveredDataset) -> str:
    return "green" if dataset.state == "committed" and dataset.manifest != "missing" else "yellow"


def recovery_summary(datasets: Sequence[RecoveredDataset]) -> str:
    """Return a summary of all recovered sequences."""
    # A sequence that was finished without its manifest is there twice if writing the manifest was tried again.
    sequences = {(dataset.sequence_id, dataset.dataset_urn): str(dataset.state) for dataset in datasets}
    states = Counter(sequences.values())
    audits = [dataset.audit for dataset in datasets if dataset.audit and dataset.audit.published_rows]
    lost, duplicated = sum(audit.lost for audit in audits), sum(audit.duplicated for audit in audits)
    proof = (
        f"; {lost:,} lost, {duplicated:,} duplicated in {count(len(audits), 'dataset')} counted again" if audits else ""
    )
    ends = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))
    return f"Recovered what an earlier run left: {count(len(sequences), 'commit sequence')} ({ends}){proof}"


def recovery_line(dataset: RecoveredDataset) -> str:
    """Return the result of a recovered sequence, and of counting its rows again, in one line."""
    name = dataset_name(dataset.dataset_urn)
    if dataset.manifest:
        return f"recovered {name}: {dataset.reason}"
    if dataset.state != "committed":
        return (
            f"sequence {dataset.sequence_id} of {name} is {dataset.state}: {dataset.reason or 'it will be tried again'}"
        )
    steps = f"{count(dataset.steps_found_done, 'step')} found done, {dataset.steps_redone:,} done now"
    proof = audit_text(dataset.audit) if dataset.audit else dataset.reason
    return f"recovered {name}: {steps}" + (f"; {proof}" if proof else "")


def audit_text(audit: Audit) -> str:
    """Show a count of source and published rows: `0 lost, 0 duplicated (...)`."""
    if not audit.published_rows:
        return f"{count(audit.source_rows, 'source row')}; what a table or topic holds of them is not counted again"
    verdict = f"{audit.lost:,} lost, {audit.duplicated:,} duplicated"
    quarantined = audit.published_rows.get(QUARANTINE_BRANCH, 0)
    branches = {name: rows for name, rows in audit.published_rows.items() if name != QUARANTINE_BRANCH}
    if {rows + quarantined for rows in branches.values()} == {audit.source_rows}:
        published = next(iter(branches.values()))
        return f"{verdict} (source rows {audit.source_rows:,} = published {published:,} + quarantined {quarantined:,})"
    counts = ", ".join(
        f"{name} {rows:,} of {audit.expected_rows[name]:,}" for name, rows in audit.published_rows.items()
    )
    return f"{verdict} (source rows {audit.source_rows:,}; published {counts})"


def summary_line(result: RunResult) -> str:
    """Return in one line what the run did."""
    seconds = (result.ended_at - result.started_at).total_seconds()
    counts = Counter(dataset.outcome for dataset in result.datasets)
    if set(counts) <= {DatasetOutcome.IDLE} and result.status is RunStatus.SUCCEEDED and not result.recovered:
        unread = sum(dataset.actual_high is None for dataset in result.datasets)
        idle = count(counts[DatasetOutcome.IDLE] - unread, "dataset")
        not_yet = f", {unread:,} without anything to read yet" if unread else ""
        noted = ", but for their notes" if any(dataset.notes for dataset in result.datasets) else ""
        return f"Job {result.job}: nothing to do, {idle} up to date{not_yet}{noted} ({seconds:.1f} s)."
    outcomes = [f"{counts[outcome]:,} {outcome.value}" for outcome in DatasetOutcome if counts[outcome]]
    done = result.with_outcome(DatasetOutcome.COMMITTED)
    with_gaps = sum(bool(dataset.failed_ranges) for dataset in done)
    without_manifest = sum(bool(dataset.failures) and not dataset.failed_ranges for dataset in done)
    untaken = sum(dataset.rows_untaken for dataset in done)
    facts = [
        f"{count(len(done) + _count_recovered(result), 'watermark')} moved",
        f"{count(sum(d.rows_read for d in result.datasets), 'row')} read",
        f"{sum(sum(d.rows_by_branch.values()) for d in done):,} published "
        f"({bytes_of(sum(d.bytes_written for d in done))})",
        f"{sum(d.rows_quarantined for d in done):,} quarantined",
        *([f"{untaken:,} taken by no branch"] if untaken else []),
        *([f"{count(with_gaps, 'dataset')} with failed work units"] if with_gaps else []),
        *([f"{count(without_manifest, 'dataset')} with errors after the commit"] if without_manifest else []),
    ]
    ends = ", ".join(outcomes) or "no dataset"
    return f"Job {result.job} {result.status.value}: {ends}; {', '.join(facts)}; {seconds:.1f} s."


def next_step(results: Sequence[RunResult], whole: Collection[str] = ()) -> str:
    """Return what to do after runs of one or several jobs; `whole` names the jobs that read everything in each run."""
    has = {dataset.outcome for result in results for dataset in result.datasets}
    codes = {failure.code for result in results for dataset in result.datasets for failure in dataset.failures}
    if any(result.status is RunStatus.INTERRUPTED for result in results):
        return "`gobblin run` goes on where this run stopped."
    if DatasetOutcome.QUARANTINED in has or QuarantinedError.code in codes:
        return "`gobblin commit list` shows what waits for you; the other datasets go on, unless `commit.scope` is job."
    if DatasetOutcome.BUSY in has:
        return "wait for the other run to end, then `gobblin run`."
    if any(dataset.failures for result in results for dataset in result.datasets):
        return "fix the problems above, then `gobblin run`: only what failed is read again."
    if DatasetOutcome.COMMITTED in has or any(result.recovered for result in results):
        again = [result.job for result in results if result.job in whole]
        if len(again) == len(results):
            reads = "everything again"
        else:
            reads = f"what is new, and all of {', '.join(again)}" if again else "only what is new"
        return f"`gobblin run` reads {reads}; `gobblin state list` shows watermarks; `gobblin dev` opens the UI."
    return "`gobblin state list` shows the watermarks; what is new is read by the next `gobblin run`."


def _count_recovered(result: RunResult) -> int:
    # A dataset with only its manifest missing had moved its watermark before.
    return sum(
        one.state == "committed" and not (one.manifest and one.steps_found_done + one.steps_redone == 0)
        for one in result.recovered
    )


def _movement(dataset: DatasetResult) -> str:
    if dataset.outcome is not DatasetOutcome.COMMITTED or dataset.actual_high is None:
        return f"stays at {dataset.low}" if dataset.low is not None else "-"
    return f"{dataset.low} -> {dataset.actual_high}"


def _print_checks(console: Console, datasets: Sequence[DatasetResult]) -> None:
    """Print results per policy, over all datasets."""
    rejected: Counter[str] = Counter()
    touched: Counter[str] = Counter()
    results: Counter[tuple[str, PolicyResult]] = Counter()
    for dataset in datasets:
        rejected.update(dataset.rejected)
        touched.update(name for name, rows in dataset.rejected.items() if rows)
        results.update((outcome.policy, outcome.result) for outcome in dataset.policies)
    if not rejected and not results:
        return
    console.print("Checks", style="bold")
    for name, rows in sorted(rejected.items()):
        where = f" in {count(touched[name], 'dataset')}" if rows else ""
        console.print(
            f"  rejected by {name}: {count(rows, 'row')} set aside{where}", style="yellow" if rows else "green"
        )
    for name in sorted({policy for policy, _ in results}):
        passed, failed = results[name, PolicyResult.PASSED], results[name, PolicyResult.FAILED]
        words = f"{passed:,} passed" + (f", {failed:,} failed" if failed else "")
        console.print(f"  task policy {name}: {words}", style="red" if failed else "green")
    quarantined = sum(dataset.rows_quarantined for dataset in datasets)
    if quarantined:
        console.print(f"  quarantine: {count(quarantined, 'row')}, each with rule, reason and source position")


def _print_failures(console: Console, result: RunResult) -> None:
    troubled = [dataset for dataset in result.datasets if dataset.failures]
    for dataset in troubled[:MAX_ROWS]:
        for failure in dataset.failures[:_MAX_FAILURES]:
            console.print(f"{dataset_name(dataset.dataset_urn)}: error[{failure.code}]: {failure.message}", style="red")
        if len(dataset.failures) > _MAX_FAILURES:
            console.print(f"  ... {len(dataset.failures) - _MAX_FAILURES:,} more failures of this dataset")
        if dataset.failed_ranges:
            more = ", ..." if len(dataset.failed_ranges) > _MAX_FAILURES else ""
            console.print(f"  work units that failed: {', '.join(dataset.failed_ranges[:_MAX_FAILURES])}{more}")
    if len(troubled) > MAX_ROWS:
        console.print(f"... {len(troubled) - MAX_ROWS:,} more datasets failed; `--output json` has all")
    # Nothing has come to the notes of the plan if there was nothing to do.
    active = (one for one in result.datasets if one.outcome is not DatasetOutcome.IDLE)
    for names, note in shared_notes((one.dataset_urn, one.notes) for one in active):
        console.print(f"{names}: {note}", style="yellow")
