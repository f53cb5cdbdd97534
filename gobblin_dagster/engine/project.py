"""Project: a folder with `gobblin.yaml` and job files, opened."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import EnvironmentFaultError, SpecError, UsageError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.secrets import known_in, known_values
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.commit.crash_cleanup import tidy_ended
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.validation import (
    check_construct,
    check_parts,
)
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import LoadedJob, load_jobs, load_project, output_root
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.spec.secret_values import Variables
from gobblin_dagster.spec.secrets import named_variables
from gobblin_dagster.state import open_store
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import open_storage

Fits: TypeAlias = Callable[[JobSpec | None], bool]
"""Asks something of a job as it is now; None: it was changed since it ran last, and nobody knows how it is."""


@dataclass(frozen=True, slots=True)
class JobLines:
    """The file of a job, and the lines of its branches."""

    file: Path
    """Absolute path."""
    branches: Mapping[str, int]
    """Line by branch."""


@dataclass(frozen=True, slots=True)
class Project:
    """The jobs of a folder and the settings that they share."""

    root: Path
    """Absolute path; relative paths in job files start here."""
    spec: ProjectSpec
    jobs: tuple[JobSpec, ...] = ()
    clock: Clock = field(default_factory=SystemClock)
    lines: Mapping[str, JobLines] = field(default_factory=dict, kw_only=True)
    """Where jobs stand, by name; jobs that were not loaded from a file are absent."""
    has_elsewhere: Callable[[str, Fits], bool] | None = field(default=None, kw_only=True, compare=False)
    """Tells whether the project has a job that stands in none of `lines`, such as that of a flow of its service, and
    that fits; None: nobody knows of such jobs. Raises TransientError, StorageError."""
    changed_elsewhere: Callable[[str], datetime | None] | None = field(default=None, kw_only=True, compare=False)
    """Tells when the flow of such a job was changed last, or posted again; None: it has no flow. Raises as that."""
    twin_elsewhere: Callable[[str, str], bool] | None = field(default=None, kw_only=True, compare=False)
    """Tells whether two such jobs, the first one's flow being there, publish the same rows. Raises as that."""
    is_as_ordered: bool = field(default=False, kw_only=True, compare=False)
    """Whether all three tell what an order said of the flows of a service elsewhere; messages say so."""

    def has(self, job: str, fits: Fits = lambda _: True) -> bool:
        """Return whether the project has a job of this name now, and it fits; one that cannot be read does."""
        if job in self.lines:
            return all(fits(one) for one in self.jobs if one.job == job)
        return self.has_elsewhere is not None and self.has_elsewhere(job, fits)

    def has_twin(self, job: str, other: str) -> bool:
        """Return whether another job of a flow publishes the same rows as one does, as far as that is known."""
        return self.twin_elsewhere is not None and self.twin_elsewhere(job, other)

    def startpoint_command(self, *, is_of_flow: bool) -> str:
        """Return what sets a startpoint of a job, in the words of messages."""
        if self.is_as_ordered:
            return "a startpoint in the state store of this worker's project"
        return "`gobblin flow startpoint`" if is_of_flow else "`gobblin startpoint set`"

    def open_store(self) -> StateStore:
        """Open the state store; raises StoreVersionError, TransientError, UsageError."""
        return open_store(self.spec.state, self.root, self.clock)

    @contextmanager
    def use_store(self, store: StateStore | None = None) -> Iterator[StateStore]:
        """Yield the given store, which stays open; if none is given, open one and close it at the end.

        A service opens one store and shares it, with its pool of connections, among all its calls. Raises as
        `open_store`.
        """
        if store is not None:
            yield store
            return
        with closing(self.open_store()) as own:
            yield own

    def output_root(self, job: JobSpec) -> str:
        """Return the absolute root of a job's output."""
        return output_root(self.root, job.output.path)

    def storage(self, job: JobSpec) -> Storage:
        """Return the storage that holds a job's output."""
        return open_storage(self.output_root(job), durable=job.commit.durability == "full")

    def run_context(self, job: JobSpec, run_id: str) -> RunContext:
        """Return the settings that a run's tasks receive; they hold the whole job as JSON: make them once per run.

        Raises:
            InvalidSpecError: a file or command of the project's `secrets` that the job needs gives no value.
        """
        job_json = job.model_dump_json()
        where = str(self.root), self.output_root(job)
        found = Variables(os.environ, self.spec.secrets, self.root)
        variables = {name: found[name] for name in named_variables(json.loads(job_json)) if name in self.spec.secrets}
        context = RunContext(
            job_json,
            run_id,
            *where,
            secrets=known_in(job_json),
            allow=self.spec.allow.lists,
            python_path=tuple(sys.path),
            variables=variables,
            hidden_variables=tuple(known_values()),
        )
        context.make_secrets_known()  # another project of this process may have other values of the same names
        return context

    def lease_keeper(self, job: JobSpec, store: StateStore, run_id: str = "") -> LeaseKeeper:
        """Return a keeper of leases for a run (default: a new run id); use it as a context manager."""
        owner = LeaseOwner.current(run_id or new_run_id(self.clock.now()))
        return LeaseKeeper(store, job.job, owner, timedelta(seconds=self.spec.lease_ttl_s))

    def tidy_ended(self, job: JobSpec, store: StateStore) -> None:
        """Clean up after runs of a job that were killed: commands call it before they take over leases.

        Raises TransientError or StorageError if the store cannot be used.
        """
        root, now = self.output_root(job), self.clock.now()
        tidy_ended(job=job.job, store=store, storage=self.storage(job), output_root=root, now=now)

    def job(self, name: str) -> JobSpec:
        """Return a job by name; raises UsageError naming those that exist."""
        for job in self.jobs:
            if job.job == name:
                return job
        known = ", ".join(job.job for job in self.jobs) or "none"
        raise UsageError(problem=f"No job {name!r} in {self.root / self.spec.jobs}.", hint=f"Jobs there: {known}.")


