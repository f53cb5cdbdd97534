"""The job file that an execution carries becomes a JobSpec where the job runs, or where a person works on its state."""

from __future__ import annotations

import os
from pathlib import Path

from gobblin_dagster.engine.allowed import require_allowed
from gobblin_dagster.engine.validation import check_construct, check_parts
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
    job = load_job_text(body.encode(), f"job {name}", check_construct, variables, allow)
    require_allowed(job, str(root), allow)
    check_parts(job, root)
    return job
