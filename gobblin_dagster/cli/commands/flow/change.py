"""Commands that change flows."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from gobblin_dagster.cli.commands.flow.connect import FlowArgument, UrlOption, connect
from gobblin_dagster.cli.commands.state.change import YesOption
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.flow_jobs import group_and_name
from gobblin_dagster.cli.render.console import console
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import FlowCompileError, UsageError
from gobblin_dagster.service.compiler.children import CHILDREN, has_children
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE

TemplateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--template", "-t", metavar="URI", help="Template such as FS:///shop/to-lake.template; several run in order."
    ),
]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="NODE", help="Data node that the data are at, in place of templates.")
]
ToOption = Annotated[
    list[str] | None, typer.Option("--to", metavar="NODE", help="Data node that the data go to; may be repeated.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A parameter of the template, or a property of the flow; may be repeated."
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule", metavar="CRON", help="Quartz cron of 6 or 7 fields: '0 0/5 * ? * *' is every 5 minutes."
    ),
]
RunNowOption = Annotated[bool, typer.Option("--run-now", help="Run once now, in addition to the schedule.")]


def create(
    ctx: typer.Context,
    flow: FlowArgument,
    template: TemplateOption = None,
    source: FromOption = None,
    destinations: ToOption = None,
    values: SetOption = None,
    schedule: ScheduleOption = None,
    run_now: RunNowOption = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a flow: without a schedule it runs once, now.

    Name templates (`--template`), or where the data are and where they go (`--from`, `--to`): then the service finds
    the way through its topology. With `--set flow.children=GROUP/NAME,...` it has the jobs of other flows.
    """
    group, name = group_and_name(flow)
    templates, properties = _way(template, source, destinations, values)
    with connect(ctx, url) as client:
        stored = client.create(group, name, templates, properties, cron=schedule, run_immediately=run_now)
    number = stored["properties"].get("flow.executionId")
    if output is Output.JSON:
        print_json(flow=stored)
        return
    out = console(sys.stdout)
    out.print(f"Flow {flow} is stored.")
    if number is not None:
        out.print(f"It runs once, now, as execution {number}: gobblin flow status {flow}")
    elif schedule is not None:
        out.print(f"Its schedule is {schedule}. Run it now: gobblin flow run {flow}")


def update(
    ctx: typer.Context,
    flow: FlowArgument,
    template: Annotated[
        list[str] | None, typer.Option("--template", "-t", metavar="URI", help="Other templates.")
    ] = None,
    values: SetOption = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave out a property; may be repeated.")
    ] = None,
    schedule: ScheduleOption = None,
    run_now: RunNowOption = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change a flow: what is not named stays as it is. Executions that run go on with the old version."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        newest = client.history(group, name)[-1]
        old = newest["flowConfig"]
        properties = {**old["properties"], **_pairs(values)}
        for key in unset or ():
            if properties.pop(key, None) is None:
                raise UsageError(
                    problem=f"Flow {flow} has no property {key!r}.", hint=f"It has: {', '.join(properties)}."
                )
        client.update(
            group,
            name,
            ",".join(template) if template else old["templateUris"],
            properties,
            cron=schedule or old.get("schedule", {}).get("cronSchedule"),
            run_immediately=run_now,
            version=newest["version"],
        )
        stored = client.get(group, name)
    if output is Output.JSON:
        print_json(flow=stored)
        return
    out = console(sys.stdout)
    out.print(f"Flow {flow} is changed: version {newest['version'] + 1}.")
    _tell_folder(out, newest["managedBy"])


