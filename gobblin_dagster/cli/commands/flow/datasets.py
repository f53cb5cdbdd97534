"""Commands about the datasets of a flow: how far they are, and where their next runs begin."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.commands.flow.connect import FlowArgument, UrlOption, connect
from gobblin_dagster.cli.commands.startpoint import OnRewindOption
from gobblin_dagster.cli.commands.state.change import ReasonOption, YesOption
from gobblin_dagster.cli.commands.state.lookup import DatasetArgument, JobOption
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.flow_jobs import group_and_name
from gobblin_dagster.cli.render.console import console, dataset_name, instant, print_table, rows_of
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.startpoint import DEFAULT_EXPIRY

_COLUMNS = {
    "dataset": "left",
    "watermark": "left",
    "lag": "right",
    "rows": "right",
    "quarantined": "right",
    "open": "right",
    "begins at": "left",
    "published": "left",
}


def datasets(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show how far the datasets of a flow are: watermark, lag, rows, startpoint, open commit sequences."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        found = client.datasets(group, name)
    if output is Output.JSON:
        print_json(datasets=found)
        return
    out = console(sys.stdout)
    if not found:
        out.print(f"Nothing of flow {flow} is published yet.")
    for job in dict.fromkeys(one["jobName"] for one in found):
        out.print(f"Job {job}", style="bold")
        print_table(out, _COLUMNS, (_row(one) for one in found if one["jobName"] == job))
    for one in found:
        for sequence in one["openSequences"]:
            told = f"commit sequence {sequence['sequence']} is {sequence['state']}. {sequence['reason']}"
            out.print(f"{dataset_name(one['datasetUrn'])}: {told}".rstrip(), style="yellow")
        if one["problem"]:
            out.print(f"{dataset_name(one['datasetUrn'])}: {one['problem']}", style="red")


def startpoint(
    ctx: typer.Context,
    flow: FlowArgument,
    dataset: DatasetArgument,
    reason: ReasonOption,
    position: Annotated[
        str | None,
        typer.Argument(metavar="POSITION", help="A watermark, timestamp:<instant>, oldest or upcoming."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the startpoint that waits.")] = False,
    job: JobOption = None,
    expires: Annotated[
        int, typer.Option(metavar="DAYS", min=1, max=36_500, help="Days until it expires if no run applies it.")
    ] = DEFAULT_EXPIRY.days,
    on_rewind: Annotated[
        OnRewindOption,
        typer.Option(help="If it goes back into published data: refuse, or what becomes of the rows read twice."),
    ] = OnRewindOption.REFUSE,
    yes: YesOption = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say where the next run of a dataset begins, or remove what was said.

    Data before the position counts as read, data after it is read (again).
    """
    group, name = group_and_name(flow)
    if remove == (position is not None):
        raise UsageError(problem="Give either a POSITION or --remove.")
    with connect(ctx, url) as client:
        if position is None:
            changed = client.remove_startpoint(group, name, dataset, reason, job=job)
        else:
            confirm(f"Begin the next run of {dataset_name(dataset)} at {position}?", yes)
            changed = client.set_startpoint(
                group, name, dataset, position, reason, job=job, expires_in_days=expires, on_rewind=on_rewind.value
            )
    if output is Output.JSON:
        print_json(removed=remove, startpoint=changed)
        return
    out = console(sys.stdout)
    if remove:
        out.print(f"Removed; the next run of {dataset_name(dataset)} begins at its watermark.")
    else:
        expires_at = instant(datetime.fromtimestamp(changed["expiresAt"] / 1000, UTC))
        out.print(f"The next run of {dataset_name(dataset)} ({changed['jobName']}) begins at {changed['position']}.")
        out.print(f"If no run applies it, it expires at {expires_at}. Run now: gobblin flow run {flow}")


def _lag(one: dict[str, Any]) -> str:
    if "lagSeconds" in one:
        return str(timedelta(seconds=one["lagSeconds"]))
    return f"{one['lagPositions']:,} positions" if "lagPositions" in one else "-"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    published = one.get("updatedAt")
    return (
        dataset_name(one["datasetUrn"]),
        one.get("watermark", "-"),
        _lag(one),
        rows_of(one.get("rowsRead", 0)),
        rows_of(one.get("rowsQuarantined", 0)),
        str(len(one["openSequences"]) or "-"),
        one.get("startpoint", {}).get("position", "-"),
        "-" if published is None else instant(datetime.fromtimestamp(published / 1000, UTC)),
    )
