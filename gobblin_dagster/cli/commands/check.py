"""`gobblin check`: show every fault of every file, without reading any data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import Output, OutputOption, examples, importable, project_root
from gobblin_dagster.cli.render.console import print_status
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import SpecFault, UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.utils.text import visible
from gobblin_dagster.engine.check import CheckedFile, ProjectCheck, check_project
from gobblin_dagster.spec.project import PROJECT_FILE

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin check", "gobblin check jobs/orders.yaml", "gobblin -C demo check --output json"))
def check(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Job files; default: all.", show_default=False)
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check gobblin.yaml and all job files.

    Names of files limit it to them. Shows every fault of every file with its line, including SQL that cannot be
    parsed and packages that are not installed; reads no data. Exits with 2 if there is a fault, with 1 if only
    packages are missing.
    """
    root = importable(project_root(ctx))
    found = _only(check_project(root), files or (), root)
    if output is Output.JSON:
        print_json(valid=found.is_valid, files=[_view(one) for one in found.files])
    else:
        for one in found.files:
            print_status(not one.faults, one.problem or f"{one.file}: job {one.job}")
            for note in one.notes:
                typer.echo(visible(f"note  {note.text(one.file)}"))
    if not found.is_valid:
        is_sound = all(one.is_sound for one in found.files if one.faults)
        raise typer.Exit(ExitCode.FAILED if is_sound else ExitCode.USAGE)


def _only(found: ProjectCheck, files: Sequence[Path], root: Path) -> ProjectCheck:
    """Return the result for some files; faults of gobblin.yaml are faults of each."""
    if not files or any(Path(one.file).name == PROJECT_FILE for one in found.files):
        return found
    there = {os.path.realpath(one.file): one for one in found.files}
    wanted = []
    for file in files:
        one = there.get(os.path.realpath(file)) or there.get(os.path.realpath(root / file))
        if one is None:
            raise UsageError(
                problem=f"{file} is no job file of the project.",
                hint=f"Its job files: {', '.join(one.file for one in found.files)}.",
            )
        wanted.append(one)
    return ProjectCheck(tuple(wanted))


def _view(one: CheckedFile) -> dict[str, object]:
    return {
        "file": one.file,
        "job": one.job,
        "faults": list(map(_fault_view, one.faults)),
        "notes": list(map(_fault_view, one.notes)),
    }


def _fault_view(fault: SpecFault) -> dict[str, object]:
    where = {"in": fault.file} if fault.file else {}
    return {"line": fault.line, "path": fault.path, "problem": fault.problem, **where}
