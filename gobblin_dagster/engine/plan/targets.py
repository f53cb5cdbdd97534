"""Find datasets whose names their targets refuse, or take for one name: tables of a database, folders of the output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from gobblin_dagster.core.constructs import JudgesTargets, NamesTargets
from gobblin_dagster.core.errors import InvalidUrnError
from gobblin_dagster.core.storage import FoldingStorage, Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.text import told_apart
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.task.publishers import each_publisher
from gobblin_dagster.spec.job import JobSpec


def unfit_targets(job: JobSpec, context: RunContext, datasets: Collection[str]) -> dict[str, str]:
    """Return, by dataset.urn, why datasets cannot be published: their tables are one, or cannot have such a name.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: a target has to be asked, and cannot be.
        UsageError, InvalidSpecError: as `Registry.create`.
    """
    problems: dict[str, str] = {}
    for branch, publisher in each_publisher(job, context.construct_context(job), NamesTargets | JudgesTargets):
        where = f"branch {branch.name!r}: "
        if isinstance(publisher, NamesTargets):
            for target, sharing in _owners(publisher.targets_of(datasets)):
                why = f"would share the target {target!r} of publisher {job.publisher_of(branch).type!r}"
                problems |= _problems(sharing, where, why)
        if isinstance(publisher, JudgesTargets):
            problems |= {urn: where + why for urn, why in publisher.unfit_targets(datasets).items()}
    return problems


def shared_folders(
    storage: Storage, output_root: str, datasets: Iterable[str], committed: Callable[[], Iterable[str]]
) -> dict[str, str]:
    """Return, by dataset.urn, why datasets cannot be published whose folders are one.

    Args:
        storage: of the output.
        output_root: its root.
        datasets: those that a run may publish.
        committed: asked for all datasets of the job that have a state; only where names that differ in case are one.
    """
    if not isinstance(storage, FoldingStorage) or not storage.folds_case(output_root):
        return {}
    folders = {}
    for urn in {*datasets, *committed()}:
        with suppress(InvalidUrnError):  # it is told with its dataset
            folders[urn] = DatasetUrn(urn).path_segment.casefold()
    why = f"would share a folder: in {output_root} names that differ in case only are one"
    return {urn: problem for _, sharing in _owners(folders) for urn, problem in _problems(sharing, "", why).items()}


def _owners(targets: Mapping[str, str]) -> list[tuple[str, Sequence[str]]]:
    """Return the targets of more than one dataset, with these."""
    owners: dict[str, list[str]] = {}
    for urn, target in targets.items():
        owners.setdefault(target, []).append(urn)
    return [(target, sorted(sharing)) for target, sharing in owners.items() if len(sharing) > 1]


def _problems(sharing: Sequence[str], where: str, why: str) -> dict[str, str]:
    names = ", ".join(told_apart([repr(one) for one in sharing[:3]]))
    what_to_do = "leave out one of them, or rename it where it comes from"
    return dict.fromkeys(sharing, f"{where}datasets {names} {why}; {what_to_do}")
