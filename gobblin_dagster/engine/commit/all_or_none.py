"""The rule "all datasets or none" (`commit.scope: job`): which datasets of a run are held back, and because of which.

Each stage of a run asks here: before it reads (`blocked_by`), after the commits are decided (`hold_back`), before and
while they are published (`with_held_back`). `group.py` commits and recovers the datasets that are published together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from gobblin_dagster.core.errors import GroupHeldBackError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.results import DatasetCommit, DatasetResult
from gobblin_dagster.spec.job import JobSpec


def is_all_or_none(job: JobSpec) -> bool:
    """Tell whether the datasets of a run are published together or not at all."""
    return job.commit.scope == "job"


def blocked_by(job: JobSpec, results: Iterable[DatasetResult]) -> str:
    """Say which dataset keeps the others from being published; empty if none does.

    Only policy `full` holds datasets back for one that failed before publishing: the other policies publish what succeeded.
    """
    if not is_all_or_none(job) or job.commit.policy != "full":
        return ""
    bad = [result for result in results if not result.outcome.is_good]
    if not bad:
        return ""
    why = bad[0].failures[0].message if bad[0].failures else f"it is {bad[0].outcome}."
    return _because(bad[0].dataset_urn, why, len(bad) - 1)


def hold_back(job: JobSpec, decided: Sequence[DatasetCommit]) -> list[DatasetCommit]:
    """Return what is left to publish: nothing, if the rule holds and any dataset failed."""
    because = blocked_by(job, [one.result for one in decided])
    if not because:
        return list(decided)
    return [one if one.sequence is None else DatasetCommit(held_back(one.result, because)) for one in decided]


def held_back(result: DatasetResult, because: str) -> DatasetResult:
    """Return the result of a dataset that has no fault of its own and may not be published alone."""
    error = GroupHeldBackError(dataset_urn=result.dataset_urn, because=because)
    return dataclasses.replace(
        result,
        outcome=DatasetOutcome.FAILED,
        actual_high=result.low,
        snapshot=0,
        sequence_id="",
        failures=(*result.failures, describe_failure(error)),
    )


def is_held_back(result: DatasetResult) -> bool:
    """Tell whether a dataset failed for nothing but another one."""
    return bool(result.failures) and all(failure.code == GroupHeldBackError.code for failure in result.failures)


def with_held_back(urns: Iterable[str], errors: Mapping[str, Exception | None]) -> dict[str, Exception | None]:
    """Return an error for each dataset: its own, or the one that holds it back because of another dataset's.

    Args:
        urns: the datasets that are published together.
        errors: by dataset.urn, None if all is well; at least one is an error, maybe of a dataset not in `urns`.
    """
    (urn, first), *more = [(urn, error) for urn, error in errors.items() if error is not None]
    because = _because(urn, str(first), len(more))
    return {urn: errors.get(urn) or GroupHeldBackError(dataset_urn=urn, because=because) for urn in urns}


def _because(urn: str, why: str, more: int) -> str:
    return f"dataset {urn!r}: {why}" + (f" And {more:,} more." if more else "")
