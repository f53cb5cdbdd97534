"""`gobblin state show`: all that is known of one dataset."""

from __future__ import annotations

import sys
from contextlib import closing

import typer

from gobblin_dagster.cli.context import Output, OutputOption, open_store_here
from gobblin_dagster.cli.output import bytes_of, console, count, dataset_name, instant, print_facts, print_json
from gobblin_dagster.cli.state_lookup import DatasetArgument, JobOption, find_state
from gobblin_dagster.cli.views import state_view
from gobblin_dagster.core.ids import run_began_at


def show(
    ctx: typer.Context,
    dataset: DatasetArgument,
    job: JobOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show all that is known of one dataset: ranges, gaps, totals and files of its newest snapshot."""
    with closing(open_store_here(ctx)) as store:
        state = find_state(store, dataset, job)
        files = store.load_snapshot(state.job, dataset)
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
        "given up": str(state.given_up or "") or "nothing",
        "failed ranges": ", ".join(state.failed_ranges) or "none",
        "version": f"{state.version}, {instant(state.updated_at)}, by {_by(state.run_id)}",
        "rows read": f"{state.totals.rows_read:,}",
        "rows written": branches or "none",
        "quarantined": f"{state.totals.rows_quarantined:,}",
        "snapshot": f"{state.snapshot}: {count(len(files), 'file')}, {bytes_of(sum(f.size_bytes for f in files))}",
    }
    print_facts(console(sys.stdout), facts)


def _by(run_id: str) -> str:
    return "a person; see `gobblin state history`" if run_began_at(run_id) is None else f"run {run_id}"
