"""`gobblin serve`: the whole service in one process, and a worker process for its jobs."""

from __future__ import annotations

import logging
import sys

import typer

from gobblin_dagster.cli.context import examples, importable, project_root
from gobblin_dagster.service.server import Address, CoreServices
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import TOKEN_FILE

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin serve", "gobblin -C shop serve"))
def serve(ctx: typer.Context) -> None:
    """Start the service, which runs flows made of templates.

    Ctrl-C or SIGTERM ends it gracefully: running jobs end their work units and commit what is whole. A second one ends
    it at once; the next start takes its jobs up again.
    """
    root = importable(project_root(ctx))  # flows may name constructs of the project
    spec = load_project(root)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("uvicorn", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    command = [sys.executable, "-m", "gobblin_dagster", "-C", str(root), "worker", "--pipe"]
    service = CoreServices(root, spec.service, command, spec.allow.lists, state=spec.state)

    def started(address: Address) -> None:
        typer.echo(f"The service answers at {address.url} (Ctrl-C ends it).")
        if service.is_new_token:
            typer.echo(f"Its token, kept in {TOKEN_FILE}: {service.token}")
        typer.echo("In another terminal, in this folder:")
        typer.echo("  gobblin flow templates")
        typer.echo("  gobblin flow create GROUP/NAME --template URI --set PARAMETER=VALUE")
        typer.echo("  gobblin flow list")

    raise typer.Exit(service.run(started))
