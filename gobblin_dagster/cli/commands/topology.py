"""`gobblin topology`: check and show the data landscape that the project's topology files describe.

They read the files, and the service need not run: its workers, and the files that it stores, are shown as its database
knows them. `apply`, `provision` and `retire` talk to a service that runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.commands.flow.connect import UrlOption, connect
from gobblin_dagster.cli.context import Output, OutputOption, examples, project_root
from gobblin_dagster.cli.lazy import WholeHelpGroup
from gobblin_dagster.cli.render.console import console, print_facts, print_status, print_table
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.service_checks import alive_workers, stored_topology
from gobblin_dagster.core.errors import GobblinDagsterError, InvalidSpecError, UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.topology.capabilities import EdgeNeeds, announced_by, worker_document
from gobblin_dagster.service.topology.files import TopologyFolder, read_topology
from gobblin_dagster.service.topology.graph import FlowEdge, FlowGraph
from gobblin_dagster.service.topology.model import ANY
from gobblin_dagster.spec.explain import nearest
from gobblin_dagster.spec.load import load_project, shown_path

app = typer.Typer(
    cls=WholeHelpGroup,
    rich_markup_mode=None,
    add_completion=False,
    help="Check and show data nodes, edges and executors of the service.",
    no_args_is_help=True,
)


class Kind(StrEnum):
    """What is listed."""

    NODES = "nodes"
    EDGES = "edges"
    EXECUTORS = "executors"
    WORKERS = "workers"


class Picture(StrEnum):
    """How the whole topology is drawn."""

    TEXT = "text"
    MERMAID = "mermaid"


@app.command(epilog=examples("gobblin topology check", "gobblin topology check --output json"))
def check(ctx: typer.Context, output: OutputOption = Output.TEXT) -> None:
    """Check all topology files and the templates that their edges name.

    Shows every fault with its file and line: names that are not there, edges that no executor can run, cycles that
    cost nothing. Exits with 2 if there is a fault.
    """
    name, found = _read(ctx)
    graph = found.graph
    if output is Output.JSON:
        faults = [
            {"file": one.file, "line": one.line, "path": one.path, "problem": one.problem} for one in found.faults
        ]
        print_json(valid=not faults, files=list(found.files), faults=faults)
    else:
        for fault in found.faults:
            print_status(False, fault.text(name))
        for kind, parts in (("node", graph.nodes), ("edge", graph.edges), ("executor", graph.executors)):
            if not found.faults:
                print_status(True, f"{name}: {count(len(parts), kind)}")
    if found.faults:
        raise typer.Exit(ExitCode.USAGE)


@app.command("list", epilog=examples("gobblin topology list", "gobblin topology list edges --output json"))
def list_parts(
    ctx: typer.Context,
    kind: Annotated[
        Kind | None, typer.Argument(metavar="KIND", help="What to list; default: everything.", show_default=False)
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List data nodes, edges and executors, and the workers of the service that are alive."""
    graph, workers = _sound(ctx)
    kinds = [kind] if kind else list(Kind)
    if output is Output.JSON:
        print_json(**{one.value: _documents(graph, workers, one) for one in kinds})
        return
    out = console(sys.stdout)
    for one in kinds:
        rows = list(_rows(graph, workers, one))
        if rows:
            print_table(out, _COLUMNS[one], rows)
        else:
            out.print(f"No {one.value}.")


