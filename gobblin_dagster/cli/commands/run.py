"""`gobblin run`: recover, plan, run, commit. Thin: the engine works, the display prints."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console

from gobblin_dagster.cli.answer import error_view
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
from gobblin_dagster.cli.interrupt import stop_on_interrupt
from gobblin_dagster.cli.render.console import console
from gobblin_dagster.cli.render.documents import NO_PLAN, NO_RUN, plan_view, run_view
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.cli.render.plan import print_plan
from gobblin_dagster.cli.render.profile import print_profile
from gobblin_dagster.cli.render.progress import ProgressMode, progress_view
from gobblin_dagster.cli.render.run import RunDisplay, next_step
from gobblin_dagster.cli.run_log import LogLevel, RunLog, shown_path
from gobblin_dagster.cli.spark import lazy_spark, plan_only_spark, spark_note
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.commit.listener import CommitListener, crash_at
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.run.profile import RunProfiler
from gobblin_dagster.spec.job import JobSpec

_NOT_BEGUN = "The job was not begun: the command was interrupted before."
_STOPPED = "The job was stopped at once. What is committed stays; the next run reads the rest."

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=examples(
        "gobblin run",
        "gobblin run flights --select 'AA-*'",
        "gobblin run --output json --progress json 2> progress.jsonl",
        "gobblin run --profile    shows where the time went",
        "gobblin run --crash-at commit:2    kills itself while publishing; run again to see the recovery",
    )
)
def run(
    ctx: typer.Context,
    jobs: JobsArgument = None,
    select: SelectOption = None,
    exclude: ExcludeOption = None,
    output: OutputOption = Output.TEXT,
    progress: Annotated[
        ProgressMode, typer.Option(help="Bars, plain lines, JSON lines or nothing; `auto` looks for a terminal.")
    ] = ProgressMode.AUTO,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Least level of the lines in the log file of the run.")
    ] = LogLevel.INFO,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time of the run went.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    crash: Annotated[
        str | None,
        typer.Option("--crash-at", metavar="commit:N", help="Kill this process after N commit steps, to see recovery."),
    ] = None,
) -> None:
    """Read what is new, check it, and publish it.

    Unfinished work of an earlier run is finished first. Ctrl-C lets running work units finish and commits the
    complete ones; a second Ctrl-C stops at once.
    """
    listener = _crash_listener(crash)
    project = open_here(ctx, jobs)
    chosen = jobs_of(project, jobs)
    selection = Selection(tuple(select or ()), tuple(exclude or ()))
    out = console(sys.stdout) if output is Output.TEXT else console(sys.stderr, quiet=progress is ProgressMode.JSON)
    if dry_run:
        raise typer.Exit(_dry_run(project, chosen, selection, out, output))
    runner = lazy_spark(project)
    told = spark_note(project, runner)
    profiles: dict[str, dict[str, Any]] = {}
    try:
        with RunLog(project.root, log_level) as log, stop_on_interrupt(out) as stop:

            def run_one(job: JobSpec) -> RunResult:
                profiler = RunProfiler()
                with log.told_errors(job.job), RunDisplay(out, progress_view(progress, out)) as display:
                    result = run_job(
                        project,
                        job,
                        runner=runner,
                        selection=selection,
                        # The profiler stops its clock before the others write.
                        listeners=[profiler, log.listener(job.job), display],
                        commit_listener=listener,
                        stop=stop,
                    )
                if profile:
                    measured, report_s = profiler.profile(), profiler.since_end_s()
                    profiles[job.job] = measured.to_document(report_s)
                    print_profile(out, job.job, measured, report_s)
                return result

            outcomes = for_each_job((job for job in chosen if not stop.is_set()), run_one)
    finally:
        # Who does not wait for Spark's end is told all the same what became of the jobs.
        with suppress(KeyboardInterrupt):
            runner.close()
    results = outcomes.results
    if results:
        whole = [job.job for job in chosen if job.extract.reads_everything]
        out.print(f"Next: {next_step(results, whole)}")
    if note := told():
        out.print(note)
    if log.path is not None:
        out.print(f"Log: {shown_path(log.path)}")
    begun = {job for job, _ in outcomes.ended}
    not_begun = [job.job for job in chosen if job.job not in begun]
    if not_begun:
        out.print(f"Not begun, because the command was interrupted: {', '.join(not_begun)}.")
    code = exit_code(results, ExitCode.INTERRUPTED if not_begun else outcomes.code)
    if output is Output.JSON:
        views = [
            _interrupted(view["job"], _STOPPED) if view["job"] == outcomes.interrupted else view
            for view in outcomes.views(run_view, _ending, **NO_RUN)
        ]
        views += [_interrupted(job, _NOT_BEGUN) for job in not_begun]
        views = [view | log.begun.get(view["job"], {}) for view in views]
        if profile:
            views = [{**view, "profile": profiles.get(view["job"])} for view in views]
        stopped = {"error": error_view(KeyboardInterrupt())} if outcomes.interrupted else {}
        print_json(exit_code=code, log=None if log.path is None else str(log.path), **stopped, jobs=views)
    raise typer.Exit(code)


def _dry_run(project: Project, chosen: list[JobSpec], selection: Selection, out: Console, output: Output) -> int:
    """Print the plans, and return the exit code."""
    with plan_only_spark(project) as spark:
        outcomes = for_each_job(chosen, lambda job: plan_job(project, job, selection, spark))
    for plan in outcomes.results:
        print_plan(out, plan)
    if output is Output.JSON:
        print_json(dry_run=True, exit_code=outcomes.code, jobs=outcomes.views(plan_view, **NO_PLAN))
    return outcomes.code


def _ending(error: BaseException) -> dict[str, Any]:
    """Return how the run of a job ended that an error ended: by its own error, whatever became of the others."""
    code = ExitCode.of_error(error)
    return {"status": code.name.lower(), "exit_code": code}


def _interrupted(job: str, message: str) -> dict[str, Any]:
    """Return the `--output json` entry of a job without a result because the command was interrupted."""
    error = {"code": "interrupted", "message": message}
    return {
        "job": job,
        **NO_RUN,
        "status": RunStatus.INTERRUPTED.value,
        "exit_code": ExitCode.INTERRUPTED,
        "error": error,
    }


def exit_code(results: list[RunResult], raised: int) -> int:
    """Return the exit code of a command over several jobs: partly committed if some jobs succeeded."""
    codes = {int(result.exit_code) for result in results} | ({raised} if raised else set())
    if ExitCode.INTERRUPTED in codes:
        return ExitCode.INTERRUPTED
    if codes <= {ExitCode.SUCCEEDED}:
        return ExitCode.SUCCEEDED
    return ExitCode.PARTIAL if codes & {ExitCode.SUCCEEDED, ExitCode.PARTIAL} else min(codes)


def _crash_listener(crash: str | None) -> CommitListener | None:
    if crash is None:
        return None
    found = re.fullmatch(r"commit:([1-9][0-9]{0,5})", crash)
    if found is None:
        raise UsageError(problem=f"--crash-at takes commit:N with N from 1, got {crash[:40]!r}.")
    return crash_at(int(found[1]))
