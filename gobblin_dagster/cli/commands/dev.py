"""`gobblin dev`: Dagster's UI over the project. The only command that needs a Dagster instance."""

from __future__ import annotations

from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples, project_root
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.orchestration.dev import HOST, check_port, serve

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin dev", "gobblin -C demo dev --port 3001"))
def dev(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI on this machine.")] = 3000,
) -> None:
    """Open the project in Dagster's UI."""
    root = project_root(ctx)
    check_port(port)  # before the address is printed
    typer.echo(f"Dagster's UI of {printable(str(root))}: http://{HOST}:{port} (Ctrl-C ends it)", err=True)
    raise typer.Exit(serve(root, port))