@app.command(
    epilog=examples("gobblin topology show", "gobblin topology show lake", "gobblin topology show --picture mermaid")
)
def show(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A node, edge or executor; default: all.", show_default=False),
    ] = None,
    picture: Annotated[
        Picture, typer.Option(help="Form of the picture; `mermaid` draws it in Markdown.")
    ] = Picture.TEXT,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the topology as a picture, or one node, edge or executor with all that it has."""
    graph, workers = _sound(ctx)
    if name is not None:
        _require_known(graph, name)
    if output is Output.JSON:
        kinds = {kind: [one for one in _documents(graph, workers, kind) if _is_of(one, kind, name)] for kind in Kind}
        print_json(**{kind.value: documents for kind, documents in kinds.items()})
        return
    out = console(sys.stdout)
    if name is None:
        for line in mermaid_lines(graph) if picture is Picture.MERMAID else text_lines(graph):
            out.print(line)
        return
    for kind in Kind:
        for document in _documents(graph, workers, kind):
            if _is_of(document, kind, name):
                print_facts(out, {kind.value.removesuffix("s"): document["name"], **_facts(document)})
    if name in graph.nodes:
        for edge in (*graph.incoming[name], *graph.outgoing[name]):
            out.print(f"  {_arrow(edge)}")


@app.command(epilog=examples("gobblin topology apply west.yaml", "gobblin topology apply --delete west"))
def apply(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Topology files, stored one after the other.", show_default=False),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="A stored file to delete; may be repeated.")
    ] = None,
    url: UrlOption = None,
) -> None:
    """Store topology files in a running service, beside those of its folder; all its nodes see them within a second.

    A file takes the place of the stored one with its name. It is refused, with all faults and their lines, if the
    whole topology would have a fault with it. Without a file the command lists what is stored.
    """
    out = console(sys.stdout)
    with connect(ctx, url) as client:
        for path in files or ():
            try:
                body = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(problem=f"{path} cannot be read: {error}.") from error
            version = client.put_topology(path.stem, body)
            out.print(f"{path} is stored as {path.stem}: change {version} of the topology.")
        for name in delete or ():
            client.delete_topology(name)
            out.print(f"{name} is deleted.")
        if not files and not delete:
            fields = ("name", "version", "changedAt", "changedBy")
            stored = [tuple(str(one[name]) for name in fields) for one in client.topology()]
            if stored:
                print_table(out, {"file": "left", "change": "right", "at": "left", "by": "left"}, stored)
            else:
                out.print("The service keeps no topology files.")


@app.command(epilog=examples("gobblin topology provision east --workers 2 --from lake --to database"))
def provision(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the executor.")],
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Worker processes.")] = 1,
    source: Annotated[str, typer.Option("--from", metavar="TYPE", help="Type of the nodes that it reads.")] = ANY,
    destination: Annotated[str, typer.Option("--to", metavar="TYPE", help="Type of the nodes that it writes.")] = ANY,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Jobs at once; default: as many as its workers take.")
    ] = None,
    url: UrlOption = None,
) -> None:
    """Let a running service start workers of an executor beside it, and give it jobs.

    The service starts a worker again when it ends, and ends it with itself. Called again, the command changes what is
    there; `retire` ends it.
    """
    capability = {"source": source, "destination": destination}
    executor = {"type": "store", "workers": workers, "jobs_at_once": jobs, "capabilities": [capability]}
    # JSON is YAML.
    body = json.dumps({"executors": {name: {key: value for key, value in executor.items() if value is not None}}})
    with connect(ctx, url) as client:
        client.put_topology(_PROVISIONED.format(name), body)
    told = f"{name} is an executor with {count(workers, 'worker')}; their logs are .gobblin/provisioned-{name}-*.log."
    console(sys.stdout).print(told)


@app.command(epilog=examples("gobblin topology retire east"))
def retire(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the executor.")],
    url: UrlOption = None,
) -> None:
    """End the workers of an executor that `provision` made, and take the executor out of the topology.

    Jobs that run end their work units and commit what is whole; what is left of them goes to other executors that can
    run their edges. It is refused while an edge names the executor.
    """
    with connect(ctx, url) as client:
        client.delete_topology(_PROVISIONED.format(name))
    console(sys.stdout).print(f"{name} is no executor any more; its workers end.")


_PROVISIONED = "provisioned-{}"
"""Name of the stored file of an executor."""


def text_lines(graph: FlowGraph) -> Iterator[str]:
    """Yield the picture of a topology as text: each node, and below it the edges that begin there."""
    for name, node in sorted(graph.nodes.items()):
        yield f"{name} ({node.type})"
        for edge in graph.outgoing[name]:
            state = edge.refusal or f"cost {edge.spec.cost:g}, on executor {edge.executor}"
            yield f"  --{edge.name}--> {edge.spec.destination}  ({state})"


def mermaid_lines(graph: FlowGraph) -> Iterator[str]:
    """Yield the picture of a topology in Mermaid's language, which Markdown pages draw."""
    yield "flowchart LR"
    numbers = {name: f"n{number}" for number, name in enumerate(sorted(graph.nodes))}
    for name, number in numbers.items():
        yield f'  {number}["{name}<br>{_quoted(graph.nodes[name].type)}"]'
    for edges in graph.outgoing.values():
        for edge in edges:
            arrow = "-.->" if edge.refusal else "-->"
            ends = numbers[edge.spec.source], numbers[edge.spec.destination]
            yield f'  {ends[0]} {arrow}|"{edge.name}"| {ends[1]}'


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")


def _arrow(edge: FlowEdge) -> str:
    told = edge.refusal or f"on executor {edge.executor}"
    return f"{edge.spec.source} --{edge.name}--> {edge.spec.destination}  ({told})"


