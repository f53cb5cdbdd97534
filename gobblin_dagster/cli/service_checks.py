"""Checks of `gobblin doctor` about the service: its templates, database, disk, nodes, and whether it answers.

They change nothing: a database of an older program is not migrated, and one that does not exist is not made.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import requests
from sqlalchemy import Connection, inspect, text

from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.database.engine import errors_of, make_engine, parse_url, shown_url
from gobblin_dagster.service.catalog.templates import TemplateCatalog, TemplateError
from gobblin_dagster.service.store.node_rows import BESIDE, Node, load_nodes, load_workers
from gobblin_dagster.service.store.role_rows import LEADER, holder_of
from gobblin_dagster.service.store.schema import CHAIN
from gobblin_dagster.service.store.topology_rows import list_files
from gobblin_dagster.service.topology.files import read_topology
from gobblin_dagster.service.topology.graph import EMPTY
from gobblin_dagster.service.topology.stored import texts_of
from gobblin_dagster.spec.project import ServiceSpec

MAX_DRIFT_S = 5.0
"""Allowed difference between clocks of nodes and of the database."""
LEAST_FREE_BYTES = 200 << 20
"""Free space below which a disk counts as full: a database that cannot write stops the whole service."""
_WAIT_S = 5


def service_checks(root: Path, spec: ServiceSpec) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield checks by name; each returns what it found, and raises an error with a remedy."""
    yield "templates", lambda: _templates(root / spec.templates)
    stored = _known_topology(root, spec)
    if (root / spec.topology).is_dir() or stored:
        yield "topology", lambda: _topology(root, spec, stored)
    yield "service disk", lambda: _disk(root, spec)
    yield "service store", lambda: _store(root, spec)
    yield "service nodes", lambda: _nodes(root, spec)
    shared = _shared_executors(root, spec, stored)
    if shared:
        yield "service workers", lambda: _workers(root, spec, shared)
    if spec.dagster:
        yield "Dagster beside", lambda: _beside(root, spec)
    yield "service", lambda: _answer(spec)


def _templates(folder: Path) -> str:
    catalog = TemplateCatalog(folder)
    faults = []
    uris = catalog.uris()
    for uri in uris:
        try:
            catalog.load(uri)
        except TemplateError as error:
            faults.append(str(error))
    if faults:
        hint = "Mend them, or take them out of the folder: flows of the others are not harmed."
        raise UsageError(problem="; ".join(faults[:5]) + ".", hint=hint)
    return f"{folder}: {count(len(uris), 'template')}"


def _known_topology(root: Path, spec: ServiceSpec) -> dict[str, str]:
    try:
        return stored_topology(root, spec)
    except GobblinDagsterError:  # the check of the database says it
        return {}


def _topology(root: Path, spec: ServiceSpec, stored: Mapping[str, str]) -> str:
    folder = root / spec.topology
    found = read_topology(folder, TemplateCatalog(root / spec.templates), stored)
    if found.faults:
        told = "; ".join(fault.text(str(folder)) for fault in found.faults[:5])
        raise UsageError(problem=f"{told}.", hint="`gobblin topology check` shows all faults.")
    parts = (found.graph.nodes, "node"), (found.graph.edges, "edge"), (found.graph.executors, "executor")
    return f"{folder}: {', '.join(count(len(one), noun) for one, noun in parts)}"


def _shared_executors(root: Path, spec: ServiceSpec, stored: Mapping[str, str]) -> list[str]:
    """Return the executors whose workers poll the service's database; of others the service knows nothing here."""
    folder = root / spec.topology
    graph = read_topology(folder, more=stored).graph if folder.is_dir() or stored else EMPTY
    return sorted(name for name, one in graph.executors.items() if one.type == "store" and one.enabled)


