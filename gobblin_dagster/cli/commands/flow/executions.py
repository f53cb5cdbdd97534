"""Commands that run flows and show what became of them."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from gobblin_dagster.cli.commands.flow.connect import FlowArgument, UrlOption, connect
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.flow_jobs import group_and_name
from gobblin_dagster.cli.render.console import console, instant, print_facts, print_table
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.client import FlowClient
from gobblin_dagster.core.errors import FlowNotFoundError
from gobblin_dagster.core.exit_codes import ExitCode

POLL_S = 0.5
"""How often an execution that is followed is asked for."""

_FINAL = {"COMPLETE": ExitCode.SUCCEEDED, "FAILED": ExitCode.FAILED, "CANCELLED": ExitCode.INTERRUPTED}

ExecutionOption = Annotated[
    int | None,
    typer.Option("--execution", metavar="ID", help="The execution; default: the newest.", show_default=False),
]


def run(
    ctx: typer.Context,
    flow: FlowArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the execution to its end.")] = True,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a flow now, and follow it to its end. Ctrl-C ends the following, not the execution."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        number = client.run(group, name)
        out = console(sys.stdout if output is Output.TEXT else sys.stderr)
        out.print(f"Execution {number} of flow {flow}")
        document = _follow(client, group, name, number, out) if wait else client.execution(group, name, number)
    if output is Output.JSON:
        print_json(execution=document)
    elif wait:
        _print_execution(out, document)
    raise typer.Exit(_FINAL.get(document["executionStatus"], ExitCode.SUCCEEDED))


def status(
    ctx: typer.Context,
    flow: FlowArgument,
    execution: ExecutionOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the execution to its end.")] = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the newest execution of a flow, with its jobs."""
    group, name = group_and_name(flow)
    out = console(sys.stdout if output is Output.TEXT else sys.stderr)
    with connect(ctx, url) as client:
        number = _newest(client, group, name) if execution is None else execution
        document = _follow(client, group, name, number, out) if wait else client.execution(group, name, number)
    if output is Output.JSON:
        print_json(execution=document)
    else:
        _print_execution(out, document)
    raise typer.Exit(_FINAL.get(document["executionStatus"], ExitCode.SUCCEEDED) if wait else ExitCode.SUCCEEDED)


def executions(
    ctx: typer.Context,
    flow: FlowArgument,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many.")] = 10,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the newest executions of a flow."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        try:
            found = client.executions(group, name, count)
        except FlowNotFoundError:
            client.get(group, name)  # a flow that exists and never ran has none
            found = []
    if output is Output.JSON:
        print_json(executions=found)
        return
    rows = [
        (
            one["id"]["flowExecutionId"],
            _at(one["id"]["flowExecutionId"]),
            one["executionStatus"],
            one["message"],
        )
        for one in found
    ]
    out = console(sys.stdout)
    if rows:
        print_table(out, {"execution": "right", "time": "left", "status": "left", "message": "left"}, rows)
    else:
        out.print(f"Flow {flow} never ran.")


def logs(
    ctx: typer.Context,
    flow: FlowArgument,
    execution: ExecutionOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the execution is over.")] = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what happened in an execution."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        number = _newest(client, group, name) if execution is None else execution
        if follow and output is Output.TEXT:
            _follow(client, group, name, number, console(sys.stdout))
            return
        events = client.events(group, name, number)
        if not events:
            client.execution(group, name, number)
    if output is Output.JSON:
        print_json(events=events)
        return
    for event in events:
        _print_event(console(sys.stdout), event)


def kill(
    ctx: typer.Context,
    flow: FlowArgument,
    execution: ExecutionOption = None,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="End only this job, and those after it.", show_default=False)
    ] = None,
    url: UrlOption = None,
) -> None:
    """End an execution, or one job of it: work units that run end, and what is whole is committed."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        number = _newest(client, group, name) if execution is None else execution
        if job is None:
            client.kill(group, name, number)
        else:
            client.kill_job(group, name, number, job)
    told = f"Execution {number}" if job is None else f"Job {job} of execution {number}"
    console(sys.stdout).print(f"{told} of flow {flow} is asked to end.")


def resume(ctx: typer.Context, flow: FlowArgument, execution: ExecutionOption = None, url: UrlOption = None) -> None:
    """Run again what failed, was cancelled or did not run in an execution."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        number = _newest(client, group, name) if execution is None else execution
        client.resume(group, name, number)
    console(sys.stdout).print(f"Execution {number} of flow {flow} goes on.")


def _newest(client: FlowClient, group: str, name: str) -> int:
    number: int = client.executions(group, name, 1)[0]["id"]["flowExecutionId"]
    return number


def _follow(client: FlowClient, group: str, name: str, number: int, out: Console) -> dict[str, Any]:
    """Print what happens until the execution is over, and return it."""
    seen = 0
    while True:
        document = client.execution(group, name, number)
        for event in client.events(group, name, number, seen):
            _print_event(out, event)
            seen = event["number"]
        if document["executionStatus"] in _FINAL:
            return document
        time.sleep(POLL_S)


def _print_event(out: Console, event: dict[str, Any]) -> None:
    who = event["jobName"] or "flow"
    out.print(f"{_at(event['time'])}  {event['executionStatus']:<15} {who}  {event['message']}".rstrip())


def _print_execution(out: Console, document: dict[str, Any]) -> None:
    key, times = document["id"], document["executionStatistics"]
    print_facts(
        out,
        {
            "flow": f"{key['flowGroup']}/{key['flowName']}",
            "execution": str(key["flowExecutionId"]),
            "status": document["executionStatus"],
            "message": document["message"],
            "ended": _at(times["executionEndTime"]) if times["executionEndTime"] else "-",
        },
    )
    for job in document["jobStatuses"]:
        statistics, state = job["executionStatistics"], job["jobState"]
        out.print(f"  {job['executionStatus']:<10} {job['jobId']['jobName']}: {statistics['processedCount']:,} rows")
        if job["message"]:
            out.print(f"             {job['message']}")
        if state["highWatermark"]:
            for line in moves(state["lowWatermark"], state["highWatermark"]):
                out.print(f"             watermark {line}")


def moves(low: str, high: str) -> list[str]:
    """Return how far watermarks moved, a line for each dataset: `a: 1; b: 2` to `a: 3; b: 4` is two lines."""
    lows, highs = ([one.partition(": ") for one in text.split("; ")] for text in (low, high))
    if len(highs) > 1 and [one[0] for one in lows] == [one[0] for one in highs]:
        return [f"{urn}: {old} -> {new}" for (urn, _, old), (_, _, new) in zip(lows, highs, strict=True)]
    return [f"{low or '(none)'} -> {high}"]


def _at(epoch_ms: int) -> str:
    return instant(datetime.fromtimestamp(epoch_ms / 1000, UTC))
