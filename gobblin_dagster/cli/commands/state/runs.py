"""`gobblin state runs`: list the last runs of jobs, and the outcome of each dataset."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing
from typing import Annotated

import typer

from gobblin_dagster.cli.context import Output, OutputOption, open_store_here
from gobblin_dagster.cli.flow_jobs import FlowOption, jobs_with_flow
from gobblin_dagster.cli.render.console import console, dataset_name, instant, print_table
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.run_record import DatasetRunRecord, RunRecord
from gobblin_dagster.state.lookup import known_jobs

JobArgument = Annotated[str | None, typer.Argument(metavar="JOB", help="Name of the job; default: all.")]
DatasetOption = Annotated[
    str | None, typer.Option("--dataset", "-d", metavar="URN", help="Show the outcome of this dataset in each run.")
]
_ALL = 1_000_000
"""More than a project keeps (`history_runs`)."""
LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=1_000_000_000, help="At most this many runs, newest first.")
]


def runs(
    ctx: typer.Context,
    job: JobArgument = None,
    dataset: DatasetOption = None,
    limit: LimitOption = 20,
    flow: FlowOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the last runs of a job and how they ended; idle runs leave no record."""
    with closing(open_store_here(ctx)) as store:
        most = limit if dataset is None else _ALL
        if flow is None:
            known_jobs(store, job and [job])
            found = store.load_runs(job, most)
        else:
            names = jobs_with_flow(ctx, store, flow, [job] if job else None)
            found = [run for name in names for run in store.load_runs(name, most)]
            found = sorted(found, key=lambda run: run.started_at, reverse=True)[:most]
    if dataset is not None:
        found = [run for run in found if dataset in run.datasets][:limit]
    if output is Output.JSON:
        print_json(runs=[_view(run, dataset) for run in found])
        return
    out = console(sys.stdout)
    if not found:
        out.print(f"No run is remembered{f' in which {dataset_name(dataset)} had work' if dataset else ''}.")
    elif dataset is None:
        columns = {
            "started": "left",
            "job": "left",
            "status": "left",
            "datasets": "left",
            "rows": "right",
            "run": "left",
        }
        print_table(out, columns, map(_row, found))
    else:
        columns = {
            "started": "left",
            "outcome": "left",
            "from": "left",
            "to": "left",
            "rows": "right",
            "failed": "left",
        }
        print_table(out, columns | {"run": "left"}, (_dataset_row(run, run.datasets[dataset]) for run in found))
        for run in found:
            if error := run.datasets[dataset].error:
                out.print(f"{instant(run.started_at)}: {error}", style="red")


def _row(run: RunRecord) -> tuple[str, ...]:
    outcomes = Counter(one.outcome.value for one in run.datasets.values())
    datasets = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(outcomes.items()))
    rows = sum(one.rows for one in run.datasets.values())
    return instant(run.started_at), run.job, run.status.value, datasets or "-", f"{rows:,}", run.run_id


def _dataset_row(run: RunRecord, one: DatasetRunRecord) -> tuple[str, ...]:
    failed = ", ".join(one.failed_ranges) or "-"
    return (
        instant(run.started_at),
        one.outcome.value,
        one.low or "-",
        one.high or "-",
        f"{one.rows:,}",
        failed,
        run.run_id,
    )


def _view(run: RunRecord, dataset: str | None) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "job": run.job,
        "status": run.status.value,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "datasets": [
            {
                "dataset": urn,
                "outcome": one.outcome.value,
                "low": one.low or None,
                "high": one.high or None,
                "rows": one.rows,
                "quarantined": one.quarantined,
                "failed_ranges": list(one.failed_ranges),
                "error": one.error,
            }
            for urn, one in sorted(run.datasets.items())
            if dataset in (None, urn)
        ],
    }
