"""`gobblin report`: write one HTML page about a run, to be looked at without any server."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from gobblin_dagster.cli.context import examples, open_store_here
from gobblin_dagster.cli.render.report_page import report_page
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.run_record import RECENT_RUNS, RunRecord
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.engine.snapshots.rejected_rows import QuarantineCount, count_quarantined
from gobblin_dagster.state.store import StateStore

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PLOTTED = 100
"""Most runs in a plot."""


@app.command(epilog=examples("gobblin report", "gobblin report orders --file orders.html"))
def report(
    ctx: typer.Context,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Id of a run, its beginning, or a job; default: the last run.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Default: report-<run>.html in this folder.")
    ] = None,
) -> None:
    """Write one HTML page about a run: datasets, rows, times, lag.

    Plots are part of the page; it loads nothing and needs no server.
    """
    with closing(open_store_here(ctx)) as store:
        chosen = _found(store, run)
        history = store.load_runs(chosen.job, _PLOTTED)
        if chosen.run_id not in {one.run_id for one in history}:
            history = [*history, chosen]
        states = store.load_readable_states(chosen.job)[0]
        page = report_page(chosen, history, states, _rejected(store, chosen.job), SystemClock().now())
    target = file or Path(f"report-{chosen.run_id}.html")
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            problem=f"{target} cannot be written: {error.strerror}.", hint="Name another with --file."
        ) from None
    typer.echo(f"Wrote {printable(str(target))}: run {chosen.run_id} of job {chosen.job}, {chosen.status}")


def _found(store: StateStore, name: str | None) -> RunRecord:
    """Return the newest run, the newest of a job, or a run by its id."""
    runs = store.load_runs(None, RECENT_RUNS if name else 1)
    found = [run for run in runs if name in (None, run.job) or run.run_id.startswith(name)]
    if found:
        return found[0]
    raise UsageError(
        problem=f"No run or job {name!r} is remembered." if name else "No run is remembered.",
        hint="`gobblin state runs` lists them; idle runs leave no record.",
    )


def _rejected(store: StateStore, job: str) -> list[QuarantineCount] | None:
    """Return the rejected rows of a job; None if the lake cannot be read now: the report has all else."""
    try:
        return count_quarantined(store, job)
    except (GobblinDagsterError, OSError):
        return None
