"""`gobblin compact`: merge small files into fewer large ones."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.context import Output, OutputOption, examples, open_here, remember_jobs
from gobblin_dagster.cli.render.console import bytes_of, console, dataset_name
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.compact import MIN_FILES, Compaction
from gobblin_dagster.engine.maintenance.compact import compact as compact_job

app = typer.Typer(rich_markup_mode=None, add_completion=False)
_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@app.command(epilog=examples("gobblin compact flights --dry-run", "gobblin compact flights AA/EWR --target-size 256MB"))
def compact(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", callback=remember_jobs)],
    datasets: Annotated[list[str] | None, typer.Argument(metavar="DATASET", help="Default: all.")] = None,
    target_size: Annotated[
        str, typer.Option(help="Files below half of this are merged into files of about this size.")
    ] = "128MB",
    min_files: Annotated[int, typer.Option(min=2, help="Fewest files that are merged into one.")] = MIN_FILES,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be merged.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Merge small files of a job's datasets, folder by folder.

    Rows and their order stay; they are compared before anything is published. Older snapshots keep the small files
    until `gobblin clean` finds them expired. Needs no Spark.
    """
    project = open_here(ctx, [job])
    out = console(sys.stdout)

    def show(one: Compaction) -> None:
        if output is Output.TEXT:
            out.print(_line(one, dry_run=dry_run), style="red" if one.problem else None)

    done = compact_job(
        project,
        project.job(job),
        datasets or None,
        target_bytes=_bytes(target_size),
        min_files=min_files,
        dry_run=dry_run,
        who=who(),
        on_done=show,
    )
    code = _code(done)
    if output is Output.JSON:
        print_json(exit_code=code, job=job, dry_run=dry_run, datasets=[_view(one) for one in done])
    elif not done:
        out.print("No dataset has small files to merge.")
    raise typer.Exit(code)


def _code(done: list[Compaction]) -> ExitCode:
    left = [one for one in done if one.problem]
    if not left:
        return ExitCode.SUCCEEDED
    return ExitCode.BUSY if all(one.is_busy for one in left) else ExitCode.FAILED


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(KB|MB|GB|)", text.strip().upper())
    if not match or not int(match[1]):
        raise UsageError(problem=f"--target-size {text!r} is not a size.", hint="For example 128MB, 1GB or 500000.")
    return int(match[1]) * _UNITS[match[2]]


def _line(one: Compaction, *, dry_run: bool) -> str:
    name = dataset_name(one.dataset_urn)
    if one.problem and not one.snapshot:
        return f"{name}: left as it is: {one.problem}"
    size = bytes_of(sum(merge.size_bytes for merge in one.merges))
    merged = "would become" if dry_run else "became"
    after = "" if dry_run else f" ({bytes_of(one.bytes_after)}), snapshot {one.snapshot}"
    parts = []
    if one.merges:
        parts.append(f"{count(one.files, 'file')} ({size}) {merged} {len(one.merges):,}{after}")
    if one.files_elsewhere:
        parts.append(f"{count(one.files_elsewhere, 'small file')} in a former output left as they are")
    return f"{name}: {'; '.join(filter(None, (*parts, one.problem)))}"


def _view(one: Compaction) -> dict[str, Any]:
    return {
        "dataset": one.dataset_urn,
        "snapshot": one.snapshot or None,
        "problem": one.problem or None,
        "bytes_after": one.bytes_after or None,
        "files_elsewhere": one.files_elsewhere,
        "merges": [
            {
                "branch": merge.branch,
                "folder": merge.folder,
                "files": [file.path for file in merge.files],
                "rows": merge.rows,
                "bytes": merge.size_bytes,
            }
            for merge in one.merges
        ],
    }
