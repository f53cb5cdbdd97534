"""`gobblin state`: watermarks and totals of datasets, read from the state store, and what changes them (`state_change`)."""

from __future__ import annotations

import sys
from collections.abc import Callable

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
from gobblin_dagster.cli.state_change import diff, export_states, history, import_states, reset, retry, set_watermark
from gobblin_dagster.cli.state_lookup import DatasetArgument, JobOption, load_states, one_state
from gobblin_dagster.cli.views import state_view
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.engine.plan import Selection

app = typer.Typer(rich_markup_mode=None, add_completion=False, help="See and change watermarks of datasets.")

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
        for job, states in load_states(open_here(ctx), jobs).items()
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
    dataset: DatasetArgument,
    job: JobOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show all that is known of one dataset: ranges, gaps, totals and files of its newest snapshot."""
    project = open_here(ctx)
    state = one_state(project, dataset, job)
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
        "given up": str(state.given_up or "") or "nothing",
        "failed ranges": ", ".join(state.failed_ranges) or "none",
        "version": f"{state.version}, published {instant(state.updated_at)} by run {state.run_id}",
        "rows read": f"{state.totals.rows_read:,}",
        "rows written": branches or "none",
        "quarantined": f"{state.totals.rows_quarantined:,}",
        "snapshot": f"{state.snapshot}: {count(len(files), 'file')}, {bytes_of(sum(f.size_bytes for f in files))}",
    }
    print_facts(console(sys.stdout), facts)


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


_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "set": (set_watermark, "gobblin state set AA-EWR 2013-01-15 --reason 'bad files, read again' --dry-run"),
    "reset": (reset, "gobblin state reset AA-EWR --reason 'the table was made anew' --yes"),
    "retry": (retry, "gobblin state retry AA-EWR --reason 'the files are mended' --dry-run"),
    "history": (history, "gobblin state history AA-EWR --output json"),
    "export": (export_states, "gobblin state export > state.jsonl"),
    "import": (import_states, "gobblin state import state.jsonl --dry-run"),
    "diff": (diff, "gobblin state diff state.jsonl"),
}
for _name, (_command, _example) in _COMMANDS.items():
    app.command(_name, epilog=examples(_example))(_command)
