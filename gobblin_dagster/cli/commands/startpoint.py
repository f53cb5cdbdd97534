"""`gobblin startpoint set|list|remove`: choose where the next run of a dataset begins, instead of at its watermark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.commands.state.change import DryRunOption, ReasonOption, YesOption
from gobblin_dagster.cli.commands.state.lookup import JobOption
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import JobsArgument, Output, OutputOption, examples, open_store_here
from gobblin_dagster.cli.flow_jobs import FlowOption, jobs_with_flow, open_with_flow
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import MAX_ROWS, console, dataset_name, instant, print_table, rows_of
from gobblin_dagster.cli.render.documents import mark
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.spark import plan_only_spark
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import DEFAULT_EXPIRY, Startpoint, parse_startpoint_position
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.run.startpoint_preview import (
    ALL,
    job_of_dataset,
    preview_startpoints,
    wished_startpoints,
)

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="Say where the next run of a dataset begins.",
)

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="The dataset.urn; '*': all of the job that have no startpoint.")
]


@app.command(
    "set",
    epilog=examples(
        "gobblin startpoint set AA-EWR 2013-01-15 --reason 'bad files, read again'",
        "gobblin startpoint set events timestamp:2026-11-21T06:00Z --reason 'after the outage' --dry-run",
        "gobblin startpoint set '*' upcoming --job clicks --reason 'history is loaded otherwise' --yes",
    ),
)
def set_startpoint(
    ctx: typer.Context,
    dataset: DatasetArgument,
    position: Annotated[
        str,
        typer.Argument(metavar="POSITION", help="A watermark, timestamp:<instant>, oldest or upcoming."),
    ],
    reason: ReasonOption,
    job: JobOption = None,
    flow: FlowOption = None,
    expires: Annotated[
        int, typer.Option(metavar="DAYS", min=1, max=36_500, help="Days until it expires if no run applies it.")
    ] = DEFAULT_EXPIRY.days,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the next run of a dataset begin elsewhere: data before it counts as read, data after it is read (again)."""
    project = open_with_flow(ctx, flow, [job] if job else None)
    now = project.clock.now()
    with closing(project.open_store()) as store, plan_only_spark(project) as spark:
        spec = project.job(job) if job is not None else job_of_dataset(project, store, dataset)
        waiting = store.load_startpoints(spec.job)
        wishes = wished_startpoints(
            project,
            spec,
            dataset,
            parse_startpoint_position(position),
            who=who(),
            why=reason,
            now=now,
            expires_at=now + timedelta(days=expires),
            spark=spark,
            store=store,
        )
        plans = preview_startpoints(project, spec, wishes, spark, store=store)
        good = {urn: plan for urn, plan in plans.items() if not plan.problem}
        if output is Output.TEXT:
            _print_preview(plans, waiting)
        if not dry_run and good:
            confirm(f"Begin the next run of {count(len(good), 'dataset')} of job {spec.job} there?", yes)
            for urn in good:
                store.save_startpoint(wishes[urn])
    if output is Output.JSON:
        listed = [_view(wishes[urn], now) | _begin_view(plan) for urn, plan in plans.items()]
        print_json(dry_run=dry_run, startpoints=listed)
    else:
        text = "Nothing was changed." if dry_run or not good else "Done; it counts from the next run on."
        console(sys.stdout).print(text, style="bold")
    if len(good) < len(plans):
        raise typer.Exit(ExitCode.PARTIAL if good else ExitCode.FAILED)


