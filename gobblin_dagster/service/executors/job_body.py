"""The job file that an execution carries becomes a JobSpec where the job runs, or where a person works on its state."""

from __future__ import annotations

import os
from pathlib import Path

from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.validation import check_construct, check_parts
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import load_job_text


def read_job_body(name: str, body: str, root: Path, allow: AllowLists) -> JobSpec:
    """Read a job's body as the service stores it.

    Args:
        name: names the job in errors.
        body: the job file as JSON; references are replaced by variables of this process's environment.
        root: the project folder, absolute.
        allow: what the job may touch.

    Raises:
        SpecError: the job has faults, or is not allowed.
    """
    job = load_job_text(body.encode(), f"job {name}", check_construct, os.environ, allow)
    require_allowed(job, str(root), allow)
    check_parts(job, root)
    return job
