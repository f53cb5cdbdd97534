"""`gobblin doctor`: check the machine and the project, with a remedy for each fault."""

from __future__ import annotations

import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from gobblin_dagster.cli.context import Output, OutputOption, examples, open_here, project_root
from gobblin_dagster.cli.render.console import print_status
from gobblin_dagster.cli.render.json_document import print_json
from gobblin_dagster.core.commit import WAITING, StoredSequence
from gobblin_dagster.core.errors import GobblinDagsterError, StorageError, UsageError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.startpoint import ALL_JOBS, DamagedStartpoint
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.store_check import refused_datasets
from gobblin_dagster.engine.spark.java import find_java
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.lookup import damaged_leases
from gobblin_dagster.storage import open_storage

app = typer.Typer(rich_markup_mode=None, add_completion=False)

MIN_PYTHON = (3, 11)
MAX_CLOCK_SKEW_S = 5.0
"""Allowed difference between the clocks of the machine and of the file system; leases on shared folders need both."""
_NO_JOB = ".gobblin-doctor"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    is_good: bool
    detail: str


@app.command(epilog=examples("gobblin doctor", "gobblin -C demo doctor --output json"))
def doctor(ctx: typer.Context, output: OutputOption = Output.TEXT) -> None:
    """Check Java, Spark, folders, state store, clock and service.

    Also whether the state store knows the newest commits of its targets. Exits with 1 if something is missing.
    """
    findings = [_finding(name, check) for name, check in _checks(ctx)]
    is_good = all(finding.is_good for finding in findings)
    if output is Output.JSON:
        print_json(ok=is_good, checks=[{"name": f.name, "ok": f.is_good, "detail": f.detail} for f in findings])
    else:
        for finding in findings:
            print_status(finding.is_good, f"{finding.name:<14} {finding.detail}")
        typer.echo("All is well." if is_good else "Fix what is marked FAULT, then run `gobblin doctor` again.")
    if not is_good:
        raise typer.Exit(ExitCode.FAILED)


def _finding(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except (GobblinDagsterError, OSError) as error:
        return Finding(name, False, hidden(str(error)))


def _checks(ctx: typer.Context) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "Python", _python
    yield "Java", _java
    yield "PySpark", lambda: _package("pyspark")
    yield "Dagster", lambda: _package("dagster")
    try:
        project_root(ctx)
    except UsageError as error:
        if ctx.find_root().params.get("project") is not None:
            yield "project", _raiser(error)
        return  # outside of a project only the machine is checked
    try:
        project = open_here(ctx)
    except GobblinDagsterError as error:
        yield "project", _raiser(error)
        return
    yield "project", lambda: f"{project.root}: {', '.join(job.job for job in project.jobs) or 'no jobs'}"
    yield "state store", lambda: _store(project)
    yield "clock", lambda: _clock(project.root)
    if "service" in project.spec.model_fields_set or (project.root / project.spec.service.templates).is_dir():
        # Projects without a service need none of its modules.
        from gobblin_dagster.cli.service_checks import service_checks  # noqa: PLC0415

        yield from service_checks(project.root, project.spec.service)
    for job in project.jobs:
        yield f"output {job.job}", _output_check(project.output_root(job))
        yield f"state {job.job}", _state_check(project, job)


def _raiser(error: GobblinDagsterError) -> Callable[[], str]:
    def check() -> str:
        raise error

    return check


def _python() -> str:
    if sys.version_info < MIN_PYTHON:
        raise UsageError(problem=f"Python is {platform.python_version()}.", hint="Use Python 3.11 or newer.")
    return f"{platform.python_version()} at {sys.executable}"


def _java() -> str:
    java = find_java()
    return f"{java.version} at {java.path}"


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        raise UsageError(problem=f"{name} is not installed.", hint="Install gobblin-dagster again.") from None


def _store(project: Project) -> str:
    with closing(project.open_store()) as store:
        known = store.list_jobs()
        waiting = store.load_sequences(None, WAITING)
        now = project.clock.now()
        # Written for a job name that is not allowed: a read-only store would otherwise be noticed only when the first
        # run ends.
        probe = RunRecord(f"doctor-{secrets.token_hex(8)}", _NO_JOB, now, RunStatus.SUCCEEDED, now)
        try:
            store.save_run(probe)
            store.prune_runs(_NO_JOB, keep=0)
        except StorageError as error:
            raise UsageError(
                problem=f"The state store {store.url} can be read, but not written: {error.problem}.",
                hint="Let this user write to it: a file and its folder; in PostgreSQL insert, update and delete on "
                "all tables `gobblin_*`, and usage of their sequences.",
            ) from error
    return f"{store.url}: {len(known)} job(s) known; it is writable{_unowned(project, waiting)}"


def _unowned(project: Project, waiting: Sequence[StoredSequence]) -> str:
    """Return, to be added, which commits wait for jobs that the project does not have; no fault: stores are shared."""
    has = {job: project.has(job) for job in {one.job for one in waiting}}
    unowned = [one for one in waiting if not has[one.job]]
    if not unowned:
        return ""
    shown = ", ".join(
        f"{one.id} of dataset {one.dataset_urn!r} of job {one.job!r} ({one.state.value})" for one in unowned[:_SHOWN]
    )
    more = f" and {len(unowned) - _SHOWN} more" if len(unowned) > _SHOWN else ""
    return (
        f"; {count(len(unowned), 'commit')} of jobs that this project does not have wait: {shown}{more}. Another "
        "project that shares the store finishes those of its own jobs; for others bring the job's file back, under its "
        "former name, or give them up (`gobblin commit abandon`)"
    )


def _clock(folder: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".gobblin-doctor-") as file:
        skew = abs(Path(file.name).stat().st_mtime - time.time())
    if skew > MAX_CLOCK_SKEW_S:
        raise UsageError(
            problem=f"This machine's clock and that of {folder} differ by {skew:.0f} s.",
            hint="Synchronize the clocks (NTP): runs on several machines would misjudge each other's leases.",
        )
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}; project folder is writable"