@app.command("list", epilog=examples("gobblin startpoint list", "gobblin startpoint list flights --output json"))
def list_startpoints(
    ctx: typer.Context, jobs: JobsArgument = None, flow: FlowOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the startpoints that no run has applied yet."""
    now = SystemClock().now()
    with closing(open_store_here(ctx)) as store:
        names = jobs_with_flow(ctx, store, flow, jobs)
        found = [one for name in names for _, one in sorted(store.load_startpoints(name).items())]
    if output is Output.JSON:
        print_json(startpoints=[_view(one, now) for one in found])
        return
    out = console(sys.stdout)
    out.print(f"{count(len(found), 'startpoint')}", style="bold")
    columns = dict.fromkeys(("dataset", "job", "begins at", "state", "expires", "set by", "why"), "left")
    if found:
        print_table(out, columns, (_row(one, now) for one in found))


@app.command(
    epilog=examples("gobblin startpoint remove AA-EWR --dry-run", "gobblin startpoint remove '*' --job clicks --yes")
)
def remove(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.urn; '*': all of the job.")],
    job: JobOption = None,
    flow: FlowOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove a startpoint: the next run begins at the dataset's watermark. A run that works already honours it."""
    now = SystemClock().now()
    with closing(open_store_here(ctx)) as store:
        names = [job] if job and not flow else jobs_with_flow(ctx, store, flow, [job] if job else None)
        found = [s for n in names for urn, s in sorted(store.load_startpoints(n).items()) if dataset in (urn, ALL)]
        _require_one_job(dataset, found)
        if output is Output.TEXT:
            for one in found:
                console(sys.stdout).print(f"{dataset_name(one.dataset_urn)} ({one.job}): {one}, set by {one.who}")
        if not dry_run:
            confirm(f"Remove {count(len(found), 'startpoint')}?", yes)
            for one in found:
                store.delete_startpoint(one)
    if output is Output.JSON:
        print_json(dry_run=dry_run, startpoints=[_view(one, now) for one in found])
    else:
        console(sys.stdout).print("Nothing was changed." if dry_run else "Done.", style="bold")


def _print_preview(plans: Mapping[str, DatasetPlan], waiting: Mapping[str, Startpoint]) -> None:
    out = console(sys.stdout)
    columns = {"dataset": "left", "begins at": "left", "reads up to": "left", "rows": "right", "remark": "left"}
    rows = [
        (
            dataset_name(urn),
            mark(plan.low) or "its oldest position",
            mark(plan.expected_high) or "-",
            rows_of(plan.rows if plan.has_work else 0),
            plan.problem or (f"instead of {waiting[urn]}" if urn in waiting else ""),
        )
        for urn, plan in list(plans.items())[:MAX_ROWS]
    ]
    if rows:
        print_table(out, columns, rows)
    if len(plans) > MAX_ROWS:
        out.print(f"... {len(plans) - MAX_ROWS:,} more")


def _require_one_job(dataset: str, found: list[Startpoint]) -> None:
    jobs = sorted({one.job for one in found})
    if not found:
        raise UsageError(
            problem=f"Dataset {dataset!r} has no startpoint.", hint="`gobblin startpoint list` shows those there are."
        )
    if len(jobs) > 1:
        raise UsageError(
            problem=f"Dataset {dataset!r} has startpoints in several jobs: {', '.join(jobs)}.",
            hint="Name one with --job.",
        )


def _state(one: Startpoint, now: datetime) -> str:
    if one.is_expired(now):
        return "expired"
    return "waiting" if one.pinned is None else "pinned"


def _row(one: Startpoint, now: datetime) -> tuple[str, ...]:
    expires = "-" if one.pinned is not None else instant(one.expires_at)
    return dataset_name(one.dataset_urn), one.job, str(one), _state(one, now), expires, one.who, one.why


def _view(one: Startpoint, now: datetime) -> dict[str, Any]:
    return {
        "id": one.id,
        "job": one.job,
        "dataset": one.dataset_urn,
        "position": str(one.position),
        "kind": one.position.kind,
        "state": _state(one, now),
        "pinned": mark(one.pinned.watermark) if one.pinned is not None else None,
        "created_at": one.created_at,
        "expires_at": one.expires_at,
        "who": one.who,
        "why": one.why,
    }


def _begin_view(plan: DatasetPlan) -> dict[str, Any]:
    return {"begins_at": mark(plan.low), "expected_high": mark(plan.expected_high), "problem": plan.problem}
