"""`gobblin dev`: Dagster's UI over the project. The only command that needs a Dagster instance."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples, project_root
from gobblin_dagster.core.errors import EnvironmentFaultError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

HOME = ".dagster"
"""DAGSTER_HOME below the project folder, where the variable is not set."""
DEFINITIONS = "gobblin_dagster.orchestration.project"
"""Module that builds Dagster's definitions of the project named by `PROJECT_VARIABLE`."""
PROJECT_VARIABLE = "GOBBLIN_PROJECT"


@app.command(epilog=examples("gobblin dev", "gobblin -C demo dev --port 3001"))
def dev(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI.")] = 3000,
) -> None:
    """Open the project in Dagster's UI."""
    root = project_root(ctx)
    check_port(host, port)
    environment = dev_environment(root)
    typer.echo(f"Dagster's UI of {root} opens at http://{host}:{port} (Ctrl-C ends it)", err=True)
    command = [sys.executable, "-m", "dagster", "dev", *_target(root), "--host", host, "--port", str(port)]
    # Fixed words, our own interpreter, and values that were checked above.
    raise typer.Exit(subprocess.run(command, cwd=root, env=environment, check=False).returncode)  # noqa: S603


def check_port(host: str, port: int) -> None:
    """Raise EnvironmentFaultError where the port cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EnvironmentFaultError(
                problem=f"Port {port} on {host} cannot be used: {error.strerror}.",
                hint=f"End the program that uses it, or choose another: `gobblin dev --port {port + 1}`.",
            ) from error


def dev_environment(root: Path) -> dict[str, str]:
    """Return the environment of `dagster dev`; makes DAGSTER_HOME, with telemetry off, where none is set."""
    environment = dict(os.environ) | {PROJECT_VARIABLE: str(root)}
    if not environment.get("DAGSTER_HOME"):
        home = root / HOME
        home.mkdir(exist_ok=True)
        settings = home / "dagster.yaml"
        if not settings.exists():
            settings.write_text("telemetry:\n  enabled: false\n")
        environment["DAGSTER_HOME"] = str(home)
    return environment


def _target(root: Path) -> list[str]:
    """Return where Dagster finds the definitions: the project's own, else those made from its job files."""
    for option, name in (("-w", "workspace.yaml"), ("-f", "definitions.py")):
        if (root / name).is_file():
            return [option, name]
    return ["-m", DEFINITIONS]
