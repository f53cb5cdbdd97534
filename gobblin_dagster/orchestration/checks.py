"""Report a job's policies as Dagster's asset checks. The engine has applied them before the commit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.task_state import PolicyResult
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration._internal import newest_targets
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.partitions import to_key
from gobblin_dagster.spec.job import BranchSpec, JobSpec, OnViolation, RowPolicySpec

SHOWN = 5
"""Number of work units whose details a check shows."""


@dataclass(frozen=True, slots=True)
class BranchPolicy:
    """A row-level policy that applies to a branch, from the job or from the branch itself."""

    spec: RowPolicySpec
    counted_as: str
    """Its name in the counts of results; for a policy of a branch it is `branch.name`."""

    @property
    def description(self) -> str:
        """Its rule, and what happens to rows that break it."""
        rule = self.spec.options.get("rule")
        text = f"Row-level policy, on violation: {self.spec.on_violation}" + (f"; rule: {rule}" if rule else "")
        return hidden(text)

    @property
    def severity(self) -> dg.AssetCheckSeverity:
        """WARN if rows are dropped or quarantined, ERROR if the work unit fails."""
        fails = self.spec.on_violation is OnViolation.FAIL
        return dg.AssetCheckSeverity.ERROR if fails else dg.AssetCheckSeverity.WARN


def row_policies(job: JobSpec, branch: str) -> list[BranchPolicy]:
    """Return the row-level policies that apply to a branch: the job's, then its own."""
    own = [BranchPolicy(policy, f"{branch}.{policy.name}") for policy in _branch(job, branch).row_policies]
    return [*(BranchPolicy(policy, policy.name) for policy in job.row_policies), *own]


def task_policies(job: JobSpec, branch: str) -> list[str]:
    """Return the names of the task-level policies that apply to a branch."""
    return list(dict.fromkeys(one.name or one.type for one in job.task_policies_of(_branch(job, branch))))


def check_specs(binding: JobBinding) -> list[dg.AssetCheckSpec]:
    """Return a check for each policy of each branch; empty if the binding has no checks."""
    specs = []
    with warnings.catch_warnings():
        # Checks per partition are in preview; our users cannot do anything about the warning.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        for branch, key in binding.keys.items() if binding.checks else ():
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
    """Yield the check evaluations of datasets, branch by branch; policies that were not applied are left out.

    Log materializations before calling it: an evaluation refers to the newest materialization of its partition, and
    Dagster does not show it if there is a newer one. Evaluations of a failed dataset refer to its last successful
    commit.
    """
    for branch, key in binding.keys.items() if binding.checks else ():
        judged = [
            (to_key(result.dataset_urn), one) for result in results for one in _judgements(binding, branch, result)
        ]
        told = [(partition, one) for partition, one in judged if not (binding.checks == "failures" and one.passed)]
        targets = newest_targets(instance, key, {partition for partition, _ in told})
        for partition, one in told:
            yield dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=one.check,
                passed=one.passed,
                partition=partition,
                target_materialization_data=targets.get(partition),
                severity=one.severity,
                description=one.description,
                metadata=one.metadata,
            )


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What one policy said of one branch of one dataset."""

    check: str
    passed: bool
    severity: dg.AssetCheckSeverity
    description: str
    metadata: Mapping[str, int | str]


def _judgements(binding: JobBinding, branch: str, result: DatasetResult) -> Iterator[_Judgement]:
    if result.outcome is DatasetOutcome.COMMITTED:  # counts of rejected rows are known only for committed datasets
        for policy in row_policies(binding.job, branch):
            broken = result.rejected.get(policy.counted_as, 0)
            text = f"{result.dataset_urn}: {broken} rows broke {policy.spec.name}"
            yield _Judgement(policy.spec.name, broken == 0, policy.severity, text, {md.ROWS_FAILED: broken})
    for name in task_policies(binding.job, branch) if result.policies else ():
        said = [one for one in result.policies if (one.policy, one.branch) == (name, branch)]
        if said:
            bad = [one for one in said if one.result is PolicyResult.FAILED]
            detail = "; ".join(dict.fromkeys(one.detail for one in (bad or said)[:SHOWN]))
            severity = dg.AssetCheckSeverity.ERROR if said[0].enforced else dg.AssetCheckSeverity.WARN
            text = f"{result.dataset_urn}: {detail}"
            yield _Judgement(_check_name(name), not bad, severity, text, {md.DETAIL: detail})


def _branch(job: JobSpec, name: str) -> BranchSpec:
    return next(branch for branch in job.fork.branches if branch.name == name)


def _check_name(policy: str) -> str:
    """Return a policy's name with `_` for characters that Dagster does not allow, such as in `module:Class`."""
    return "".join(char if char.isalnum() or char == "_" else "_" for char in policy)