def _output_check(root: str) -> Callable[[], str]:
    def check() -> str:
        if "://" in root:
            folder, remedy = root, "Check the address and who you are there (docs/reference/storages.md)"
        else:
            # The nearest existing folder is checked instead of the output, which the first run makes.
            folder = str(next(path for path in (Path(root), *Path(root).parents) if path.exists()))
            remedy = "Give this user write access"
        _probe(folder, f"{remedy}, or change `output.path`.")
        return f"{root} is writable"

    return check


def _state_check(project: Project, job: JobSpec) -> Callable[[], str]:
    """Return the check whether runs find the records of a job sound, and its state store and targets of one age."""

    def check() -> str:
        with closing(project.open_store()) as store:
            states, damaged = store.load_readable_states(job.job)
            problems = {urn: f"{error} `gobblin state restore` repairs it." for urn, error in damaged.items()}
            problems |= {urn: str(error) for urn, error in damaged_leases(store, job.job).items()}
            startpoints = (one for name in (job.job, ALL_JOBS) for one in store.list_startpoints(name))
            problems |= {one.dataset_urn: str(one.error) for one in startpoints if isinstance(one, DamagedStartpoint)}
            problems |= refused_datasets(JobContext.of(project, job, store))
        if not problems:
            return f"{count(len(states), 'dataset')} published; store and targets agree"
        urn, why = min(problems.items())
        more = f"Datasets with such a problem: {len(problems)}." if len(problems) > 1 else ""
        raise UsageError(problem=f"Dataset {urn!r}: {why}", hint=more)

    return check


def _probe(folder: str, hint: str) -> None:
    """Publish a file to a folder as runs do, and delete it again; raises UsageError."""
    storage, path = open_storage(folder), f"{folder}/.gobblin-doctor-{secrets.token_hex(8)}"
    try:
        storage.put_if_absent(path, b"")
        storage.delete(path)
    except OSError as error:
        raise UsageError(problem=f"Cannot write to {folder}: {error.strerror}.", hint=hint) from error