def explain(
    ctx: typer.Context,
    flow: FlowArgument,
    template: TemplateOption = None,
    source: FromOption = None,
    destinations: ToOption = None,
    values: SetOption = None,
    schedule: ScheduleOption = None,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the jobs that a flow would become, or why it cannot; stores nothing.

    With nothing but its name it shows the jobs of a flow that exists, as it stands.
    Of a flow with `--from` and `--to` it also shows the way, and every edge that was refused, the most useful first.
    """
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        if any((template, source, destinations, values, schedule)):
            templates, properties = _way(template, source, destinations, values)
            told = client.create(group, name, templates, properties, cron=schedule, explain=True)["properties"]
        else:
            told = client.explain(group, name)["properties"]
    errors, ways, refused = (
        json.loads(told.get(f"gobblin.flow.{key}", "[]")) for key in ("compile.errors", "ways", "refused")
    )
    out = console(sys.stdout)
    if output is Output.TEXT:
        for way in ways:
            _print_way(out, way)
        for one in refused:
            out.print(f"Refused: {one['edge']} ({one['source']} -> {one['destination']}): {one['reason']}")
    if errors:
        raise FlowCompileError(flow=flow, reasons=tuple(errors))
    jobs: list[dict[str, Any]] = json.loads(told["gobblin.flow.compiled"])
    if output is Output.JSON:
        print_json(jobs=jobs, ways=ways, refused=refused)
        return
    for job in jobs:
        after = f", after {', '.join(job['parents'])}" if job["parents"] else ""
        out.print(f"Job {job['job']} on executor {job['executor']}{after}:")
        out.print(json.dumps(job["config"], indent=2, ensure_ascii=False))


def _print_way(out: Console, way: dict[str, Any]) -> None:
    hops = way["hops"]
    picture = hops[0]["source"] + "".join(f" --{hop['edge']}--> {hop['destination']}" for hop in hops)
    part = f" of {way['sub_path']}" if way["sub_path"] else ""
    out.print(f"Way{part} to {way['destination']}: {picture} (cost {way['cost']:g})")
    for hop in hops:
        out.print(f"  {hop['edge']}: job {hop['job']} on executor {hop['executor']}")


def _way(
    templates: list[str] | None, source: str | None, destinations: list[str] | None, values: list[str] | None
) -> tuple[str, dict[str, str]]:
    """Return the templates and properties of a flow; raises UsageError if nothing says what its jobs are."""
    properties = _pairs(values)
    ways = bool(templates), bool(source or destinations), has_children(properties)
    if sum(ways) != 1 or (source is None) != (not destinations):
        raise UsageError(
            problem="Name templates with --template, or a way with --from NODE and --to NODE, or other flows with "
            f"--set {CHILDREN}=GROUP/NAME,GROUP/NAME."
        )
    if source is not None:
        properties |= {SOURCE: source, DESTINATIONS: ",".join(destinations or ())}
    return ",".join(templates or ()), properties


def pause(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None) -> None:
    """Let a flow's schedule rest."""
    _act(ctx, flow, url, "pause", "rests")


def unpause(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None) -> None:
    """Let a flow's schedule go on; fire times in between are not caught up."""
    _act(ctx, flow, url, "unpause", "goes on with its schedule")


def rollback(
    ctx: typer.Context,
    flow: FlowArgument,
    version: Annotated[
        int, typer.Argument(metavar="VERSION", min=1, help="A version that `gobblin flow history` lists.")
    ],
    url: UrlOption = None,
) -> None:
    """Make an older version of a flow the newest."""
    _act(ctx, flow, url, "rollback", f"is as it was in version {version}", {"version": version})


def unschedule(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None) -> None:
    """End a flow's schedule, and keep the flow."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        client.unschedule(group, name)
        managed_by = client.history(group, name)[-1]["managedBy"]
    out = console(sys.stdout)
    out.print(f"Flow {flow} has no schedule any more.")
    _tell_folder(out, managed_by)


def delete(ctx: typer.Context, flow: FlowArgument, yes: YesOption = False, url: UrlOption = None) -> None:
    """Take a flow out of the catalog; executions that run go on, and its history stays."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        client.get(group, name)
        _tell_folder(console(sys.stdout), client.history(group, name)[-1]["managedBy"], "creates it again")
        confirm(f"Delete the flow {flow}?", yes)
        client.delete(group, name)
    console(sys.stdout).print(f"Flow {flow} is deleted.")


def _act(
    ctx: typer.Context, flow: str, url: str | None, action: str, told: str, body: dict[str, Any] | None = None
) -> None:
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        stored = client.act(group, name, action, body)
    out = console(sys.stdout)
    out.print(f"Flow {flow} {told} (version {stored['version']}).")
    if action == "rollback":
        _tell_folder(out, stored["managedBy"])


def _tell_folder(out: Console, managed_by: str, effect: str = "takes this change back") -> None:
    """Say that a flow comes from a folder of files, if it does: the folder overrides changes that are made here."""
    if managed_by:
        out.print(f"It comes from {managed_by}: the next `gobblin flow apply` of it {effect}.")


def _pairs(values: list[str] | None) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping; raises UsageError."""
    pairs: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(problem=f"--set takes NAME=VALUE, got {text[:80]!r}.")
        if name in pairs:
            raise UsageError(problem=f"--set names {name!r} twice.")
        pairs[name] = value
    return pairs
