"""Which jobs a project has beside its job files: those of the flows of its service."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gobblin_dagster.core.errors import GobblinDagsterError, StorageError
from gobblin_dagster.engine.project import Fits, Project
from gobblin_dagster.spec.project import ProjectSpec

if TYPE_CHECKING:
    from gobblin_dagster.service.executors.flows_around import FlowsAround
    from gobblin_dagster.service.store.store import Transaction

_SQLITE = "sqlite:///"


def service_ran(root: Path, spec: ProjectSpec) -> bool:
    """Tell whether a project has a service that ran: nobody else makes a database for it.

    Raises:
        StorageError: nobody can tell: the folder is closed to this user.
    """
    store = spec.service.store
    if not store.startswith(_SQLITE):
        return True
    file = root / store.removeprefix(_SQLITE)
    try:
        return file.is_file()
    except OSError as error:
        problem = f"{error.strerror}; whoever runs the project must be able to look into that folder"
        raise StorageError(operation="look for the service's database at", path=str(file), problem=problem) from error


def with_flows(project: Project) -> Project:
    """Return the project, which knows the jobs of its service's flows too; as it is if it has no service.

    A flow has the jobs of its newest execution that had jobs: so no template is read, and the project of a worker that
    shares the service's database needs none. If the flow was changed since, its jobs are not known until it runs, but
    for those that publish where they did.
    """
    if service_ran(project.root, project.spec):
        url = project.spec.service.store
    elif project.spec.worker.inlet.type == "store" and project.spec.worker.store:
        url = project.spec.worker.store
    else:
        return project
    return dataclasses.replace(
        project,
        has_elsewhere=lambda job, fits: _has(project, url, job, fits),
        changed_elsewhere=lambda job: _changed_at(project, url, job),
        twin_elsewhere=lambda job, other: _is_twin(project, url, job, other),
    )


def with_order(project: Project, around: FlowsAround | None) -> Project:
    """Return the project of a worker, which knows of the flows what an order says; as it is if that is nothing."""
    if around is None:
        return project

    def has(job: str, fits: Fits) -> bool:
        if around.has(job):
            return True
        if project.has_elsewhere is not None:  # it has a service of its own too
            return project.has_elsewhere(job, fits)
        return _is_in_file(project, job, fits)

    return dataclasses.replace(
        project,
        has_elsewhere=has,
        changed_elsewhere=lambda _: around.changed_at,
        twin_elsewhere=lambda _, other: around.has_twin(other),
        is_as_ordered=True,
    )


def _has(project: Project, url: str, job: str, fits: Fits) -> bool:
    from gobblin_dagster.service.executors.job_body import body_places, read_job_body  # noqa: PLC0415 - as in `_read`
    from gobblin_dagster.service.store.job_rows import find_job_of_flow  # noqa: PLC0415 - as in `_read`
    from gobblin_dagster.service.store.place_rows import places_of  # noqa: PLC0415 - as in `_read`

    if _is_in_file(project, job, fits):
        return True
    with _read(project, url) as transaction:
        found = find_job_of_flow(transaction, job)
        posted = places_of(transaction, job) if found is not None and found.is_changed else ()
    if found is None:
        return False
    if found.is_changed and posted != body_places(job, found.body):  # it may publish elsewhere now
        return fits(None)
    try:
        spec = read_job_body(job, found.body, project.root, project.spec)
    except GobblinDagsterError:  # it needs a variable or a package that only its own executor has
        return True
    return fits(spec)


def _is_in_file(project: Project, job: str, fits: Fits) -> bool:
    """Tell whether a file declares a job, and it fits: a worker's project has no job files loaded."""
    from gobblin_dagster.spec.load import load_jobs  # noqa: PLC0415 - as in `_read`

    root = project.root
    if not (root / project.spec.jobs).is_dir():
        return False
    return any(one.spec.job == job and fits(one.spec) for one in load_jobs(root, project.spec)[0])


def _changed_at(project: Project, url: str, job: str) -> datetime | None:
    from gobblin_dagster.service.store.job_rows import flow_changed_at  # noqa: PLC0415 - as in `_read`

    with _read(project, url) as transaction:
        return flow_changed_at(transaction, job)


def _is_twin(project: Project, url: str, job: str, other: str) -> bool:
    from gobblin_dagster.service.store.place_rows import jobs_beside  # noqa: PLC0415 - as in `_read`

    with _read(project, url) as transaction:
        return jobs_beside(transaction, job).get(other, False)


@contextmanager
def _read(project: Project, url: str) -> Iterator[Transaction]:
    # Asked once in the life of a few jobs: other runs do not load the service.
    from gobblin_dagster.database.engine import parse_url  # noqa: PLC0415 - as said above
    from gobblin_dagster.service.store.store import ServiceStore  # noqa: PLC0415 - as said above

    with ServiceStore(parse_url(url, project.root), project.clock) as store, store.read() as transaction:
        yield transaction
