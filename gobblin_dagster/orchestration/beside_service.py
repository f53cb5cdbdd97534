"""Dagster's programs as `gobblin serve` keeps them beside it: `python -m gobblin_dagster.orchestration.beside_service`.

`pages SOCKET` serves Dagster's web pages under `/dagster` on a unix socket that only its user can reach; `daemon` runs
Dagster's daemon. The project is the current folder. Both end when their standard input does: it is held open by the
service.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
import threading
import time
from importlib.metadata import entry_points
from pathlib import Path

import uvicorn
from dagster import DagsterInstance

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.orchestration._internal_pages import webserver
from gobblin_dagster.orchestration.dev import dev_environment, target_options
from gobblin_dagster.orchestration.flow_reload import ReloadDagster
from gobblin_dagster.service.catalog.feed import CatalogFeed
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.warm.address import WarmAddress

log = logging.getLogger(__name__)

PREFIX = "/dagster"
_LOOK_S = 1.0
"""How often the catalog is asked for changes."""
_GRACE_S = 5
"""Seconds that requests get to end."""


def main(words: list[str]) -> None:
    """Run one of the programs until it is told to end."""
    root = Path.cwd()
    os.environ.update(dev_environment(root))
    options = target_options(root, Path(os.environ["DAGSTER_HOME"]))
    make_instance(Path(os.environ["DAGSTER_HOME"]))
    # Without it the signal would end the process before what is open is closed: Dagster's code server among it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    threading.Thread(target=_end_with_input, daemon=True).start()
    match words:
        case ["pages", path]:
            threading.Thread(target=_follow_flows, args=(root, path), daemon=True).start()
            _serve_pages(Path(path), Path(options[1]))
        case ["daemon"]:
            _run_daemon(options)
        case _:
            sys.exit("expected `pages SOCKET` or `daemon`")


def make_instance(home: Path) -> None:
    """Make the databases of Dagster's instance in `DAGSTER_HOME`, unless they are there.

    Two programs that made them at once would leave them with two heads of Dagster's migrations, broken for good.
    """
    with (home / "gobblin-dagster.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        DagsterInstance.get().dispose()


def _serve_pages(path: Path, workspace: Path) -> None:
    with webserver(workspace, PREFIX) as app:
        address = WarmAddress(path)
        listener = address.listen()
        try:
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_S)
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            address.path.unlink(missing_ok=True)


def _follow_flows(root: Path, path: str) -> None:
    """Have the definitions loaded again when flows change that run in Dagster."""
    store = ServiceStore(parse_url(load_project(root).service.store, root), SystemClock(), may_be_away=True)
    feed = CatalogFeed(store, [ReloadDagster(f"http://dagster{PREFIX}", unix_socket=path)])
    while True:
        try:
            feed.poll()
        except GobblinDagsterError as error:
            log.warning("changes of flows wait: %s", error)
        time.sleep(_LOOK_S)


def _run_daemon(options: list[str]) -> None:
    """Run the command `dagster-daemon`."""
    [command] = entry_points(group="console_scripts", name="dagster-daemon")
    sys.argv = ["dagster-daemon", "run", *options]
    command.load()()


def _end_with_input() -> None:
    # Not by `sys.stdin`: Python could not end while a thread reads from it.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
