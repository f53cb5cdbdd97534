"""`gobblin commit`: list and show commit sequences, finish those that a run left behind, abandon one, tell Dagster."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gobblin_dagster.cli.confirm import confirm, readable
from gobblin_dagster.cli.context import (
    ExcludeOption,
    JobsArgument,
    Output,
    OutputOption,
    SelectOption,
    examples,
    jobs_of,
    open_here,
    open_store_here,
)
from gobblin_dagster.cli.each_job import for_each_job
from gobblin_dagster.cli.flow_jobs import FlowOption, jobs_with_flow, open_with_flow
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import MAX_ROWS, console, dataset_name, instant, print_facts, print_table
from gobblin_dagster.cli.render.documents import abandonment_view, recovered_view, sequence_view, status_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.render.run import print_recovered, recovery_summary
from gobblin_dagster.cli.spark import plan_only_spark
from gobblin_dagster.core.commit import WAITING, CommitSequence, SequenceState
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence, preview_abandonment
from gobblin_dagster.engine.maintenance.sequence_status import sequence_status
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RecoveredDataset
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.engine.task.runner import SessionRunner
from gobblin_dagster.spec.job import JobSpec

if TYPE_CHECKING:
    from rich.console import Console

    from gobblin_dagster.orchestration.tell import Told

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="See commit sequences, finish unfinished ones, tell Dagster.",
)

_DONE = {True: "done", False: "not done", None: "unknown"}


@app.command("list", epilog=examples("gobblin commit list", "gobblin commit list --all --limit 100 --output json"))
def list_sequences(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Finished ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="At most this many, newest first.")] = 20,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List commit sequences that are unfinished or wait for a person."""
    with closing(open_store_here(ctx)) as store:
        states = set(SequenceState) if everything else WAITING
        names = [None] if flow is None else jobs_with_flow(ctx, store, flow, None)
        found = [one for name in names for one in store.load_sequences(name, states, limit=limit)]
        stored = sorted(found, key=lambda one: one.created_at, reverse=True)[:limit] if flow is not None else found
    if output is Output.JSON:
        print_json(sequences=[sequence_view(sequence) for sequence in stored])
        return
    out = console(sys.stdout)
    if not stored:
        out.print(
            "No commit sequence." if everything else "No unfinished commit sequence; `--all` shows finished ones."
        )
        return
    columns = {"sequence": "left", "job": "left", "dataset": "left", "state": "left", "stored": "left"}
    rows = ((s.id, s.job, dataset_name(s.dataset_urn), s.state.value, instant(s.created_at)) for s in stored)
    print_table(out, columns, rows)