def _read(ctx: typer.Context) -> tuple[str, TopologyFolder]:
    root = project_root(ctx)
    service = load_project(root).service
    folder = root / service.topology
    try:
        stored = stored_topology(root, service)
    except GobblinDagsterError as error:
        console(sys.stderr).print(f"Files that are stored in the service are not known: {error}")
        stored = {}
    return shown_path(folder), read_topology(folder, TemplateCatalog(root / service.templates), stored)


def _sound(ctx: typer.Context) -> tuple[FlowGraph, list[Node]]:
    """Return the topology, and the workers that are alive; raises InvalidSpecError if the topology has faults."""
    name, found = _read(ctx)
    if found.faults:
        raise InvalidSpecError(file=name, faults=found.faults)
    root = project_root(ctx)
    service = load_project(root).service
    try:
        workers = alive_workers(root, service)
    except GobblinDagsterError as error:
        console(sys.stderr).print(f"Workers are not known: {error}")
        workers = []
    needs = EdgeNeeds(TemplateCatalog(root / service.templates))
    return replace(found.graph, lacking=needs.lacking(found.graph, announced_by(workers))), workers


def _is_of(document: Mapping[str, Any], kind: Kind, name: str | None) -> bool:
    """Tell whether a document is about a part, or about a worker of it."""
    return name in (None, document["name"]) or (kind is Kind.WORKERS and document["executor"] == name)


def _require_known(graph: FlowGraph, name: str) -> None:
    known = [*graph.nodes, *graph.edges, *graph.executors]
    if name not in known:
        raise UsageError(problem=f"The topology has nothing named {name[:80]!r}.", hint=f"{nearest(name, known)}")


_COLUMNS = {
    Kind.NODES: {"node": "left", "type": "left", "platform": "left", "description": "left"},
    Kind.EDGES: {"edge": "left", "from": "left", "to": "left", "cost": "right", "executor": "left", "template": "left"},
    Kind.EXECUTORS: {"executor": "left", "type": "left", "can move": "left", "description": "left"},
    Kind.WORKERS: {
        "worker": "left",
        "executor": "left",
        "version": "left",
        "jobs at once": "right",
        "sources": "left",
        "publishers": "left",
        "extras": "left",
        "roots": "left",
    },
}


def _rows(graph: FlowGraph, workers: Sequence[Node], kind: Kind) -> Iterator[tuple[str, ...]]:
    for one in _documents(graph, workers, kind):
        if kind is Kind.NODES:
            yield one["name"], one["type"], one["platform"], one["description"]
        elif kind is Kind.EDGES:
            executor = one["executor"] or f"- ({one['refusal']})"
            yield one["name"], one["source"], one["destination"], f"{one['cost']:g}", executor, one["template"]
        elif kind is Kind.WORKERS:
            told = (_of_worker(one, name) for name in ("jobsAtOnce", "sources", "publishers", "extras", "roots"))
            yield one["name"], one["executor"], one["version"], *told
        else:
            moves = ", ".join(f"{move['source']} -> {move['destination']}" for move in one["capabilities"])
            state = "" if one["enabled"] else "not enabled; "
            yield one["name"], one["type"], moves, f"{state}{one['description']}"


def _documents(graph: FlowGraph, workers: Sequence[Node], kind: Kind) -> list[dict[str, Any]]:
    if kind is Kind.WORKERS:
        return [worker_document(one) for one in workers]
    if kind is Kind.NODES:
        return [{"name": name, **part.model_dump()} for name, part in sorted(graph.nodes.items())]
    if kind is Kind.EXECUTORS:
        return [{"name": name, **part.model_dump()} for name, part in sorted(graph.executors.items())]
    edges = [graph.edge(name) for name in sorted(graph.edges)]
    return [
        {"name": edge.name, **edge.spec.model_dump(), "executor": edge.executor, "refusal": edge.refusal}
        for edge in edges
    ]


def _facts(document: dict[str, Any]) -> dict[str, str]:
    """Return what a part says beyond the defaults, as people read it."""
    known = {
        key: {name: text for name, text in value.items() if text != ANY} if key in ("input", "output") else value
        for key, value in document.items()
    }
    # What a worker can make is more than anybody reads; its sources and publishers stand alone.
    left_out = ("name", "constructs")
    return {key: _text(value) for key, value in known.items() if key not in left_out and value not in ("", None, {})}


def _of_worker(document: Mapping[str, Any], name: str) -> str:
    if document[name] is None:
        return "any" if name == "roots" and document["constructs"] is not None else "-"
    return _text(document[name])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {text}" for name, text in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