def _disk(root: Path, spec: ServiceSpec) -> str:
    url = parse_url(spec.store, root)
    wanted = Path(str(url.database)).parent if url.get_backend_name() == "sqlite" else root
    folder = next(path for path in (wanted, *wanted.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise UsageError(
            problem=f"Only {free >> 20:,} MiB are free in {folder}; at least {LEAST_FREE_BYTES >> 20} are needed.",
            hint="Make room, or name another place: `service: {store: ...}`.",
        )
    return f"{free >> 20:,} MiB are free in {folder}"


def _store(root: Path, spec: ServiceSpec) -> str:
    url = parse_url(spec.store, root)
    shown = shown_url(url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return f"{shown} is not there yet; `gobblin serve` makes it"
    engine = make_engine(url)
    try:
        with errors_of(shown), engine.connect() as connection:
            now = datetime.now(UTC)
            if connection.dialect.name == "postgresql":
                drift_s = (connection.execute(text("SELECT clock_timestamp()")).scalar_one() - now).total_seconds()
                if abs(drift_s) > MAX_DRIFT_S:
                    problem = f"The clock of {shown} and this machine's differ by {abs(drift_s):.0f} s."
                    raise UsageError(problem=problem, hint="Synchronize the clocks (NTP).")
            if not inspect(connection).has_table(CHAIN.version_table):
                return f"{shown} has no tables yet; `gobblin serve` makes them"
            is_current = CHAIN.is_current(connection, shown)
            found = CHAIN.revision(connection) or "unknown"
    finally:
        engine.dispose()
    if not is_current:
        return f"{shown}: schema version {found}; the next `gobblin serve` brings it to {CHAIN.newest}"
    return f"{shown}: schema version {found}"


def _nodes(root: Path, spec: ServiceSpec) -> str:
    found = _alive(root, spec, [""])
    if isinstance(found, str):
        return found
    nodes, leader = found
    told = [f"{node.name} at {node.url or '-'}{', fires schedules' if node.name == leader else ''}" for node in nodes]
    return "; ".join(told) or "none runs"


def _beside(root: Path, spec: ServiceSpec) -> str:
    found = _alive(root, spec, [""])
    if isinstance(found, str) or not found[0]:
        return "does not run; `gobblin serve` starts it"
    programs = {name: problem for node in found[0] for name, problem in node.about.get(BESIDE, {}).items()}
    if not programs:
        hint = "Start one with `service: {dagster: true}` in its gobblin.yaml."
        raise UsageError(problem="No node of the service runs Dagster.", hint=hint)
    faults = [f"{name} {problem}" for name, problem in programs.items() if problem]
    if faults:
        raise UsageError(
            problem=f"{'; '.join(faults)}.", hint="The service starts it again; the log says what to mend."
        )
    return f"{' and '.join(programs)} run"


def _workers(root: Path, spec: ServiceSpec, executors: Sequence[str]) -> str:
    found = _alive(root, spec, executors)
    if isinstance(found, str):
        return found
    counts = {name: sum(node.executor == name for node in found[0]) for name in executors}
    without = [name for name, number in counts.items() if not number]
    if without:
        raise UsageError(
            problem=f"No worker runs for {', '.join(without)}: its jobs wait.",
            hint=f"Start one: `gobblin worker --executor {without[0]}`.",
        )
    return ", ".join(f"{name}: {count(number, 'worker')}" for name, number in counts.items())


def alive_workers(root: Path, spec: ServiceSpec) -> list[Node]:
    """Return the workers of all executors that are alive, as far as the service's database knows them.

    Raises:
        TransientError, StorageError: the database cannot be read.
        UsageError: the clock of a worker differs from that of the database.
    """
    found = _alive(root, spec, None)
    return [] if isinstance(found, str) else found[0]


def stored_topology(root: Path, spec: ServiceSpec) -> dict[str, str]:
    """Return the topology files that came over REST, as `read_topology` takes them.

    Raises:
        TransientError, StorageError: the database cannot be read.
    """
    with _database(root, spec) as found:
        return {} if isinstance(found, str) else texts_of(list_files(found))


def _alive(root: Path, spec: ServiceSpec, executors: Sequence[str] | None) -> tuple[list[Node], str] | str:
    """Return the processes of executors that are alive, and which node fires schedules; or why there are none.

    Without `executors`: the workers of all.
    """
    with _database(root, spec) as found:
        if isinstance(found, str):
            return found
        now = datetime.now(UTC)
        if found.dialect.name == "postgresql":
            now = found.execute(text("SELECT clock_timestamp()")).scalar_one()
        if executors is None:
            known = load_workers(found)
        else:
            known = [node for executor in executors for node in load_nodes(found, executor)]
        nodes = [node for node in known if node.is_alive(now)]
        leader = holder_of(found, LEADER)
    for node in nodes:
        _require_clock(node)
    return nodes, leader


@contextmanager
def _database(root: Path, spec: ServiceSpec) -> Iterator[Connection | str]:
    """Yield the service's database, or why it says nothing of what runs; it is neither made nor migrated."""
    url = parse_url(spec.store, root)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        yield "none runs"
        return
    engine = make_engine(url)
    try:
        with errors_of(shown_url(url)), engine.connect() as connection:
            if not inspect(connection).has_table("gobblin_nodes"):
                yield "none runs"
            elif not CHAIN.is_current(connection, shown_url(url)):
                yield "not known: the database is of an older program"
            else:
                yield connection
    finally:
        engine.dispose()


def _require_clock(node: Node) -> None:
    drift_s = abs((node.clock_at - node.seen_at).total_seconds())
    if drift_s > MAX_DRIFT_S:
        raise UsageError(
            problem=f"The clock of node {node.name} and that of the database differ by {drift_s:.0f} s.",
            hint="Synchronize the clocks (NTP). The database's clock decides when flows fire.",
        )


def _answer(spec: ServiceSpec) -> str:
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    url = f"http://{host}:{spec.port}"
    session = requests.Session()
    session.trust_env = False
    try:
        version = session.get(f"{url}/version", timeout=_WAIT_S)
        ready = session.get(f"{url}/health/ready", timeout=_WAIT_S)
        told = (version.json()["version"], [str(problem) for problem in ready.json()["problems"]])
    except requests.ConnectionError:
        return f"does not run at {url}; `gobblin serve` starts it"
    except (requests.RequestException, ValueError, KeyError, TypeError):
        problem = f"Something answers at {url} that is not the service."
        raise UsageError(problem=problem, hint="End it, or set another `service: {port: ...}`.") from None
    if told[1]:
        problem = f"The service at {url} (version {told[0]}) is not ready: {'; '.join(told[1])}"
        raise UsageError(problem=problem, hint="It goes on by itself once this is mended.")
    return f"answers at {url}, version {told[0]}, ready"
