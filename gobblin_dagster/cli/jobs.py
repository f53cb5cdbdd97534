"""Doing something for several jobs, where the failure of one must not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gobblin_dagster.cli.failure import FAILED, USAGE, report
from gobblin_dagster.core.errors import GobblinDagsterError, SpecError
from gobblin_dagster.spec.job import JobSpec

T = TypeVar("T")


def for_each_job(jobs: Iterable[JobSpec], action: Callable[[JobSpec], T]) -> tuple[list[T], int]:
    """Call `action` for each job; report what a job raises and go on.

    Returns:
        The results, and the worst exit code of the jobs that raised (0 where none did).
    """
    results: list[T] = []
    code = 0
    for job in jobs:
        try:
            results.append(action(job))
        except GobblinDagsterError as error:
            report(error)
            code = USAGE if isinstance(error, SpecError) and code != FAILED else FAILED
    return results, code
