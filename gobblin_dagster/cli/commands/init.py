"""`gobblin init`: make a project folder that runs at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples
from gobblin_dagster.demo.project import write_demo, write_service

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Template(StrEnum):
    """Content of a new project."""

    DEMO = "demo"


@app.command(
    epilog=examples(
        "gobblin init demo && cd demo && gobblin run",
        "gobblin init --service shop && cd shop && gobblin serve",
    )
)
def init(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="Folder to make; must not hold anything yet.")],
    template: Annotated[
        Template, typer.Option(help="`demo`: real flights, two branches, a quarantine.")
    ] = Template.DEMO,
    service: Annotated[
        bool, typer.Option("--service", help="A project for `gobblin serve`: templates of flows instead of jobs.")
    ] = False,
) -> None:
    """Make a project folder that runs at once."""
    files = write_service(name) if service else {Template.DEMO: write_demo}[template](name)
    shown = [str(path.relative_to(name)) for path in files]
    typer.echo(f"Made {name} with {len(files)} files: {', '.join(shown[:4])}{', ...' if len(shown) > 4 else ''}")
    typer.echo(f"Next: cd {name} && gobblin {'serve' if service else 'run'}")
