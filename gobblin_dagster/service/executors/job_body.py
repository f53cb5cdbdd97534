"""The job file that an execution carries becomes a JobSpec where the job runs, or where a person works on its state.

For executors that take Gobblin's own job specs it carries the keys of a Gobblin job, `{"gobblin": {...}}`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gobblin_dagster.core.errors import GobblinDagsterError, InvalidSpecError
from gobblin_dagster.core.same_place import each_server
from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.publishers import declared_places
from gobblin_dagster.engine.validation import check_construct, check_parts
from gobblin_dagster.service.catalog.templates import keys_of_body
from gobblin_dagster.service.executors.flows_around import split_body
from gobblin_dagster.service.model import DagJob
from gobblin_dagster.service.store.place_rows import Target
from gobblin_dagster.service.topology.capabilities import NO_NEEDS, Needs, job_needs
from gobblin_dagster.spec.document import read_document
from gobblin_dagster.spec.gobblin.document import to_yaml
from gobblin_dagster.spec.gobblin.template import job_of_keys
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import load_job_text
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.spec.secret_values import Variables


def read_job_body(name: str, body: str, root: Path, project: ProjectSpec) -> JobSpec:
    """Read a job's body as the service stores it.

    Args:
        name: names the job in errors.
        body: the job file as JSON; references are replaced by variables of this process's environment, or by what
            `secrets` of the project finds.
        root: the project folder, absolute.
        project: the settings in it; they say what the job may touch.

    Raises:
        SpecError: the job has faults, or is not allowed.
    """
    allow, variables = project.allow.lists, Variables(os.environ, project.secrets, root)
    body, _ = split_body(body)
    keys = keys_of_body(body)
    text = body if keys is None else _job_of_keys(name, keys)
    job = load_job_text(text.encode(), f"job {name}", check_construct, variables, allow)
    require_allowed(job, str(root), allow)
    check_parts(job, root)
    return job


def body_needs(name: str, body: str) -> Needs:
    """Return what a worker needs to run a body; nothing if it has faults, which the worker that runs it tells.

    Args:
        name: names the job.
        body: as `read_job_body` takes it.
    """
    job = _as_written(name, split_body(body)[0])
    return NO_NEEDS if job is None else job_needs(job)


def body_places(name: str, body: str) -> frozenset[str]:
    """Return where the rows of a body go, as digests: two jobs that publish to one place have one in common.

    A body is taken as its flow made it: values of variables are known to its executor alone. So bodies that publish to
    one place by different words have none in common.
    """
    document = _as_written(name, body)
    return frozenset() if document is None else _places(document)


def job_target(job: DagJob) -> Target:
    """Return where a job of a flow publishes, as `body_places`, and what.

    Two jobs publish the same rows if they have the same source, steps and executor: variables have other values at
    another one.
    """
    document = _as_written(job.name, job.body)
    if document is None:
        return Target()
    made_of = [job.executor, *(document.get(part) for part in _OF_ROWS)]
    return Target(_places(document), _digest(json.dumps(made_of, sort_keys=True)))


def _places(document: Mapping[str, Any]) -> frozenset[str]:
    try:
        places = declared_places(JobSpec.model_validate(document))
    except (AttributeError, LookupError, TypeError, ValueError):
        # A reference stands where a number must, or in the path of a branch: only the executor can read the job.
        places = [json.dumps({part: document.get(part) for part in _OF_PLACES}, sort_keys=True)]
    each = {server for place in places for server in each_server(place)}
    return frozenset(map(_digest, each))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


_OF_ROWS = ("source", "extract", "converters", "row_policies", "fork")
_OF_PLACES = ("extract", "fork", "publisher", "output")
_DIGITS = 24


def _as_written(name: str, body: str) -> dict[str, Any] | None:
    """Return the job file that a body holds, or stands for, with its references; None if it has faults."""
    keys = keys_of_body(body)
    try:
        job = json.loads(body) if keys is None else read_document(_job_of_keys(name, keys).encode(), None).data
    except (GobblinDagsterError, ValueError, RecursionError):  # the last: too deep
        return None
    return job if isinstance(job, dict) else None


_OF_THE_SERVICE = ("flow.", "job.name", "job.group", "job.schedule", "job.current", "gobblin.flow.", "gobblin.service.")
"""What begins so tells of the execution, not of the job."""


def _job_of_keys(name: str, keys: Mapping[str, str]) -> str:
    own = {key: text for key, text in keys.items() if not key.startswith(_OF_THE_SERVICE)}
    job = job_of_keys(own, f"job {name}")
    if job.faults:
        raise InvalidSpecError(file=f"job {name}", faults=tuple(job.faults))
    return to_yaml({**job.data, "job": name})
