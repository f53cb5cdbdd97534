"""`gobblin quarantine`: count, show and replay rows that policies rejected."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import closing
from typing import Annotated

import typer

from gobblin_dagster.cli.commands.state.lookup import DatasetArgument, JobOption
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import JobsArgument, Output, OutputOption, examples, open_store_here
from gobblin_dagster.cli.flow_jobs import FlowOption, job_with_flow, jobs_with_flow, open_with_flow
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import console, dataset_name, print_table, rows_of
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.snapshots.rejected_rows import (
    QuarantineCount,
    QuarantinedRow,
    count_quarantined,
    count_readable,
    read_quarantined,
)
from gobblin_dagster.state.lookup import find_state

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="Count, show and replay rows that policies rejected.",
)

_COLUMNS = {"job": "left", "dataset": "left", "policy": "left", "rows": "right"}


@app.command("list", epilog=examples("gobblin quarantine list", "gobblin quarantine list flights --output json"))
def list_counts(
    ctx: typer.Context, jobs: JobsArgument = None, flow: FlowOption = None, output: OutputOption = Output.TEXT
) -> None:
    """Count quarantined rows by job, dataset and policy, in the newest snapshots."""
    with closing(open_store_here(ctx)) as store:
        found = {name: count_readable(store, name) for name in jobs_with_flow(ctx, store, flow, jobs)}
    counts = [one for of_job, _ in found.values() for one in of_job]
    damaged = [(job, urn, str(fault)) for job, (_, faults) in found.items() for urn, fault in sorted(faults.items())]
    if output is Output.JSON:
        print_json(
            rows=sum(one.rows for one in counts),
            counts=[_count_view(one) for one in counts],
            damaged=[{"job": job, "dataset": urn, "problem": problem} for job, urn, problem in damaged],
        )
        return
    out = console(sys.stdout)
    if counts:
        print_table(
            out, _COLUMNS, ((one.job, dataset_name(one.dataset_urn), one.policy, rows_of(one.rows)) for one in counts)
        )
        out.print(f"{count(sum(one.rows for one in counts), 'row')} in quarantine; `gobblin quarantine show DATASET`")
    elif not damaged:
        out.print("No row is in quarantine.")
    for _, urn, problem in damaged:
        out.print(f"{dataset_name(urn)}: not counted: {problem}", style="red")


@app.command(
    epilog=examples(
        "gobblin quarantine show AA/EWR",
        "gobblin quarantine show AA/EWR --policy has_tail --limit 100 --output json",
    )
)
def show(
    ctx: typer.Context,
    dataset: DatasetArgument,
    job: JobOption = None,
    flow: FlowOption = None,
    policy: Annotated[str | None, typer.Option(help="Only rows that broke this policy.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="At most this many rows.")] = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show quarantined rows of a dataset: policy, reason, file and row that they came from, and the rows themselves."""
    project = open_with_flow(ctx, flow, [job] if flow and job else None)
    with closing(project.open_store()) as store:
        state = find_state(store, dataset, job_with_flow(ctx, store, flow, job, dataset))
        counts = {one.policy: one.rows for one in count_quarantined(store, state.job, [dataset])}
        if policy is not None and policy not in counts:
            raise UsageError(
                problem=f"No row of dataset {dataset!r} is in quarantine for policy {policy!r}.",
                hint=f"There are rows for: {', '.join(counts) or 'none'}.",
            )
        rows = read_quarantined(store, state.job, dataset, policy, limit)
    total = counts[policy] if policy is not None else sum(counts.values())
    if output is Output.JSON:
        shown = [dataclasses.asdict(row) for row in rows]
        print_json(job=state.job, dataset=dataset, total=total, rows=shown)
        return
    out = console(sys.stdout)
    if not rows:
        out.print(f"No row of {dataset_name(dataset)} is in quarantine.")
        return
    for row in rows:
        out.print(f"{row.policy}: {row.reason}", style="yellow")
        out.print(f"  {_origin(row)}")
        out.print(f"  {row.record}")
    if total > len(rows):
        out.print(f"... {count(total - len(rows), 'more row')}; `--limit` shows more")


@app.command(
    epilog=examples(
        "gobblin quarantine replay AA/EWR --dry-run", "gobblin quarantine replay AA/EWR --rule has_tail --yes"
    )
)
def replay(
    ctx: typer.Context,
    dataset: DatasetArgument,
    job: JobOption = None,
    flow: FlowOption = None,
    rule: Annotated[str | None, typer.Option(help="Only rows that this policy or converter rejected.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Send rejected rows of a dataset through the pipeline again, by the job as it is now, exactly once.

    Rows enter where they were rejected. Rows that are rejected again return to quarantine; the watermark does not move.
    """
    project = open_with_flow(ctx, flow, [job] if flow and job else None)
    with closing(project.open_store()) as store:
        spec = project.job(find_state(store, dataset, job_with_flow(ctx, store, flow, job, dataset)).job)
    if not dry_run:
        waiting = sum(replay_quarantine(project, spec, dataset, rule=rule, dry_run=True).rows.values())
        confirm(
            f"Send {count(waiting, 'row')} of {dataset_name(dataset)} through the pipeline again?", yes or not waiting
        )
    done = replay_quarantine(project, spec, dataset, rule=rule, dry_run=dry_run, who=who())
    if output is Output.JSON:
        print_json(dry_run=dry_run, job=spec.job, **dataclasses.asdict(done))
        return
    out = console(sys.stdout)
    rows = sum(done.rows.values())
    if not rows:
        of_rule = f" that {rule!r} rejected" if rule is not None else ""
        kept = f"{count(done.kept, 'row')} in quarantine; `gobblin quarantine list` shows their rules."
        out.print(f"No row of {dataset_name(dataset)}{of_rule} can be replayed; {kept}")
        return
    by_rule = ", ".join(f"{name} {number:,}" for name, number in done.rows.items())
    if dry_run:
        out.print(f"{count(rows, 'row')} would go through the pipeline again: {by_rule}; {done.kept:,} would stay")
        return
    written = ", ".join(f"{name} {number:,}" for name, number in done.published.items()) or "none"
    out.print(f"{count(rows, 'row')} went through the pipeline again: {by_rule}")
    gone = (f"{done.dropped:,} dropped, " if done.dropped else "") + (
        f"{done.untaken:,} taken by no branch, " if done.untaken else ""
    )
    out.print(
        f"published {written}; {done.rejected_again:,} rejected again, {gone}{done.kept:,} stayed; "
        f"snapshot {done.snapshot}"
    )


def _origin(row: QuarantinedRow) -> str:
    number = "" if row.source_row is None else f", row {row.source_row:,}"
    return f"{row.source_file}{number} ({row.stage})"


def _count_view(one: QuarantineCount) -> dict[str, str | int]:
    return {"job": one.job, "dataset": one.dataset_urn, "policy": one.policy, "rows": one.rows}
