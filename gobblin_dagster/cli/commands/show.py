"""`gobblin show`: show the snapshots of one dataset, and the files to read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import typer

from gobblin_dagster.cli.commands.state.lookup import JobOption, NamedArgument, named_state
from gobblin_dagster.cli.context import Output, OutputOption, examples, open_here
from gobblin_dagster.cli.render.console import (
    MAX_ROWS,
    bytes_of,
    console,
    dataset_name,
    instant,
    print_facts,
    print_table,
)
from gobblin_dagster.cli.render.documents import mark
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.snapshots.history import SnapshotInfo, list_snapshots
from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, load_published

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLUMNS = {
    "snapshot": "right",
    "published": "left",
    "watermark": "left",
    "added": "left",
    "by run": "left",
    "": "left",
}


@app.command(
    epilog=examples(
        "gobblin show AA/EWR",
        "gobblin show AA/EWR --paths all > files.txt",
        "gobblin show AA/EWR --snapshot 3 --output json",
    )
)
def show(
    ctx: typer.Context,
    dataset: NamedArgument,
    job: JobOption = None,
    snapshot: Annotated[int | None, typer.Option(help="Number; default: the newest.")] = None,
    paths: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Print only the paths of a branch's files, one a line.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what is published of a dataset, and its snapshots.

    Shows whole commits only, so any reader can read the files that `--paths` prints.
    """
    project = open_here(ctx)
    state = named_state(project, dataset, job)
    dataset = state.dataset_urn
    published = load_published(project, project.job(state.job), dataset, snapshot)
    if paths is not None:
        sys.stdout.writelines(f"{path}\n" for path in published.paths(paths))
        return
    with closing(project.open_store()) as store:
        snapshots = list_snapshots(store, state.job, dataset)
    if output is Output.JSON:
        print_json(**_view(state, published), snapshots=[_snapshot_view(one, state) for one in snapshots])
        return
    out = console(sys.stdout)
    facts = {
        "dataset": dataset_name(dataset),
        "job": state.job,
        "watermark": str(state.watermark or "-"),
        "snapshot": f"{published.snapshot}: {count(len(published.files), 'file')}, "
        + bytes_of(sum(file.size_bytes for file in published.files)),
        "rows": _rows(published.rows),
        "output": project.output_root(project.job(state.job)),
    }
    print_facts(out, facts)
    if snapshots:
        print_table(out, _COLUMNS, (_row(one, state) for one in snapshots[:MAX_ROWS]))
    if len(snapshots) > MAX_ROWS:
        out.print(f"... {len(snapshots) - MAX_ROWS:,} older; `--output json` has all")


def _rows(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{branch} {number:,}" for branch, number in rows.items()) or "none"


def _row(one: SnapshotInfo, state: DatasetState) -> tuple[str, ...]:
    notes = ["newest"] if one.snapshot == state.snapshot else []
    notes += [f"back to {one.went_back_to}"] if one.went_back_to is not None else []
    notes += [f"{count(one.removed, 'file')} removed"] if one.removed else []
    notes += ["expired"] if one.snapshot < state.oldest_snapshot else []
    return (
        str(one.snapshot),
        instant(one.committed_at),
        str(one.watermark or "-"),
        _rows(one.rows),
        one.run_id,
        ", ".join(notes),
    )


def _view(state: DatasetState, published: PublishedSnapshot) -> dict[str, Any]:
    return {
        "job": state.job,
        "dataset": state.dataset_urn,
        "watermark": mark(state.watermark),
        "newest": state.snapshot,
        "snapshot": published.snapshot,
        "rows": dict(published.rows),
        "files": [
            {"branch": f.branch, "path": f.path, "rows": f.rows, "bytes": f.size_bytes, "sha256": f.sha256}
            for f in published.files
        ],
    }


def _snapshot_view(one: SnapshotInfo, state: DatasetState) -> dict[str, Any]:
    return {
        "snapshot": one.snapshot,
        "committed_at": one.committed_at,
        "watermark": mark(one.watermark),
        "run": one.run_id,
        "sequence": one.sequence_id,
        "rows_added": dict(one.rows),
        "files_added": one.files,
        "files_removed": one.removed,
        "went_back_to": one.went_back_to,
        "expired": one.snapshot < state.oldest_snapshot,
    }
