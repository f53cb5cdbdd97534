"""`gobblin rollback`: restore an older snapshot of a dataset, data and watermark together."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from gobblin_dagster.cli.commands.state.lookup import DatasetArgument, JobOption, one_state
from gobblin_dagster.cli.confirm import confirm, readable
from gobblin_dagster.cli.context import Output, OutputOption, examples, open_here
from gobblin_dagster.cli.render.console import console, dataset_name, print_facts
from gobblin_dagster.cli.render.documents import mark
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.maintenance.rollback import apply_rollback, plan_rollback

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=examples("gobblin rollback AA/EWR --to 3 --dry-run", "gobblin rollback AA/EWR --to 3 -m 'bad source' --yes")
)
def rollback(
    ctx: typer.Context,
    dataset: DatasetArgument,
    to: Annotated[int, typer.Option(metavar="SNAPSHOT", help="Its number, as `gobblin show DATASET` lists them.")],
    reason: Annotated[
        str, typer.Option("--reason", "-m", help="Why; kept in the dataset's history.", callback=readable)
    ] = "",
    job: JobOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Go back to an older snapshot of a dataset, data and watermark.

    The next run reads the later data again. Nothing is deleted, and another rollback undoes this one.
    """
    project = open_here(ctx)
    spec = project.job(one_state(project, dataset, job).job)
    with closing(project.open_store()) as store:
        plan = plan_rollback(store, spec, dataset, to, project.clock.now())
        rows = {
            branch: sum(f.rows for f in plan.left if f.branch == branch) for branch in {f.branch for f in plan.left}
        }
        facts = {
            "dataset": dataset_name(dataset),
            "job": spec.job,
            "watermark": f"{plan.before.watermark} -> {plan.after.watermark}",
            "snapshot": f"{plan.before.snapshot} -> {plan.after.snapshot}, equal to {to}",
            "readers see": count(len(plan.files), "file"),
            "and no longer": f"{count(len(plan.left), 'file')}: "
            + (", ".join(f"{branch} {number:,} rows" for branch, number in sorted(rows.items())) or "none"),
        }
        out = console(sys.stdout)
        if output is Output.TEXT:
            print_facts(out, facts)
        sequence = ""
        if not dry_run:
            confirm(f"Go back to snapshot {to}?", yes)
            sequence = apply_rollback(project, spec, store, plan, who=who(), why=reason)
    if output is Output.JSON:
        print_json(
            dry_run=dry_run,
            job=spec.job,
            dataset=dataset,
            to=to,
            before={"snapshot": plan.before.snapshot, "watermark": mark(plan.before.watermark)},
            after={"snapshot": plan.after.snapshot, "watermark": mark(plan.after.watermark)},
            files=len(plan.files),
            files_left=len(plan.left),
            rows_left=rows,
            sequence=sequence or None,
        )
    elif dry_run:
        out.print("Nothing was changed.", style="bold")
    else:
        out.print(
            f"Done: snapshot {plan.after.snapshot} holds what {to} held. Undo with --to {plan.before.snapshot}; "
            "the next run reads on from the watermark.",
            style="bold",
        )
