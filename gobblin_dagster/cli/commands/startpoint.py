"""`gobblin startpoint set|list|remove|history`: where the next run of a dataset begins instead of at its watermark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.commands.state.change import DryRunOption, ReasonOption, YesOption
from gobblin_dagster.cli.commands.state.lookup import JobOption
from gobblin_dagster.cli.complete import dataset_names
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import JobsArgument, Output, OutputOption, examples, open_store_here
from gobblin_dagster.cli.flow_jobs import FlowOption, jobs_with_flow, open_with_flow
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import MAX_ROWS, console, dataset_name, instant, print_table, rows_of
from gobblin_dagster.cli.render.documents import mark
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.spark import plan_only_spark
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    DEFAULT_EXPIRY,
    DamagedStartpoint,
    Startpoint,
    StartpointKey,
    parse_startpoint_position,
)
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.startpoint_history import startpoint_history
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.run.startpoint_preview import (
    job_of_dataset,
    preview_jobs,
    removable,
    settable,
    wished_startpoints,
)
from gobblin_dagster.state.startpoints import StartpointManager

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="Say where the next run of a dataset begins.",
)

DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="The dataset.urn; '*': all of the job that have no startpoint.",
        autocompletion=dataset_names,
    ),
]


class OnRewindOption(StrEnum):
    """What a run does if its startpoint goes back into published data."""

    REFUSE = "refuse"
    APPEND = "append"
    REPLACE = "replace"
    UPSERT = "upsert"


AllJobsOption = Annotated[
    bool, typer.Option("--all-jobs", help="For every job that reads the dataset from the same source.")
]


@app.command(
    "set",
    epilog=examples(
        "gobblin startpoint set AA-EWR 2013-01-15 --on-rewind replace --reason 'bad files, read again'",
        "gobblin startpoint set AA-EWR 2013-01-15 --until 2013-01-18 --on-rewind replace --reason 'three bad days'",
        "gobblin startpoint set events timestamp:2026-11-21T06:00Z --reason 'after the outage' --dry-run",
        "gobblin startpoint set '*' upcoming --job clicks --reason 'history is loaded otherwise' --yes",
        "gobblin startpoint set clicks oldest --partition clicks-0 --reason 'its disk was lost'",
        "gobblin startpoint set clicks timestamp:2026-11-21 --all-jobs --job hourly --reason 'bad producer'",
    ),
)
def set_startpoint(
    ctx: typer.Context,
    dataset: DatasetArgument,
    position: Annotated[
        str,
        typer.Argument(
            metavar="POSITION",
            help="A watermark, timestamp:<instant>, oldest, upcoming, <type>:<JSON>.",
        ),
    ],
    reason: ReasonOption,
    job: JobOption = None,
    flow: FlowOption = None,
    partition: Annotated[
        str, typer.Option(metavar="NAME", help="Only this partition, a part of the watermark such as clicks-0.")
    ] = "",
    all_jobs: AllJobsOption = False,
    until: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="Read only up to there, exclusive; the watermark stays where it is."),
    ] = None,
    on_rewind: Annotated[
        OnRewindOption,
        typer.Option(help="If it goes back into published data: refuse, or what becomes of the rows read twice."),
    ] = OnRewindOption.REFUSE,
    expires: Annotated[
        int, typer.Option(metavar="DAYS", min=1, max=36_500, help="Days until it expires if no run applies it.")
    ] = DEFAULT_EXPIRY.days,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the next run of a dataset begin elsewhere: data before it counts as read, data after it is read (again)."""
    project = open_with_flow(ctx, flow, [job] if job and not all_jobs else None)
    with closing(project.open_store()) as store, plan_only_spark(project) as spark:
        now = store.now()
        spec = project.job(job) if job is not None else job_of_dataset(project, store, dataset)
        waiting = {one.key: one for one in store.list_startpoints(ALL_JOBS if all_jobs else spec.job)}
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
            partition=partition,
            for_all_jobs=all_jobs,
            until=None if until is None else parse_startpoint_position(until),
            on_rewind=on_rewind.value,
        )
        plans = preview_jobs(project, spec, wishes, spark, store=store)
        good = settable(wishes, plans)
        if output is Output.TEXT:
            _print_preview(plans, wishes, waiting)
        if not dry_run and good:
            where = "all jobs that read it" if all_jobs else f"job {spec.job}"
            confirm(f"Begin the next run of {count(len(good), 'dataset')} of {where} there?", yes)
            for one in good:
                StartpointManager(store).save(one)
    if output is Output.JSON:
        stored = {one.dataset_urn for one in good}
        listed = [
            _view(wishes[urn], now)
            | ({} if urn in stored else {"state": "refused"})
            | _begin_view(plan)
            | {"planned_job": name}
            for (name, urn), plan in plans.items()
        ]
        print_json(dry_run=dry_run, startpoints=listed)
    else:
        text = "Nothing was changed." if dry_run or not good else "Done; it counts from the next run on."
        console(sys.stdout).print(text, style="bold")
    if len(good) < len(wishes):
        raise typer.Exit(ExitCode.PARTIAL if good else ExitCode.FAILED)


