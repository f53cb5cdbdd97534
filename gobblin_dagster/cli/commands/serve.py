"""`gobblin serve`: the whole service in one process, and a worker process for its jobs."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples, importable, project_root
from gobblin_dagster.service.logs import LogForm, start_logs
from gobblin_dagster.service.provisioner import LocalLauncher
from gobblin_dagster.service.server import Address, CoreServices, DagsterPrograms
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import TOKEN_FILE
from gobblin_dagster.warm.address import WarmAddress

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin serve", "gobblin -C shop serve --logs json"))
def serve(
    ctx: typer.Context,
    logs: Annotated[
        LogForm | None,
        typer.Option("--logs", help="`json` writes log lines as JSON; default: `service: {logs: ...}`."),
    ] = None,
) -> None:
    """Start the service, which runs flows made of templates.

    Ctrl-C or SIGTERM ends it gracefully: running jobs end their work units and commit what is whole. A second one ends
    it at once; the next start takes its jobs up again.
    """
    root = importable(project_root(ctx))  # flows may name constructs of the project
    spec = load_project(root)
    form = logs or spec.service.logs
    command = [sys.executable, "-m", "gobblin_dagster", "-C", str(root), "worker", "--pipe", "--logs", form]
    start_logs(as_json=form == "json", node=f"{socket.gethostname()}-{os.getpid()}")
    dagster = _dagster(root) if spec.service.dagster else None
    supervised = [sys.executable, "-m", "gobblin_dagster", "-C", str(root), "worker", "--logs", form, "--supervised"]
    launcher = LocalLauncher([*supervised, "--executor"], root)
    service = CoreServices(
        root, spec.service, command, spec.allow.lists, state=spec.state, dagster=dagster, launcher=launcher
    )

    def started(address: Address) -> None:
        typer.echo(f"The service answers at {address.url} (Ctrl-C ends it).")
        if service.is_new_token:
            typer.echo(f"Its token, kept in {TOKEN_FILE}: {service.token}")
        if dagster is not None:
            typer.echo(f"Dagster's pages, by a link that works once, within 15 minutes: {service.login_link()}")
        typer.echo("In another terminal, in this folder:")
        typer.echo("  gobblin flow templates")
        typer.echo("  gobblin flow create GROUP/NAME --template URI --set PARAMETER=VALUE")
        typer.echo("  gobblin flow list")

    raise typer.Exit(service.run(started))


def _dagster(root: Path) -> DagsterPrograms:
    """Return the programs that run Dagster beside the service, on a socket of this process's own."""
    socket_path = WarmAddress.of(root).path.with_name(f"dagster-{os.getpid()}.sock")
    program = [sys.executable, "-m", "gobblin_dagster.orchestration.beside_service"]
    return DagsterPrograms(socket_path, [*program, "pages", str(socket_path)], [*program, "daemon"])
