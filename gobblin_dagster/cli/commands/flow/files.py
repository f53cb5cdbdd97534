"""Flows as files: `export` writes them, `apply` makes the service's flows equal to them."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
import yaml

from gobblin_dagster.cli.commands.flow.catalog import change_lines, differences
from gobblin_dagster.cli.commands.flow.connect import UrlOption, connect
from gobblin_dagster.cli.commands.state.change import DryRunOption, YesOption
from gobblin_dagster.cli.confirm import confirm
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.flow_jobs import group_and_name
from gobblin_dagster.cli.render.console import console
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.client import FlowClient
from gobblin_dagster.core.errors import FlowNotFoundError, InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.service.compiler.children import CHILDREN, has_children, read_children
from gobblin_dagster.service.compiler.routed_flow import SOURCE, is_routed
from gobblin_dagster.spec.document import read_document

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of flow files.")]
_KEYS = {"flow", "templates", "set", "schedule"}
GONE = ("deleted", "finished")
"""Changes after which a flow is not in the catalog."""


def apply(
    ctx: typer.Context,
    folder: FolderArgument,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete flows that came from this folder and are no longer in it.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Name of the folder for the service; its path if it is left out."),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    url: UrlOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Make the service's flows equal to those of a folder: shows what changes, then does exactly that.

    A flow that somebody else changes in between is not overwritten. `--prune` knows the flows of a folder by its path;
    a folder that is checked out at several places takes a name with `--as`.
    """
    wanted = _children_first(dict(_read(folder)))
    managed_by = _name_of(folder, name)
    out = console(sys.stdout if output is Output.TEXT else sys.stderr)
    with connect(ctx, url) as client:
        steps = list(_steps(client, wanted, managed_by, prune=prune))
        for step in steps:
            out.print(f"{step['action']} {step['flow']}")
            for line in change_lines(step["changes"]):
                out.print(line)
        if not steps:
            out.print("Nothing to do: the service has these flows.")
        elif not dry_run:
            confirm(f"Change {count(len(steps), 'flow')}?", yes)
            for step in steps:
                _do(client, step, wanted, managed_by)
            out.print(f"{count(len(steps), 'flow')} changed.")
    if output is Output.JSON:
        print_json(
            dry_run=dry_run, changes=[{key: step[key] for key in ("action", "flow", "changes")} for step in steps]
        )


def export(ctx: typer.Context, folder: FolderArgument, url: UrlOption = None) -> None:
    """Write flows to a folder, one file each; files that exist are left alone unless they are equal."""
    with connect(ctx, url) as client:
        newest = [client.history(*_names(flow))[-1] for flow in client.find()]
    # Somebody else may have deleted one since the list was made.
    flows = [one["flowConfig"] for one in newest if one["change"] not in GONE]
    folder.mkdir(parents=True, exist_ok=True)
    for flow in flows:
        path = folder / _file_name(*_names(flow))
        document = {
            "flow": "/".join(_names(flow)),
            **({"templates": flow["templateUris"].split(",")} if flow["templateUris"] else {}),
            **({"schedule": flow["schedule"]["cronSchedule"]} if "schedule" in flow else {}),
            # A `$` would else begin a reference when the file is read.
            "set": {key: value.replace("$", "$$") for key, value in flow["properties"].items()},
        }
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UsageError(
                problem=f"{path} exists and differs from the service's flow.", hint="Choose an empty folder."
            )
        path.write_text(text, encoding="utf-8")
    console(sys.stdout).print(f"{count(len(flows), 'flow')} written to {folder}.")


_NAME_LENGTH = 200


def _name_of(folder: Path, name: str | None) -> str:
    """Return the name under which the service knows a folder: in signs that a header holds, and never empty."""
    path = folder.resolve()
    # The service has no name for flows that came from no folder at all: --prune would delete them.
    if path == Path(path.anchor):
        raise UsageError(problem="The root of the file system is no folder of flows.")
    if name is not None and not name.strip():
        raise UsageError(problem="--as takes a name, got an empty one.")
    told = quote(str(path) if name is None else name.strip(), safe=" !#$&()+,;=@[]{}~/")
    if len(told) <= _NAME_LENGTH:
        return told
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return f"{digest}...{told[-_NAME_LENGTH + len(digest) + 3 :]}"


