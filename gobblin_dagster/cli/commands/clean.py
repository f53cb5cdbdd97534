"""`gobblin clean`: delete staging of killed runs, files of expired snapshots, expired startpoints and old commits."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.answer import error_view
from gobblin_dagster.cli.context import JobsArgument, Output, OutputOption, examples, jobs_of, open_here
from gobblin_dagster.cli.each_job import for_each_job
from gobblin_dagster.cli.errors import report
from gobblin_dagster.cli.render.console import bytes_of, console, dataset_name, instant
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.clean import CleanResult, ExpiredSnapshots
from gobblin_dagster.engine.maintenance.clean import clean as clean_job

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=examples("gobblin clean --dry-run", "gobblin clean flights"))
def clean(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Delete what killed runs left, and what has expired.

    Snapshots older than `commit.keep_snapshots` expire, and so do startpoints. Of each dataset the state store keeps
    the newest `history_runs` commits. Files of a stored commit sequence, of a run that may still work, or of a kept
    snapshot are never deleted.
    """
    project = open_here(ctx, jobs)
    outcomes = for_each_job(jobs_of(project, jobs), lambda job: clean_job(project, job, dry_run=dry_run))
    faults = [fault for result in outcomes.results for fault in result.faults]
    code = outcomes.code or (ExitCode.FAILED if faults else ExitCode.SUCCEEDED)
    if output is Output.JSON:
        print_json(
            dry_run=dry_run,
            exit_code=code,
            jobs=outcomes.views(_view, staging=[], expired=[], startpoints=[], commits=[], faults=[]),
        )
    else:
        for result in outcomes.results:
            _print(result, "would be deleted" if dry_run else "deleted")
    for fault in faults:
        report(fault)
    raise typer.Exit(code)


def _print(result: CleanResult, done: str) -> None:
    out = console(sys.stdout)
    out.print(f"Job {result.job}", style="bold")
    for folder in result.staging:
        what = f"kept: {folder.kept_because}" if folder.kept_because else done
        out.print(f"  staging of run {folder.run_id}: {what}")
    for expired in result.expired:
        what = f"kept: {expired.kept_because}" if expired.kept_because else done
        stay = f"; {count(len(expired.in_tables), 'file')} that a table lists, kept" if expired.in_tables else ""
        out.print(f"  {dataset_name(expired.dataset_urn)}: {_files(expired)}, {what}{stay}")
    for startpoint in result.startpoints:
        what = f"startpoint {startpoint} of {startpoint.who} expired at {instant(startpoint.expires_at)}, {done}"
        out.print(f"  {dataset_name(startpoint.dataset_urn)}: {what}")
    for pruned in result.commits:
        what = f"{count(pruned.commits, 'old commit')} in the state store {done}"
        out.print(f"  {dataset_name(pruned.dataset_urn)}: {what}")
    if not any((result.staging, result.expired, result.startpoints, result.commits, result.faults)):
        out.print("  nothing to clean up")


def _files(expired: ExpiredSnapshots) -> str:
    size = bytes_of(sum(file.size_bytes for file in expired.files))
    files = count(len(expired.files), "file")
    return f"{count(len(expired.snapshots), 'expired snapshot')} with {files} ({size})"


def _view(result: CleanResult) -> dict[str, Any]:
    return {
        "job": result.job,
        "staging": [
            {"run": one.run_id, "path": one.path, "kept_because": one.kept_because or None} for one in result.staging
        ],
        "expired": [
            {
                "dataset": one.dataset_urn,
                "snapshots": list(one.snapshots),
                "files": [file.path for file in one.files],
                "bytes": sum(file.size_bytes for file in one.files),
                "kept_because": one.kept_because or None,
                "in_tables": [file.path for file in one.in_tables],
            }
            for one in result.expired
        ],
        "startpoints": [
            {"dataset": one.dataset_urn, "id": one.id, "position": str(one.position), "expired_at": one.expires_at}
            for one in result.startpoints
        ],
        "commits": [{"dataset": one.dataset_urn, "commits": one.commits} for one in result.commits],
        "faults": [error_view(fault) for fault in result.faults],
    }
