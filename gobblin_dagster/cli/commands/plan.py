"""`gobblin plan`: show what a run would do. Reads metadata only; starts Spark only for the source `spark`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gobblin_dagster.cli.context import (
    ExcludeOption,
    JobsArgument,
    Output,
    OutputOption,
    SelectOption,
    examples,
    jobs_of,
    open_here,
)
from gobblin_dagster.cli.each_job import for_each_job
from gobblin_dagster.cli.render.console import console
from gobblin_dagster.cli.render.documents import NO_PLAN, plan_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.render.plan import print_plan
from gobblin_dagster.cli.spark import plan_only_spark
from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.run.job_run import plan_job

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=examples(
        "gobblin plan",
        "gobblin plan flights --select 'AA-*' --exclude AA-LGA",
        "gobblin plan --detailed-exitcode || echo there is work",
    )
)
def plan(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    output: OutputOption = Output.TEXT,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 3 if a run would change anything.")
    ] = False,
) -> None:
    """Show what a run would do; changes nothing."""
    project = open_here(ctx, jobs)
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    with plan_only_spark(project) as spark:
        outcomes = for_each_job(jobs_of(project, jobs), lambda job: plan_job(project, job, selection, spark))
    plans = outcomes.results
    has_changes = any(plan.has_changes for plan in plans)
    code = outcomes.code or _code(plans, is_detailed=detailed_exitcode)
    if output is Output.JSON:
        print_json(exit_code=code, has_changes=has_changes, jobs=outcomes.views(plan_view, **NO_PLAN))
    else:
        out = console(sys.stdout)
        for one in plans:
            print_plan(out, one)
        if plans:
            out.print(_next(plans))
    raise typer.Exit(code)


def _code(plans: Sequence[JobPlan], *, is_detailed: bool) -> ExitCode:
    """Return the exit code of jobs that were planned: that of their run if datasets of them cannot be planned."""
    has_changes = any(plan.has_changes for plan in plans)
    if is_detailed and has_changes:
        return ExitCode.CHANGES
    if not any(plan.has_problems for plan in plans):
        return ExitCode.SUCCEEDED
    return ExitCode.PARTIAL if has_changes else ExitCode.FAILED


def _next(plans: Sequence[JobPlan]) -> str:
    """Return the last line: what to do next."""
    waits = {left for plan in plans for left in plan.leftovers if left.state == SequenceState.QUARANTINED}
    does_more = any(plan.has_changes for plan in plans)
    if waits:
        what = "`gobblin commit list` shows what waits for you"
        return f"Next: {what}; `gobblin run` reads the other datasets" if does_more else f"Next: {what}."
    if does_more:
        return "Next: `gobblin run`"
    if any(plan.has_problems for plan in plans):
        return "Next: fix the problems above; there is nothing else to do."
    return "Nothing to do; `gobblin state list` shows the watermarks."
