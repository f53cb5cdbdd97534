"""`gobblin state list`: list states, even if job files are faulty; fast for ten thousand datasets."""

from __future__ import annotations

import sys
from contextlib import closing

import typer

from gobblin_dagster.cli.context import (
    ExcludeOption,
    JobsArgument,
    Output,
    OutputOption,
    SelectOption,
    open_store_here,
)
from gobblin_dagster.cli.flow_jobs import FlowOption, jobs_with_flow
from gobblin_dagster.cli.render.console import bytes_of, console, dataset_name, instant, print_table, rows_of
from gobblin_dagster.cli.render.documents import state_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.utils.gc_pause import collector_paused
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.state.lookup import damaged_leases, require_match

_COLUMNS = {"dataset": "left", "watermark": "left", "rows": "right", "quarantined": "right", "files": "right"}


def list_states(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the datasets that were published, with their watermarks."""
    with collector_paused():
        found, damaged = _states(ctx, jobs, flow)
        selection = Selection(tuple(select or ()), tuple(exclude or ()))
        require_match(selection, (urn for job in found for urn in (*found[job], *damaged[job])))
        damages = [(job, urn, str(error)) for job, errors in damaged.items() for urn, error in sorted(errors.items())]
        _list(found, [one for one in damages if selection.matches(one[1])], selection, output)


def _list(
    found: dict[str, dict[str, DatasetState]],
    damages: list[tuple[str, str, str]],
    selection: Selection,
    output: Output,
) -> None:
    loaded = {
        job: [state for urn, state in sorted(of_job.items()) if selection.matches(urn)] for job, of_job in found.items()
    }
    if output is Output.JSON:
        print_json(
            datasets=[state_view(state) for states in loaded.values() for state in states],
            damaged=[{"job": job, "dataset": urn, "problem": problem} for job, urn, problem in damages],
        )
        return
    out = console(sys.stdout)
    if not loaded:
        out.print("Nothing is published yet.")
    for job, states in loaded.items():
        out.print(f"Job {job}: {count(len(states), 'dataset')} published", style="bold")
        if states:
            columns = _COLUMNS | {"size": "right", "published": "left"}
            print_table(out, columns, (_row(state) for state in states))
    for _, urn, problem in damages:
        hint = "" if "gobblin state restore" in problem else " `gobblin state restore` repairs it."
        out.print(f"{dataset_name(urn)}: {problem}{hint}", style="red")


def _states(
    ctx: typer.Context, jobs: list[str] | None, flow: str | None
) -> tuple[dict[str, dict[str, DatasetState]], dict[str, dict[str, CorruptRecordError]]]:
    with closing(open_store_here(ctx)) as store:
        chosen = jobs_with_flow(ctx, store, flow, jobs)
        both = {job: store.load_readable_states(job) for job in chosen}
        damaged = {job: damaged_leases(store, job) | both[job][1] for job in chosen}
    return {job: states for job, (states, _) in both.items()}, damaged


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
