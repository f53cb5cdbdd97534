"""The rule "all datasets or none" (`commit.scope: job`): which datasets are held back, because of which other.

Each stage of a run calls this module: before it reads (`blocked_by`), after the commits are planned (`hold_back`),
before and while they are published (`with_held_back`). `group.py` commits and recovers the datasets that are published
together.
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
    """True if the datasets of a run are published together or not at all."""
    return job.commit.scope == "job"


def blocked_by(job: JobSpec, results: Iterable[DatasetResult]) -> str:
    """Return which dataset keeps the others from being published, and why; empty if none does.

    Only policy `full` holds datasets back if another one failed before publishing: the other policies publish the
    successful ones.
    """
    if not is_all_or_none(job) or job.commit.policy != "full":
        return ""
    bad = [result for result in results if not result.outcome.is_good]
    if not bad:
        return ""
    why = bad[0].failures[0].message if bad[0].failures else f"it is {bad[0].outcome}."
    return _because(bad[0].dataset_urn, why, len(bad) - 1)


def hold_back(job: JobSpec, decided: Sequence[DatasetCommit]) -> list[DatasetCommit]:
    """Return the commits to publish: none, if the rule applies and any dataset failed."""
    because = blocked_by(job, [one.result for one in decided])
    if not because:
        return list(decided)
    return [one if one.sequence is None else DatasetCommit(held_back(one.result, because)) for one in decided]


def held_back(result: DatasetResult, because: str) -> DatasetResult:
    """Return the result of a dataset that did not fail itself but may not be published alone."""
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
    """True if a dataset failed only because of another one."""
    return bool(result.failures) and all(failure.code == GroupHeldBackError.code for failure in result.failures)


def with_held_back(urns: Iterable[str], errors: Mapping[str, Exception | None]) -> dict[str, Exception | None]:
    """Return an error for each dataset: its own, or one that names the failed dataset that holds it back.

    Args:
        urns: the datasets that are published together.
        errors: by dataset.urn, None if the dataset is fine; at least one is an error, maybe of a dataset not in `urns`.
    """
    (urn, first), *more = [(urn, error) for urn, error in errors.items() if error is not None]
    because = _because(urn, str(first), len(more))
    return {urn: errors.get(urn) or GroupHeldBackError(dataset_urn=urn, because=because) for urn in urns}


def _because(urn: str, why: str, more: int) -> str:
    return f"dataset {urn!r}: {why}" + (f" And {more:,} more." if more else "")
