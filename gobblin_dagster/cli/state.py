"""`gobblin state`: watermarks and totals of datasets, read from the state store."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gobblin_dagster.cli.context import (
    ExcludeOption,
    JobsArgument,
    Output,
    OutputOption,
    SelectOption,
    examples,
    open_here,
)
from gobblin_dagster.cli.output import (
    bytes_of,
    console,
    count,
    dataset_name,
    instant,
    print_facts,
    print_json,
    print_table,
    rows_of,
)
from gobblin_dagster.cli.views import state_view
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.plan import Selection
from gobblin_dagster.engine.project import Project

app = typer.Typer(rich_markup_mode=None, add_completion=False, help="See watermarks and totals of datasets.")

_COLUMNS = {"dataset": "left", "watermark": "left", "rows": "right", "quarantined": "right", "files": "right"}


@app.command("list", epilog=examples("gobblin state list", "gobblin state list flights --select 'AA-*' --output json"))
def list_states(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the datasets that were published, with their watermarks."""
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    loaded = {
        job: [state for urn, state in sorted(states.items()) if selection.matches(urn)]
        for job, states in _load(open_here(ctx), jobs).items()
    }
    if output is Output.JSON:
        print_json(datasets=[state_view(state) for states in loaded.values() for state in states])
        return
    out = console(sys.stdout)
    for job, states in loaded.items():
        out.print(f"Job {job}: {count(len(states), 'dataset')} published", style="bold")
        if states:
            columns = _COLUMNS | {"size": "right", "published": "left"}
            print_table(out, columns, (_row(state) for state in states))


@app.command(epilog=examples("gobblin state show AA-EWR", "gobblin state show AA-EWR --job flights --output json"))
def show(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.urn.")],
    job: Annotated[
        str | None, typer.Option(help="Name of the job; needed where several jobs have the dataset.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show all that is known of one dataset: ranges, gaps, totals and files of its newest snapshot."""
    project = open_here(ctx)
    states = [states[dataset] for states in _load(project, [job] if job else None).values() if dataset in states]
    if len(states) != 1:
        where = ", ".join(state.job for state in states)
        raise UsageError(
            problem=f"Dataset {dataset!r} is in several jobs: {where}."
            if states
            else f"Nothing is published of {dataset!r}.",
            hint="Name one with --job." if states else "`gobblin state list` shows what is published.",
        )
    state = states[0]
    store = project.open_store()
    try:
        files = store.load_snapshot(state.job, dataset)
    finally:
        store.close()
    if output is Output.JSON:
        listed = [{"branch": f.branch, "path": f.path, "rows": f.rows, "bytes": f.size_bytes} for f in files]
        print_json(**state_view(state), snapshot_files=listed)
        return
    branches = ", ".join(f"{name} {rows:,}" for name, rows in sorted(state.totals.branch_rows.items()))
    facts = {
        "dataset": dataset_name(state.dataset_urn),
        "job": state.job,
        "watermark": str(state.watermark or "-"),
        "committed": str(state.committed) or "-",
        "failed ranges": ", ".join(state.failed_ranges) or "none",
        "version": f"{state.version}, published {instant(state.updated_at)} by run {state.run_id}",
        "rows read": f"{state.totals.rows_read:,}",
        "rows written": branches or "none",
        "quarantined": f"{state.totals.rows_quarantined:,}",
        "snapshot": f"{state.snapshot}: {count(len(files), 'file')}, {bytes_of(sum(f.size_bytes for f in files))}",
    }
    print_facts(console(sys.stdout), facts)


def _load(project: Project, jobs: list[str] | None) -> dict[str, dict[str, DatasetState]]:
    """Return states by job and dataset.urn; default: all jobs of the project and those that the store remembers."""
    store = project.open_store()
    try:
        names = jobs or sorted({*(job.job for job in project.jobs), *store.list_jobs()})
        return {name: store.load_dataset_states(name) for name in names}
    finally:
        store.close()


def _row(state: DatasetState) -> tuple[str, ...]:
    return (
        dataset_name(state.dataset_urn),
        str(state.watermark or "-"),
        rows_of(state.totals.rows_read),
        rows_of(state.totals.rows_quarantined),
        rows_of(state.totals.files),
        bytes_of(state.totals.bytes_written),
        instant(state.updated_at),
    )
