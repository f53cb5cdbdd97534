"""`gobblin version`: print the versions that a bug report should name."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from gobblin_dagster import __version__
from gobblin_dagster.cli.context import Output, OutputOption
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.engine.spark.java import find_java

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PACKAGES = ("pyspark", "dagster", "pyarrow", "duckdb", "sqlalchemy")


@app.command()
def show(output: OutputOption = Output.TEXT) -> None:
    """Show versions of everything that matters."""
    versions = {"gobblin_dagster": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in _PACKAGES}
    try:
        versions["java"] = find_java().version
    except EnvironmentFaultError:
        versions["java"] = "not found"
    if output is Output.JSON:
        print_json(versions=versions)
    else:
        for name, number in versions.items():
            typer.echo(f"{name:<16} {number}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
