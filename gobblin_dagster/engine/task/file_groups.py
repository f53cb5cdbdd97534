"""Group work units of a pack that share files: small ones of one dataset, up to `execution.merge_bytes` of input."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.traits import PublisherTraits, traits_of
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.context import TaskInput
from gobblin_dagster.spec.job import BranchSpec, JobSpec

BYTES_PER_ROW = 100
"""Assumed size of a row if a source announces rows but no bytes."""


def make_groups(tasks: Sequence[TaskInput], spec: JobSpec) -> list[list[TaskInput]]:
    """Cut a pack into groups of work units; a unit of unknown or large size is a group of its own. Deterministic.

    If the job declares task-level policies, nothing is joined, because they check the files of each work unit. If of
    rows with one key the last one counts, only work units that follow each other are joined.

    Source: `MultiWorkUnit` and the merging of small files by `CompactionSource`. Differs: small files are not written
    first.
    """
    most = 0 if _judges_files(spec) else spec.execution.merge_bytes
    groups: list[list[TaskInput]] = []
    open_groups: dict[str, tuple[list[TaskInput], int]] = {}
    is_ordered = len(tasks) > 1 and _last_row_counts(spec)
    for task in sorted(tasks, key=_number) if is_ordered else tasks:
        urn, size = task.unit.dataset_urn, _estimate(task.unit)
        group, filled = open_groups.get(urn, ([], 0))
        is_next = not (is_ordered and group) or _number(task) == _number(group[-1]) + 1
        if size is None or not group or filled + size > most or not is_next:
            group, filled = [], 0
            groups.append(group)
        group.append(task)
        if size is not None:
            open_groups[urn] = (group, filled + size)
    # Ids of more digits sort before those of fewer, so ids are compared only where no order counts.
    return groups if is_ordered else [sorted(group, key=lambda task: task.unit.id) for group in groups]


def _number(task: TaskInput) -> int:
    """Return the place of a work unit in its plan."""
    return int(task.unit.id.rpartition("-")[2])


def _last_row_counts(spec: JobSpec) -> bool:
    """True if a publisher finds the newest row of a key by the order of rows alone."""
    return not spec.extract.delta_fields and any(_replaces_rows(spec, branch) for branch in spec.fork.branches)


def _replaces_rows(spec: JobSpec, branch: BranchSpec) -> bool:
    context = ConstructContext(job=spec.job, base_dir="")
    try:
        publisher = registry.create(ConstructKind.PUBLISHER, spec.publisher_of(branch), context)
    except Exception:  # noqa: BLE001  # one that can be made on the driver alone: order does no harm
        return True
    return traits_of(publisher, PublisherTraits).on_again in {"upsert", "history"}


def _estimate(unit: WorkUnit) -> int | None:
    if unit.size_bytes is not None or unit.rows is None:
        return unit.size_bytes
    return unit.rows * BYTES_PER_ROW


def _judges_files(spec: JobSpec) -> bool:
    return any(spec.task_policies_of(branch) for branch in spec.fork.branches)
