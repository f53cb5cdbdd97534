"""Say which branches will not hold each row of a dataset once: new ones, and those that lose rows or get all again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.same_place import is_same_place
from gobblin_dagster.core.traits import PublisherTraits
from gobblin_dagster.core.urn import place_of
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec

_READ_AGAIN = "`gobblin startpoint set` publishes the others too, to all branches."


def with_branch_notes(
    plan: DatasetPlan,
    before: DatasetState | None,
    job: JobSpec,
    traits: Mapping[str, PublisherTraits],
    homes: Mapping[str, Mapping[str, str]],
    base_dir: str = "",
) -> DatasetPlan:
    """Return the plan of a dataset with notes on branches that will not hold each of its rows once.

    They begin now, go on in another place, keep the newest rows alone, or get all again. The first two are told if
    nothing is new, too: a branch that lacks rows is not up to date.

    Args:
        plan: the plan, with the work units that the run would read.
        before: the dataset's state; None if it was never committed.
        job: the job.
        traits: the traits of each branch's publisher.
        homes: what holds the rows of each branch, and where (`Publishers.homes`).
        base_dir: absolute folder that relative ones of these places begin at.
    """
    if plan.problem:
        return plan
    if job.extract.reads_everything:
        return _with_notes(plan, _added_again(traits)) if plan.has_work else plan
    if before is None or not before.totals.branch_rows:
        return plan
    kept = {name: home for name, home in homes.items() if home}
    notes: list[str] = []
    begins_at = before.committed if plan.begin is None else plan.begin
    if any(low != high for parts in begins_at.ranges.values() for low, high in parts):  # else all rows are read
        newer = f"rows {'from the startpoint on' if plan.startpoints else 'that were not read yet'}; {_READ_AGAIN}"
        notes += _begun_now(before, kept, newer)
        notes += _moved(before, kept, newer, base_dir)
    if (
        plan.has_work
        and kept
        and all(traits[name].on_again == "replace" and not _keeps_partitions(job, name) for name in kept)
    ):
        notes.append(
            f"the rows that are new take the place of all that {_branches([*kept])} holds, by its publisher; "
            "`append` would keep both."
        )
    return _with_notes(plan, notes)


def fresh_branches(before: DatasetState, homes: Mapping[str, Mapping[str, str]], base_dir: str = "") -> set[str]:
    """Return the branches that certainly hold no row of a dataset yet.

    They are new, or go on in a table or topic that no branch has had. It is none if that is not known of all branches.

    Args:
        before: the dataset's state.
        homes: as in `with_branch_notes`.
        base_dir: as there.
    """
    ever = {*before.totals.branch_rows} - {QUARANTINE_BRANCH}
    urn = before.dataset_urn
    known = [place_of(urn, place) for places in before.places.values() for place in places]
    if not ever <= before.places.keys() or "" in known:
        return set()

    def is_fresh(name: str, holder: str, place: str) -> bool:
        if holder == "files":  # snapshots name them in whatever folder
            return name not in ever and name not in before.places
        return place != "" and not any(is_same_place(place_of(urn, place), one, base_dir) for one in known)

    return {name for name, home in homes.items() if home and all(is_fresh(name, *one) for one in home.items())}


def _begun_now(before: DatasetState, homes: Mapping[str, Iterable[str]], newer: str) -> list[str]:
    """Tell of branches that lack the rows of earlier commits, as a whole or in one of the kinds of places.

    `newer` says which rows they get.
    """
    was = before.holders or dict.fromkeys(before.totals.branch_rows)
    absent = [name for name in homes if name not in was]
    notes = [
        f"{_branches(names)} had no part in {which}, and gets only {newer}"
        for which, names in (
            ("earlier commits", [name for name in absent if name not in before.totals.branch_rows]),
            ("the last commit", [name for name in absent if name in before.totals.branch_rows]),
        )
        if names
    ]
    for name, home in homes.items():
        held = was.get(name)
        if held is not None and (gained := [holder for holder in home if holder not in held]):
            notes.append(
                f"the rows of branch {name!r} were kept {'in ' + ' and '.join(held) if held else 'nowhere'} until now; "
                f"in {' and '.join(gained)} there will be only {newer}"
            )
    return notes


def _moved(before: DatasetState, homes: Mapping[str, Mapping[str, str]], newer: str, base_dir: str) -> Iterator[str]:
    """Tell of branches that go on in another folder, table or topic of the same kind."""

    def is_same(one: str, other: str) -> bool:
        return is_same_place(place_of(before.dataset_urn, one), place_of(before.dataset_urn, other), base_dir)

    for name, home in homes.items():
        was = dict(zip(before.holders.get(name, ()), before.places.get(name, ()), strict=False))
        for kind, place in reversed([*home.items()]):
            former = was.get(kind)
            if not former or not place or is_same(former, place):
                continue
            lacking = (
                f"its older files stay in {former}, where snapshots name them"
                if kind == "files"
                else f"its older rows are in {former}"
            )
            yield (
                f"branch {name!r} goes on in {place}; {lacking}. Unless somebody has copied them, {place} holds "
                f"only {newer}"
            )
            break  # a table and its files lie in one folder


def _with_notes(plan: DatasetPlan, notes: Sequence[str]) -> DatasetPlan:
    return dataclasses.replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def _added_again(traits: Mapping[str, PublisherTraits]) -> list[str]:
    """Tell of tables and topics that get the rows of each full extract beside those of the last one.

    Not of files: a full extract replaces them unless the job says otherwise, and snapshots tell its extracts apart.
    """
    adds = {name: one.published_elsewhere for name, one in traits.items() if one.on_again == "append"}
    return [
        f"each run reads everything, and adds all rows to {where} again (branch {name!r}); a `mode` of its publisher "
        "that replaces or merges rows would hold each once."
        for name, where in adds.items()
        if where
    ]


def _branches(names: list[str]) -> str:
    return f"branch {', '.join(repr(name) for name in names)}"


def _keeps_partitions(job: JobSpec, branch: str) -> bool:
    """Return whether a branch that replaces rows keeps those of other partitions."""
    found = next(one for one in job.fork.branches if one.name == branch)
    kind = registry.short_name(ConstructKind.PUBLISHER, job.publisher_of(found).type)
    return kind == "replace_partitions" and bool(job.writer_of(found).options.get("partition_by"))