def open_project(root: Path, names: Collection[str] = ()) -> Project:
    """Load a project folder, checking every job file.

    Args:
        root: the folder.
        names: the jobs that will be used; if all of them can be read, errors in other job files are ignored.

    Raises:
        InvalidSpecError: the first faulty file; `gobblin check` shows the errors of all files.
        UsageError: there is no `gobblin.yaml`.
    """
    spec = load_project(root)
    loaded, errors = load_jobs(root, spec, check_construct)
    if errors and not (names and {*names} <= {job.spec.job for job in loaded}):
        raise errors[0]
    for job in loaded:
        if not names or job.spec.job in names:
            _check(job.spec, root, spec)
    return Project(root.resolve(), spec, tuple(job.spec for job in loaded), lines=_lines(loaded))


def open_sound_jobs(root: Path) -> tuple[Project, dict[str, SpecError]]:
    """Load a project folder with those jobs that have no fault; return it, and the errors of the others.

    The errors are keyed by the name of the job where it can be read, else by the name of its file.

    Raises:
        InvalidSpecError, UsageError: `gobblin.yaml` is missing or faulty, or there is no jobs folder.
    """
    spec = load_project(root)
    loaded, unread = load_jobs(root, spec, check_construct)
    errors: dict[str, SpecError] = {Path(error.file).name: error for error in unread}
    sound = []
    for job in loaded:
        try:
            _check(job.spec, root, spec)
            sound.append(job.spec)
        except SpecError as error:
            errors[job.spec.job] = error
    return Project(root.resolve(), spec, tuple(sound), lines=_lines(loaded)), errors


def _lines(loaded: Iterable[LoadedJob]) -> dict[str, JobLines]:
    return {one.spec.job: JobLines(one.path.resolve(), one.lines) for one in loaded}


def _check(job: JobSpec, root: Path, spec: ProjectSpec) -> None:
    require_allowed(job, str(root.resolve()), spec.allow.lists)
    with suppress(EnvironmentFaultError):  # a package is missing: that job alone cannot be planned
        check_parts(job, root)
