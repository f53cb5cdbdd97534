"""`gobblin schema`: print the JSON schema of job files."""

from __future__ import annotations

import json

import typer

from gobblin_dagster.cli.context import examples
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.spec.schema import job_schema

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=examples(
        "gobblin schema > job.schema.json",
        "then, as the first line of a job file:",
        "# yaml-language-server: $schema=../job.schema.json",
    )
)
def schema() -> None:
    """Print the JSON schema of job files, for editors."""
    kinds = [kind for kind in ConstructKind if kind is not ConstructKind.FORMAT]  # formats are options of sources
    document = job_schema({kind.value: registry.schema(kind) for kind in kinds})
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
