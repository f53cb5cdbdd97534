"""Commands that show templates and flows."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from gobblin_dagster.cli.commands.flow.connect import FlowArgument, UrlOption, connect
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.flow_jobs import group_and_name
from gobblin_dagster.cli.render.console import console, instant, print_facts, print_table
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.service.cron import NEVER, Cron

NEXT_FIRES = 5
"""Fire times that are shown."""


def templates(ctx: typer.Context, url: UrlOption = None, output: OutputOption = Output.TEXT) -> None:
    """List the templates that flows can be made of, with their parameters."""
    with connect(ctx, url) as client:
        found = client.templates()
    if output is Output.JSON:
        print_json(templates=found)
        return
    out = console(sys.stdout)
    if not found:
        out.print("There is no template. Put one into the folder `templates` of the project.")
    for template in found:
        out.print(f"{template['uri']}  {template['description']}".rstrip())
        if template["problem"]:
            out.print(f"  cannot be used: {template['problem']}")
        for name, parameter in template["parameters"].items():
            default = f", default {parameter['default']!r}" if parameter["default"] is not None else ", required"
            out.print(f"  {name} ({parameter['type']}{default}): {parameter['description']}".rstrip(": "))


def list_flows(
    ctx: typer.Context,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only flows whose group or name contains it.")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Only flows of a group.")] = None,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List flows."""
    filters = {"search": search, "flowGroup": group}
    with connect(ctx, url) as client:
        found = list(client.find(**{name: value for name, value in filters.items() if value is not None}))
    if output is Output.JSON:
        print_json(flows=found)
        return
    out = console(sys.stdout)
    rows = [
        (
            f"{flow['id']['flowGroup']}/{flow['id']['flowName']}",
            _schedule(flow, "once"),
            flow["templateUris"],
        )
        for flow in found
    ]
    if rows:
        print_table(out, {"flow": "left", "schedule": "left", "templates": "left"}, rows)
    else:
        out.print("No flow. Create one: gobblin flow create GROUP/NAME --template URI")


def show(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show one flow: its templates, values, schedule and next fire times."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        document = client.get(group, name)
        newest = client.history(group, name)[-1]
    fires = _next_fires(newest["flowConfig"])
    if output is Output.JSON:
        print_json(flow=document, version=newest["version"], paused=newest["paused"], next_fires=fires)
        return
    facts = {
        "flow": flow,
        "version": f"{newest['version']}, {newest['change']} by {newest['changedBy']} at {_at(newest['changedAt'])}",
        "templates": document["templateUris"],
        "schedule": _schedule(document, "runs once"),
        **({"paused": "yes"} if newest["paused"] else {}),
        **({"managed by": newest["managedBy"]} if newest["managedBy"] else {}),
    }
    out = console(sys.stdout)
    print_facts(out, facts)
    for fire in () if newest["paused"] or facts["schedule"] == "never" else fires:
        out.print(f"  next    {fire}")
    for key, value in newest["flowConfig"]["properties"].items():
        out.print(f"  {key} = {value}")


def history(ctx: typer.Context, flow: FlowArgument, url: UrlOption = None, output: OutputOption = Output.TEXT) -> None:
    """List all versions of a flow: who changed what, and when."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        versions = client.history(group, name)
    if output is Output.JSON:
        print_json(versions=versions)
        return
    rows = [(one["version"], _at(one["changedAt"]), one["change"], one["changedBy"]) for one in versions]
    print_table(console(sys.stdout), {"version": "right", "at": "left", "change": "left", "by": "left"}, rows)


def diff(
    ctx: typer.Context,
    flow: FlowArgument,
    old: Annotated[int, typer.Argument(metavar="OLD", min=1, help="A version.")],
    new: Annotated[int, typer.Argument(metavar="NEW", min=1, help="A later version.")],
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what differs between two versions of a flow."""
    group, name = group_and_name(flow)
    with connect(ctx, url) as client:
        versions = {one["version"]: one["flowConfig"] for one in client.history(group, name)}
    for version in (old, new):
        if version not in versions:
            raise UsageError(problem=f"Flow {flow} has no version {version}.", hint=f"It has 1 to {max(versions)}.")
    changes = differences(versions[old], versions[new])
    if output is Output.JSON:
        print_json(changes=changes)
        return
    out = console(sys.stdout)
    for line in change_lines(changes):
        out.print(line)
    if not changes:
        out.print("Nothing differs.")


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields in which two flows differ: `field`, `old` and `new`; None for what is not there."""
    flat = [_flat(old), _flat(new)]
    return [
        {"field": field, "old": flat[0].get(field), "new": flat[1].get(field)}
        for field in sorted({*flat[0], *flat[1]})
        if flat[0].get(field) != flat[1].get(field)
    ]


def change_lines(changes: list[dict[str, Any]]) -> list[str]:
    """Return changes as people read them: `+` came, `-` went, `~` changed."""
    lines = []
    for change in changes:
        field, old, new = change["field"], change["old"], change["new"]
        if old is None:
            lines.append(f"  + {field} = {new}")
        elif new is None:
            lines.append(f"  - {field} = {old}")
        else:
            lines.append(f"  ~ {field}: {old} -> {new}")
    return lines


def _flat(flow: dict[str, Any]) -> dict[str, str]:
    schedule = flow.get("schedule") or {}
    found = {
        "templates": flow["templateUris"],
        **{f"properties.{key}": text for key, text in flow["properties"].items()},
    }
    if schedule:
        found["schedule"] = schedule["cronSchedule"]
    for name in set(flow) - {"id", "templateUris", "properties", "schedule"}:
        found[name] = json.dumps(flow[name], ensure_ascii=False)
    return found


def _schedule(flow: dict[str, Any], without: str) -> str:
    """Return a flow's schedule for people; `without` if it has none."""
    cron: str = flow.get("schedule", {}).get("cronSchedule", without)
    return "never" if cron == NEVER else cron


def _next_fires(flow: dict[str, Any]) -> list[str]:
    """Return the next fire times, in UTC and in the flow's own zone."""
    if "schedule" not in flow:
        return []
    zone = ZoneInfo(flow["properties"].get("flow.timeZone", "UTC"))
    times = Cron.parse(flow["schedule"]["cronSchedule"]).fire_times(datetime.now(UTC), zone)
    shown = islice(times, NEXT_FIRES)
    return [
        instant(fire) + ("" if zone.key == "UTC" else f" ({fire.astimezone(zone):%Y-%m-%d %H:%M:%S %Z})")
        for fire in shown
    ]


def _at(epoch_ms: int) -> str:
    return instant(datetime.fromtimestamp(epoch_ms / 1000, UTC))