@app.command(epilog=examples("gobblin commit show 7c0ffee07c0ffee07c0ffee07c0ffee0"))
def show(
    ctx: typer.Context,
    sequence_id: Annotated[str, typer.Argument(metavar="SEQUENCE", help="Id, as `gobblin commit list` shows it.")],
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the steps of one commit sequence, and which are done: looked up now, file by file, not as recorded."""
    project = open_with_flow(ctx, flow)
    with closing(project.open_store()) as store:
        found = sequence_status(project, store, sequence_id, None if output is Output.JSON else 2 * MAX_ROWS)
    stored, sequence = found.stored, found.sequence
    if output is Output.JSON:
        print_json(**sequence_view(stored, sequence), status=[status_view(one) for one in found])
        return
    out = console(sys.stdout)
    facts = {
        "sequence": stored.id,
        "job": stored.job,
        "dataset": dataset_name(stored.dataset_urn),
        "state": stored.state.value,
        "stored": f"{instant(stored.created_at)} by run {stored.run_id}",
        "failed redos": f"{stored.redo_failures:,}",
        "reason": stored.reason or "-",
        "watermark after": str(sequence.after.watermark or "-"),
        "output": sequence.output_root,
    }
    print_facts(out, facts)
    out.print(f"{count(len(sequence.steps), 'step')}, then one transaction that moves the watermark:", style="bold")
    for number, status in enumerate(found.steps, 1):
        out.print(f"  {number}. {_shortened(status.step, sequence)}: {_DONE[status.is_done]}")
    if more := len(sequence.steps) - len(found.steps):
        out.print(f"  ... {more:,} more; `--output json` has all")
    for status in found.progress:
        out.print(f"  - {_shortened(status.step, sequence)}: {_DONE[status.is_done]}")
    if stored.state is SequenceState.QUARANTINED:
        out.print(
            "Next: if the reason is mended outside of the job, `gobblin commit recover` tries the steps again; else"
        )
        out.print(
            f"`gobblin commit abandon {stored.id}`: then the dataset is read again, with the job as it is by then."
        )


@app.command(epilog=examples("gobblin commit recover --dry-run", "gobblin commit recover flights"))
def recover(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which sequences would be worked on.")] = False,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Finish or undo unfinished commit sequences, as the next `gobblin run` would, without reading new data.

    Quarantined ones, which runs leave alone, are tried again: first fix the problems that `gobblin commit list` shows.
    """
    project = open_with_flow(ctx, flow, jobs)
    chosen = jobs_of(project, jobs)
    out = console(sys.stdout)
    if dry_run:
        with closing(project.open_store()) as store:
            waiting = [stored for job in chosen for stored in store.load_sequences(job.job, WAITING)]
        strangers = _without_job_file(project, jobs, flow)
        if output is Output.JSON:
            sequences = [sequence_view(stored) for stored in waiting]
            print_json(dry_run=True, sequences=sequences, without_job_file=strangers)
            return
        out.print(f"{count(len(waiting), 'sequence')} to recover.")
        for stored in waiting:
            out.print(f"  {stored.id} of {dataset_name(stored.dataset_urn)} ({stored.job}): {stored.state.value}")
        _print_strangers(out, strangers)
        return
    with plan_only_spark(project) as spark:
        outcomes = for_each_job(chosen, lambda job: _recover(project, job, spark))
    datasets = [dataset for job in outcomes.results for dataset in job]
    ended = {SequenceState.COMMITTED, SequenceState.ABORTED}
    left = [dataset for dataset in datasets if dataset.state not in ended or dataset.manifest == "missing"]
    code: int = outcomes.code
    if left and not code:
        code = ExitCode.BUSY if all(dataset.is_busy for dataset in left) else ExitCode.FAILED
    is_asked = outcomes.has_answers and not outcomes.interrupted
    strangers = _without_job_file(project, jobs, flow) if is_asked else []
    if output is Output.JSON:
        views = outcomes.views(lambda _: {})
        recovered = [recovered_view(dataset) for dataset in datasets]
        print_json(exit_code=code, recovered=recovered, jobs=views, without_job_file=strangers)
    else:
        for dataset in datasets:
            print_recovered(out, dataset)
        if datasets or not (code or strangers):
            out.print(recovery_summary(datasets) if datasets else "No unfinished commit sequence.", style="bold")
        _print_strangers(out, strangers)
    raise typer.Exit(code)


def _without_job_file(project: Project, jobs: list[str] | None, flow: str | None) -> list[str]:
    """Return the jobs with waiting sequences that the project does not have, if no job or flow was named."""
    if jobs or flow is not None:
        return []
    with closing(project.open_store()) as store:
        waiting = {stored.job for stored in store.load_sequences(None, WAITING)}
    return sorted(waiting - {one.job for one in project.jobs})


def _print_strangers(out: Console, jobs: list[str]) -> None:
    if jobs:
        shown = ", ".join(jobs[:MAX_ROWS]) + ", ..." * (len(jobs) > MAX_ROWS)
        out.print(
            f"Sequences left as they are, because the project has no job file of their jobs: {shown}. "
            "`gobblin commit list` shows them. They are finished once the job files are back, or given up by `gobblin "
            "commit abandon`.",
            style="yellow",
        )


@app.command(
    epilog=examples(
        "gobblin commit abandon 7c0ffee07c0ffee07c0ffee07c0ffee0 --dry-run",
        "gobblin commit abandon 7c0ffee07c0ffee07c0ffee07c0ffee0 --reason 'the table is gone' --yes",
    )
)
def abandon(
    ctx: typer.Context,
    sequence_id: Annotated[str, typer.Argument(metavar="SEQUENCE", help="Id, as `gobblin commit list` shows it.")],
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why; kept with the sequence.", callback=readable)] = "",
    flow: FlowOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give up one commit sequence, so that its dataset is read again from its watermark.

    An unfinished one is undone. A quarantined one is only marked: its files stay, for you to look at and to delete.
    Exits with 1 if undoing is not safe; the sequence is then quarantined.
    """
    project = open_with_flow(ctx, flow)
    with closing(project.open_store()) as store:
        found = preview_abandonment(project, store, sequence_id)
        is_kept = found.state is SequenceState.QUARANTINED
        if not dry_run:
            confirm(f"Give up {found.state} sequence {found.sequence_id} of {dataset_name(found.dataset_urn)}?", yes)
            found = abandon_sequence(project, store, sequence_id, who=who(), why=reason)
    if output is Output.JSON:
        print_json(dry_run=dry_run, **abandonment_view(found))
    else:
        out = console(sys.stdout)
        verb = ("would be " if dry_run else "was ") + (
            "given up, and stays in `commit list --all`" if is_kept else "undone"
        )
        if found.state is SequenceState.QUARANTINED and not is_kept:
            advice = "Abandon it again to keep its files as they are. It is quarantined"
            verb = f"cannot be undone safely: {found.reason.rstrip('.')}. {advice}"
        out.print(f"Sequence {found.sequence_id} of {dataset_name(found.dataset_urn)} {verb}.")
        for path in found.orphans:
            is_listed = path in found.in_tables
            advice = "keep it if its table lists it, which could not be read without it" if is_listed else ""
            if path in found.rejected:
                advice = "keep it, unless the commit is read again: it has the rows that policies rejected"
            out.print(f"  in no snapshot, {advice or 'delete it yourself'}: {path}")
    raise typer.Exit(ExitCode.SUCCEEDED if dry_run or found.state is SequenceState.ABORTED else ExitCode.FAILED)


@app.command(epilog=examples("gobblin commit tell --dry-run", "gobblin commit tell flights --all -s 'nyc/*'"))
def tell(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Also commits that Dagster shows already.")] = False,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    translator: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="Translator of your own definitions, if they pass one."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which commits would be told.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell Dagster the newest commit of each dataset that it does not show, e.g. after its assets were wiped.

    The instance is the one in DAGSTER_HOME, else that of `gobblin dev`. Its sensor for commits of other processes
    tells an instance all commits that it has not heard of; this is for commits that it forgot since.
    """
    # Dagster takes seconds to import, and no other command of the group needs it.
    from gobblin_dagster.orchestration.binding import JobBinding  # noqa: PLC0415
    from gobblin_dagster.orchestration.tell import load_translator, open_instance, tell_commits  # noqa: PLC0415

    project = open_here(ctx, jobs)
    chosen = jobs_of(project, jobs)
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    used = load_translator(translator)
    with closing(project.open_store()) as store, open_instance(project.root) as instance:

        def told(job: JobSpec) -> Told:
            bound = JobBinding.of(project, job, used)
            wanted = selection.matches
            return tell_commits(bound, store, instance, is_wanted=wanted, again=everything, dry_run=dry_run)

        outcomes = for_each_job(chosen, told)
    if output is Output.JSON:
        views = outcomes.views(
            lambda one: {"assets": [*one.assets], "told": [*one.told], "known": [*one.known], "running": [*one.running]}
        )
        print_json(dry_run=dry_run, exit_code=outcomes.code, jobs=views)
    else:
        out = console(sys.stdout)
        for one in outcomes.results:
            verb = "to tell" if dry_run else "told"
            said = [f"{count(len(one.told), 'commit')} {verb}", f"{len(one.known)} shown already"]
            said += [f"{len(one.running)} left to the runs that made them"] if one.running else []
            out.print(f"{', '.join(one.assets)}: {', '.join(said)}.")
    raise typer.Exit(outcomes.code)


def _shortened(text: str, sequence: CommitSequence) -> str:
    """Shorten paths to the part below the staging or output folder; `--output json` has the whole paths."""
    for folder in sequence.staging_dirs:
        text = text.replace(folder.rstrip("/") + "/", "(staging)/")
    return text.replace(sequence.output_root + "/", "")


def _recover(project: Project, job: JobSpec, spark: SessionRunner) -> tuple[RecoveredDataset, ...]:
    # Spark starts only if rows of a committed dataset of source `spark` are to be counted again.
    with closing(project.open_store()) as store:
        return recover_job(JobContext.of(project, job, store, runner=spark))
