"""A job's policies as Dagster's asset checks. They were judged before the commit; here it is only reported what they said."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.task_state import PolicyResult
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration._internal import CheckTarget, newest_targets
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.partitions import to_key
from gobblin_dagster.spec.job import BranchSpec, JobSpec, OnViolation, RowPolicySpec

SHOWN = 5
"""Work units whose verdicts a check shows."""


@dataclass(frozen=True, slots=True)
class BranchPolicy:
    """A row-level policy that rows of a branch pass."""

    spec: RowPolicySpec
    counted_as: str
    """Its name in results: those of branches begin with the branch."""

    @property
    def description(self) -> str:
        """What it asks for and what becomes of rows that break it."""
        rule = self.spec.options.get("rule")
        return f"Row-level policy, on violation: {self.spec.on_violation}" + (f"; rule: {rule}" if rule else "")

    @property
    def severity(self) -> dg.AssetCheckSeverity:
        """A warning where rows are set aside, an error where the work unit fails."""
        fails = self.spec.on_violation is OnViolation.FAIL
        return dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN


def row_policies(job: JobSpec, branch: str) -> list[BranchPolicy]:
    """Return the row-level policies that apply to a branch: the job's, then its own."""
    own = [BranchPolicy(policy, f"{branch}.{policy.name}") for policy in _branch(job, branch).row_policies]
    return [*(BranchPolicy(policy, policy.name) for policy in job.row_policies), *own]


def task_policies(job: JobSpec, branch: str) -> list[str]:
    """Return the names of the task-level policies that judge a branch."""
    return list(dict.fromkeys(one.name or one.type for one in job.task_policies_of(_branch(job, branch))))


def check_specs(binding: JobBinding) -> list[dg.AssetCheckSpec]:
    """Return a check for each policy of each branch, where checks are wanted."""
    specs = []
    with warnings.catch_warnings():
        # Checks per partition are in preview: nothing that a user of ours can act on.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        for branch, key in binding.keys.items() if binding.has_checks else ():
            texts = {one.spec.name: one.description for one in row_policies(binding.job, branch)}
            texts |= {_check_name(name): "Task-level policy" for name in task_policies(binding.job, branch)}
            specs += [
                dg.AssetCheckSpec(name, asset=key, description=text, partitions_def=binding.partitions)
                for name, text in texts.items()
            ]
    return specs


def evaluations(
    binding: JobBinding, instance: dg.DagsterInstance, results: Sequence[DatasetResult]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield what the policies said of datasets, branch by branch; those that were not asked are left out.

    Each names the newest materialization of its partition, so that must be logged before: else Dagster takes what a check
    said for outdated, and shows nothing. A dataset that failed is judged where it stands.
    """
    for branch, key in binding.keys.items() if binding.has_checks else ():
        if row_policies(binding.job, branch) or task_policies(binding.job, branch):
            judged = [one for one in results if one.outcome is DatasetOutcome.COMMITTED or one.policies]
            targets = newest_targets(instance, key, (to_key(result.dataset_urn) for result in judged))
            for result in judged:
                target = targets.get(to_key(result.dataset_urn))
                # Broken rows are counted in what is published: of a dataset that is not, nothing is known.
                if result.outcome is DatasetOutcome.COMMITTED:
                    yield from _row_evaluations(binding, branch, result, target)
                yield from _task_evaluations(binding, branch, result, target)


def _row_evaluations(
    binding: JobBinding, branch: str, result: DatasetResult, target: CheckTarget | None
) -> Iterator[dg.AssetCheckEvaluation]:
    for policy in row_policies(binding.job, branch):
        broken = result.rejected.get(policy.counted_as, 0)
        yield dg.AssetCheckEvaluation(
            asset_key=binding.keys[branch],
            check_name=policy.spec.name,
            passed=broken == 0,
            partition=to_key(result.dataset_urn),
            target_materialization_data=target,
            severity=policy.severity,
            metadata={md.ROWS_FAILED: broken},
        )


def _task_evaluations(
    binding: JobBinding, branch: str, result: DatasetResult, target: CheckTarget | None
) -> Iterator[dg.AssetCheckEvaluation]:
    for name in task_policies(binding.job, branch):
        said = [one for one in result.policies if (one.policy, one.branch) == (name, branch)]
        if said:
            bad = [one for one in said if one.result is PolicyResult.FAILED]
            yield dg.AssetCheckEvaluation(
                asset_key=binding.keys[branch],
                check_name=_check_name(name),
                passed=not bad,
                partition=to_key(result.dataset_urn),
                target_materialization_data=target,
                severity=dg.AssetCheckSeverity.ERROR if said[0].enforced else dg.AssetCheckSeverity.WARN,
                metadata={md.DETAIL: "; ".join(dict.fromkeys(one.detail for one in (bad or said)[:SHOWN]))},
            )


def _branch(job: JobSpec, name: str) -> BranchSpec:
    return next(branch for branch in job.fork.branches if branch.name == name)


def _check_name(policy: str) -> str:
    """Return a policy's name as Dagster takes it: a type like `module:Class` holds characters that it does not."""
    return "".join(char if char.isalnum() or char == "_" else "_" for char in policy)