@app.command("list", epilog=examples("gobblin startpoint list", "gobblin startpoint list flights --output json"))
def list_startpoints(
    ctx: typer.Context, jobs: JobsArgument = None, flow: FlowOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List the startpoints that no run has applied yet, those that expired before a run applied them too."""
    with closing(open_store_here(ctx)) as store:
        names = (*jobs_with_flow(ctx, store, flow, jobs), ALL_JOBS)
        found = [one for name in names for one in store.list_startpoints(name)]
        now = store.now()
    if output is Output.JSON:
        print_json(startpoints=[_view(one, now) for one in found])
        return
    out = console(sys.stdout)
    expired = sum(one.is_expired(now) for one in found)
    is_told = f", {expired:,} expired: the next run of the dataset deletes it, or `gobblin clean`" if expired else ""
    out.print(f"{count(len(found), 'startpoint')}{is_told}", style="bold")
    columns = dict.fromkeys(("dataset", "job", "begins at", "state", "expires", "set by", "why"), "left")
    if found:
        print_table(out, columns, (_row(one, now) for one in found))


@app.command(
    epilog=examples("gobblin startpoint remove AA-EWR --dry-run", "gobblin startpoint remove '*' --job clicks --yes")
)
def remove(
    ctx: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="The dataset.urn; '*': all of the job.", autocompletion=dataset_names),
    ],
    job: JobOption = None,
    flow: FlowOption = None,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only that of this partition. [default: whole and partitions]")
    ] = None,
    all_jobs: AllJobsOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Remove a startpoint: the next run begins at the dataset's watermark. A run that works already honours it."""
    with closing(open_store_here(ctx)) as store:
        now = store.now()
        if all_jobs:
            names = [ALL_JOBS]
        else:
            names = [job] if job and not flow else jobs_with_flow(ctx, store, flow, [job] if job else None)
        found = removable(store, names, dataset, partition)
        if output is Output.TEXT:
            for one in found:
                console(sys.stdout).print(f"{dataset_name(one.dataset_urn)} ({one.job}): {one}, set by {one.who}")
        if not dry_run:
            confirm(f"Remove {count(len(found), 'startpoint')}?", yes)
            for one in found:
                StartpointManager(store).remove(one)
    if output is Output.JSON:
        print_json(dry_run=dry_run, startpoints=[_view(one, now) for one in found])
    else:
        console(sys.stdout).print("Nothing was changed." if dry_run else "Done.", style="bold")


@app.command(epilog=examples("gobblin startpoint history", "gobblin startpoint history clicks --output json"))
def history(
    ctx: typer.Context, jobs: JobsArgument = None, flow: FlowOption = None, output: OutputOption = Output.TEXT
) -> None:
    """List what happened to startpoints, with the commits that applied them: who or which run, and the watermark."""
    with closing(open_store_here(ctx)) as store:
        found = startpoint_history(store, jobs_with_flow(ctx, store, flow, jobs))
        now = store.now()
    if output is Output.JSON:
        print_json(
            events=[
                _view(e.startpoint, now)
                | {"at": e.at, "change": e.change, "by": e.who}
                | {"commit": e.commit_id or None, "watermark": mark(e.watermark)}
                for e in found
            ]
        )
        return
    out = console(sys.stdout)
    out.print(count(len(found), "event"), style="bold")
    columns = dict.fromkeys(("at", "dataset", "job", "startpoint", "change", "by", "commit", "watermark"), "left")
    rows = [
        (
            instant(e.at),
            dataset_name(e.startpoint.dataset_urn),
            e.startpoint.job,
            str(e.startpoint),
            e.change,
            e.who,
            e.commit_id or "-",
            mark(e.watermark) or "-",
        )
        for e in found
    ]
    if found:
        print_table(out, columns, rows)


def _print_preview(
    plans: Mapping[tuple[str, str], DatasetPlan],
    wishes: Mapping[str, Startpoint],
    waiting: Mapping[StartpointKey, Startpoint],
) -> None:
    out = console(sys.stdout)
    columns = {
        "dataset": "left",
        "job": "left",
        "begins at": "left",
        "reads up to": "left",
        "rows": "right",
        "remark": "left",
    }
    rows: list[tuple[str, ...]] = [
        (
            dataset_name(urn),
            job,
            mark(plan.low) or "its oldest position",
            mark(plan.expected_high) or "-",
            rows_of(plan.rows if plan.has_work else 0),
            plan.problem or (f"instead of {waiting[wishes[urn].key]}" if wishes[urn].key in waiting else ""),
        )
        for (job, urn), plan in list(plans.items())[:MAX_ROWS]
    ]
    if len({job for job, _ in plans}) == 1:
        del columns["job"]
        rows = [(row[0], *row[2:]) for row in rows]
    if rows:
        print_table(out, columns, rows)
    for (job, urn), plan in list(plans.items())[:MAX_ROWS]:
        for note in plan.notes if not plan.problem else ():
            out.print(f"{dataset_name(urn)} ({job}): {note}")
    if len(plans) > MAX_ROWS:
        out.print(f"... {len(plans) - MAX_ROWS:,} more")


def _state(one: Startpoint, now: datetime) -> str:
    if isinstance(one, DamagedStartpoint):
        return "damaged"
    if one.is_expired(now):
        return "expired"
    if one.pinned is not None:
        return "pinned"
    return "fanned out" if one.generation else "waiting"


def _row(one: Startpoint, now: datetime) -> tuple[str, ...]:
    expires = "-" if one.pinned is not None or one.generation else instant(one.expires_at)
    return dataset_name(one.dataset_urn), one.job, str(one), _state(one, now), expires, one.who, one.why


def _view(one: Startpoint, now: datetime) -> dict[str, Any]:
    return {
        "id": one.id,
        "job": one.job,
        "dataset": one.dataset_urn,
        "partition": one.partition,
        "generation": one.generation,
        "position": str(one.position),
        "kind": one.position.kind,
        "until": None if one.until is None else str(one.until),
        "on_rewind": one.on_rewind,
        "state": _state(one, now),
        "pinned": mark(one.pinned.watermark) if one.pinned is not None else None,
        "created_at": one.created_at,
        "expires_at": one.expires_at,
        "who": one.who,
        "why": one.why,
    }


def _begin_view(plan: DatasetPlan) -> dict[str, Any]:
    return {
        "begins_at": mark(plan.low),
        "expected_high": mark(plan.expected_high),
        "problem": plan.problem,
        "notes": plan.notes,
    }