def _read(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and flow of each file of a folder; raises InvalidSpecError with the faults of the first bad file."""
    if not folder.is_dir():
        raise UsageError(problem=f"There is no folder {folder}.")
    seen: dict[str, Path] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        document = read_document(path.read_bytes(), {})
        faults = [document.fault(*fault) for fault in document.faults] or list(_faults(document.data))
        if faults:
            raise InvalidSpecError(file=str(path), faults=tuple(faults))
        flow = document.data["flow"]
        if flow in seen:
            raise UsageError(problem=f"The flow {flow} stands in {seen[flow]} and in {path}.")
        seen[flow] = path
        templates = document.data.get("templates", "")
        found: dict[str, Any] = {
            "templateUris": templates if isinstance(templates, str) else ",".join(templates),
            "properties": {name: _plain(value) for name, value in (document.data.get("set") or {}).items()},
        }
        if document.data.get("schedule"):
            found["schedule"] = {"cronSchedule": document.data["schedule"], "runImmediately": False}
        yield flow, found


def _children_first(wanted: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return flows so that children stand before the flows that name them; of a circle the service says so."""
    children = {
        flow: [str(child) for child in read_children(config["properties"])[0]]
        for flow, config in wanted.items()
        if has_children(config["properties"])
    }
    sorter = TopologicalSorter({flow: [one for one in children.get(flow, ()) if one in wanted] for flow in wanted})
    try:
        return {flow: wanted[flow] for flow in sorter.static_order()}
    except CycleError:
        return wanted


def _faults(data: Any) -> Iterator[SpecFault]:
    if not isinstance(data, dict):
        yield SpecFault("", "expected keys: flow, templates, set, schedule")
        return
    for key in sorted({*map(str, data)} - _KEYS):
        yield SpecFault(key, f"is not known; keys: {', '.join(sorted(_KEYS))}")
    if not re.fullmatch(r"[^/]+/.+", str(data.get("flow", ""))):
        yield SpecFault("flow", f"takes GROUP/NAME, got {str(data.get('flow'))[:80]!r}")
    values = data.get("set")
    has_none = isinstance(values, dict) and (is_routed(values) or has_children(values))
    templates = data.get("templates", "" if has_none else None)
    if not (isinstance(templates, str) or (isinstance(templates, list) and templates)):
        told = f"takes a URI or a list of URIs; only a flow that sets {SOURCE} or {CHILDREN} has none"
        yield SpecFault("templates", told)
    if not isinstance(data.get("set") or {}, dict):
        yield SpecFault("set", "takes names and values")
    if not isinstance(data.get("schedule") or "", str):
        yield SpecFault("schedule", "takes a Quartz cron expression as text")


def _plain(value: Any) -> str:
    """Return a value as a property: YAML's `true` is `true`, not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _steps(
    client: FlowClient, wanted: dict[str, dict[str, Any]], managed_by: str, *, prune: bool
) -> Iterator[dict[str, Any]]:
    """Yield what must be done, flow by flow; nothing for flows that are equal already."""
    for flow, config in wanted.items():
        try:
            newest = client.history(*group_and_name(flow))[-1]
        except FlowNotFoundError:
            newest = None
        if newest is None or newest["change"] in GONE:
            changes = differences({"templateUris": "", "properties": {}}, config)
            if newest is not None and newest["change"] == "finished" and not differences(newest["flowConfig"], config):
                continue  # it has no schedule, and it ran
            yield {"action": "create", "flow": flow, "changes": changes}
        elif changes := differences(newest["flowConfig"], config):
            yield {"action": "update", "flow": flow, "changes": changes, "version": newest["version"]}
    for known in client.find(managedBy=managed_by) if prune else ():
        name = "/".join(_names(known))
        if name not in wanted:
            newest = client.history(*_names(known))[-1]
            # Somebody else may have deleted it since the list was made.
            if newest["managedBy"] == managed_by and newest["change"] not in GONE:
                yield {"action": "delete", "flow": name, "changes": [], "version": newest["version"]}


def _do(client: FlowClient, step: dict[str, Any], wanted: dict[str, dict[str, Any]], managed_by: str) -> None:
    group, name = group_and_name(step["flow"])
    if step["action"] == "delete":
        client.delete(group, name, version=step["version"])
        return
    config = wanted[step["flow"]]
    cron = config.get("schedule", {}).get("cronSchedule")
    told = (group, name, config["templateUris"], config["properties"])
    if step["action"] == "create":
        client.create(*told, cron=cron, managed_by=managed_by)
    else:
        client.update(*told, cron=cron, version=step["version"], managed_by=managed_by)


def _names(flow: dict[str, Any]) -> tuple[str, str]:
    return flow["id"]["flowGroup"], flow["id"]["flowName"]


def _file_name(group: str, name: str) -> str:
    """Return a file name that no other flow has: readable, with a digest if letters had to be replaced."""
    plain = f"{group}.{name}"
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", group)[:60] + "." + re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
    digest = hashlib.sha256(f"{group}\0{name}".encode()).hexdigest()[:8]
    return f"{safe}.yaml" if safe == plain and plain.lower() == plain else f"{safe}.{digest}.yaml"
