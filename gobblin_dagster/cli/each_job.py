"""Call a function for several jobs; the failure of one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gobblin_dagster.cli.answer import error_view
from gobblin_dagster.cli.errors import report
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.spec.job import JobSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobOutcomes(Generic[T]):
    """The outcome of each job that was begun, in the order given; the last one may have been interrupted."""

    ended: tuple[tuple[str, T | Exception | KeyboardInterrupt], ...]
    """(job, its result or its error)."""

    @property
    def results(self) -> list[T]:
        """The results of the jobs without an error."""
        return [result for _, result in self.ended if not isinstance(result, BaseException)]

    @property
    def code(self) -> int:
        """That of an interrupt, else the worst (lowest) exit code of the jobs with an error; 0 if there is none."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        codes = [ExitCode.of_error(error) for _, error in self.ended if isinstance(error, Exception)]
        return min(codes, default=ExitCode.SUCCEEDED)

    @property
    def has_answers(self) -> bool:
        """Whether any job ended well, or none was begun: else the state store itself may be away."""
        return bool(self.results) or not self.ended

    @property
    def interrupted(self) -> str:
        """The job that was stopped at once; empty if none was."""
        return next((job for job, one in self.ended if isinstance(one, KeyboardInterrupt)), "")

    def views(
        self,
        view: Callable[[T], dict[str, Any]],
        ending: Callable[[BaseException], dict[str, Any]] = lambda error: {},
        **missing: Any,
    ) -> list[dict[str, Any]]:
        """Return each job for `--output json`.

        A job with an error has it, and instead of a result `missing` and what `ending` says of the error.
        """
        return [
            {"job": job, **missing, **ending(one), "error": error_view(one)}
            if isinstance(one, BaseException)
            else {"job": job, **view(one), "error": None}
            for job, one in self.ended
        ]


def for_each_job(jobs: Iterable[JobSpec], action: Callable[[JobSpec], T]) -> JobOutcomes[T]:
    """Call `action` for each job; report an error of a job and go on. A KeyboardInterrupt ends the jobs."""
    ended: list[tuple[str, T | Exception | KeyboardInterrupt]] = []
    for job in jobs:
        try:
            ended.append((job.job, action(job)))
        except Exception as error:  # noqa: BLE001 - a job's failure is its own, even if it is a bug
            report(error)
            ended.append((job.job, error))
        except KeyboardInterrupt as error:
            ended.append((job.job, error))
            break
    return JobOutcomes(tuple(ended))
