"""`gobblin verify`: compare published data with the state store, and write manifests again."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.context import Output, OutputOption, examples, jobs_of, open_here
from gobblin_dagster.cli.each_job import for_each_job
from gobblin_dagster.cli.render.console import MAX_ROWS, bytes_of, console, dataset_name
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.verify import Difference, Verification
from gobblin_dagster.engine.maintenance.verify import verify as verify_job
from gobblin_dagster.engine.project import Project

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin verify", "gobblin verify AA/EWR --checksum", "gobblin verify --repair"))
def verify(
    ctx: typer.Context,
    dataset: Annotated[str | None, typer.Argument(metavar="DATASET", help="The dataset.urn; default: all.")] = None,
    job: Annotated[str | None, typer.Option(help="Name of the job; default: all.")] = None,
    checksum: Annotated[bool, typer.Option("--checksum", help="Read every file, and compare its content.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Write manifests again from the state store.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare published files and manifests with the state store.

    Names files that are missing, altered (by size; with --checksum by content) or known to no snapshot, manifests
    that are missing, cut or edited, and tables and topics that lack the newest commit or their data files. Exits
    with 1 if anything differs and was not repaired. Files are never changed.
    """
    names = [job] if job else None
    project = open_here(ctx, names)
    jobs = jobs_of(project, names)
    chosen = None if dataset is None else [dataset]
    outcomes = for_each_job(jobs, lambda one: verify_job(project, one, chosen, checksum=checksum, repair=repair))
    found = [one for one in outcomes.results if dataset is None or one.datasets]
    if not found and dataset is not None and not outcomes.code:
        raise UsageError(
            problem=f"Nothing is published of dataset {dataset!r}.", hint="`gobblin state list` shows what is."
        )
    is_asked = outcomes.has_answers and not (names or outcomes.interrupted)
    strangers = _jobs_without_file(project) if is_asked else []
    code = outcomes.code or (ExitCode.SUCCEEDED if all(one.is_whole for one in found) else ExitCode.FAILED)
    if output is Output.JSON:
        views = outcomes.views(_view, is_whole=None, datasets=[], extra=[])
        print_json(exit_code=code, jobs=views, without_job_file=strangers)
    else:
        for one in found:
            _print(one)
        if strangers:
            shown = ", ".join(strangers[:MAX_ROWS]) + ", ..." * (len(strangers) > MAX_ROWS)
            problem = f"Not compared, because the project has no job file of them: {shown}"
            console(sys.stdout).print(problem, style="yellow")
    raise typer.Exit(code)


def _jobs_without_file(project: Project) -> list[str]:
    """Return the jobs of the state store that the project does not have, as those of a service."""
    with closing(project.open_store()) as store:
        return sorted({*store.list_jobs()} - {one.job for one in project.jobs})


def _print(done: Verification) -> None:
    out = console(sys.stdout)
    files = sum(one.files for one in done.datasets)
    size = bytes_of(sum(one.size_bytes for one in done.datasets))
    compared = f"{count(len(done.datasets), 'dataset')}, {count(files, 'file')} ({size}) compared"
    out.print(f"Job {done.job}: {compared}", style="bold")
    for dataset in done.datasets:
        for line in _lines(dataset.differences):
            out.print(f"  {dataset_name(dataset.dataset_urn)}: {line}", style="yellow")
        if dataset.note:
            out.print(f"  {dataset_name(dataset.dataset_urn)}: {dataset.note}", style="yellow")
    for line in _lines(done.extra):
        out.print(f"  {line}", style="yellow")
    if not done.extra and not any(one.differences for one in done.datasets):
        out.print("  nothing differs")


def _lines(differences: tuple[Difference, ...]) -> list[str]:
    lines = [
        ": ".join(filter(None, (one.what, one.path, one.detail))) + (", repaired" * one.is_repaired)
        for one in differences[:MAX_ROWS]
    ]
    more = len(differences) - MAX_ROWS
    return [*lines, f"... {more:,} more; --output json names all"] if more > 0 else lines


def _view(done: Verification) -> dict[str, Any]:
    return {
        "is_whole": done.is_whole,
        "datasets": [
            {
                "dataset": one.dataset_urn,
                "snapshot": one.snapshot,
                "files": one.files,
                "bytes": one.size_bytes,
                "differences": [_difference(difference) for difference in one.differences],
                "note": one.note or None,
            }
            for one in done.datasets
        ],
        "extra": [_difference(difference) for difference in done.extra],
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {"what": one.what.value, "path": one.path, "detail": one.detail, "is_repaired": one.is_repaired}
