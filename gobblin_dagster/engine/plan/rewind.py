"""Judge a plan whose startpoints go back into published data: what readers will see, and whether that was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, StartpointError
from gobblin_dagster.core.traits import PublisherTraits
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.plan.branch_notes import fresh_branches
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.spec.job import QUARANTINE_BRANCH
from gobblin_dagster.state.store import StateStore

_APPEND = "append"


def judge_rewind(
    plan: DatasetPlan,
    before: DatasetState | None,
    traits: Mapping[str, PublisherTraits],
    homes: Mapping[str, Mapping[str, str]],
    store: StateStore,
    *,
    base_dir: str = "",
    is_limited: bool = False,
    in_parts: bool = False,
) -> DatasetPlan:
    """Return the plan of a dataset with a note on what readers will see, or with a problem if nobody asked for that.

    Args:
        plan: the plan, with the work units that the run would read.
        before: the dataset's state; None if it was never committed.
        traits: the traits of each branch's publisher.
        homes: what holds the rows of each branch, and where (`Publishers.homes`).
        store: tells which commit published which file.
        base_dir: absolute folder that relative ones of these places begin at.
        is_limited: whether work units are left for later runs (`execution.max_work_units`).
        in_parts: whether rows may be published before others that come before them, or without those behind them, and
            the job has no `extract.delta_fields` to tell which one is newer.
    """
    if before is None or plan.begin is None or plan.problem or not plan.startpoints or not plan.has_work:
        return plan
    again = before.committed.minus(plan.begin)
    try:
        _require_known(plan, before, traits)
        if not again.ranges:
            return plan
        _require_order(plan, traits, in_parts)
        # Rows of a commit that a person abandoned may be where the state knows of none.
        is_abandoned = store.load_sequences(before.job, {SequenceState.ABORTED}, [plan.dataset_urn], limit=1)
        fresh = set() if is_abandoned else fresh_branches(before, homes, base_dir)
        held = {name: one for name, one in traits.items() if name not in fresh}
        return _judged(plan, before, again, held, store, is_limited)
    except (StartpointError, CorruptRecordError) as error:
        return dataclasses.replace(plan, work_units=(), problem=str(error), code=error.code)


def _require_known(plan: DatasetPlan, before: DatasetState, traits: Mapping[str, PublisherTraits]) -> None:
    """Raise StartpointError if rows of a reset dataset are to be replaced: nobody knows which files hold them."""
    if any(before.committed.ranges.values()) or all(one.on_rewind != "replace" for one in plan.startpoints):
        return
    rows = before.totals.branch_rows
    if held := [name for name, one in traits.items() if one.on_again == _APPEND and rows.get(name)]:
        raise _error(
            plan,
            f"the dataset was reset, and its state does not tell any more which rows of branch {held[0]!r} would be "
            "replaced. Set it with --on-rewind append (rows that are there come twice); or set one at the former "
            "watermark, which `gobblin state history` shows, and this one after the next run",
        )


def _require_order(plan: DatasetPlan, traits: Mapping[str, PublisherTraits], in_parts: bool) -> None:
    """Raise StartpointError if older rows could begin versions after newer ones."""
    if in_parts and (name := next((name for name, one in traits.items() if one.on_again == "history"), None)):
        raise _error(
            plan,
            f"branch {name!r} keeps all versions of a row, and this job may publish what it reads again in parts: an "
            "older row would begin a version after a newer one. Set `extract.delta_fields`, or the publisher's "
            "`valid_at`; or take away execution.max_work_units and execution.limit, and set `commit.policy: full`",
        )


def _judged(
    plan: DatasetPlan,
    before: DatasetState,
    again: CommittedRanges,
    traits: Mapping[str, PublisherTraits],
    store: StateStore,
    is_limited: bool,
) -> DatasetPlan:
    wanted = {one.on_rewind for one in plan.startpoints}
    if len(wanted) > 1:
        raise _error(plan, f"several apply, and differ in --on-rewind: {', '.join(sorted(wanted))}; set them alike")
    (how,) = wanted
    appended = [name for name, one in traits.items() if one.on_again == _APPEND]
    branches = ", ".join(repr(name) for name in appended)
    rejected = " Rejected rows of them stay in quarantine, those that are rejected again too."
    rejected = rejected if before.totals.rows_quarantined else ""
    if not appended:
        merged = ", ".join(f"{name!r} by {one.on_again}" for name, one in traits.items())
        why = f": {merged}" if merged else ", because no branch holds them where it goes on"
        return _with_note(plan, f"the rows of {again} are read again, and published without doubles{why}.{rejected}")
    if how == "append":
        return _with_note(plan, f"readers of {branches} see the rows of {again} twice.{rejected}")
    if how == "replace":
        kept = {name: traits[name].published_elsewhere for name in appended if traits[name].published_elsewhere}
        if kept:
            name, where = next(iter(kept.items()))
            raise _error(plan, f"branch {name!r} is published to {where}, whose rows a run cannot replace")
        return _replaced(plan, before, again, set(appended), store, is_limited)
    if how == "upsert":
        raise _error(plan, f"--on-rewind upsert needs outputs that merge rows by a key; {branches} is appended to")
    raise _error(
        plan,
        f"it goes back into published data: readers of {branches} would see the rows of {again} twice. Set it again "
        "with --on-rewind replace (the files that hold them leave the snapshot), append (readers see them twice), or "
        "upsert (for outputs that merge rows by a key)",
    )


def _replaced(
    plan: DatasetPlan,
    before: DatasetState,
    again: CommittedRanges,
    branches: set[str],
    store: StateStore,
    is_limited: bool,
) -> DatasetPlan:
    """Return the plan with the files that its commit takes out of the snapshot."""
    assert plan.begin is not None  # noqa: S101  # nothing goes back without it
    read = plan.begin.add_all((unit.interval for unit in plan.work_units), plan.dataset_urn)
    rest = before.committed.minus(read)
    ends = {name: parts[-1][1] for name, parts in before.committed.ranges.items()}
    is_cut = any(parts[-1][1] == ends[name] for name, parts in rest.ranges.items())
    if (is_limited and rest.ranges) or (is_cut and not before.committed.watermark_type.is_layered):
        raise _error(
            plan,
            f"--on-rewind replace must read all that it replaces, and this run would leave out {rest}; take the limit "
            "of the run away, or choose another way",
        )
    is_whole = not before.committed.minus(again).ranges
    covered = {} if is_whole else dict(_commits(before, store))
    # Rows of theirs that were rejected, too: they are rejected again, and a replay would publish them twice.
    branches = branches | {QUARANTINE_BRANCH}
    files = [one for one in store.load_snapshot(before.job, before.dataset_urn) if one.branch in branches]
    leave = []
    for file in files:
        held = again if is_whole else covered.get(file.snapshot)
        if held is None or not held.ranges:
            raise _error(
                plan,
                f"--on-rewind replace must know what each file holds, and nothing tells it of snapshot {file.snapshot} "
                "(it was compacted, or its history is gone); use `oldest`, after which all files leave",
            )
        outside = held.minus(again)
        if not outside.ranges:
            leave.append(file.path)
        elif outside.ranges != held.ranges:
            raise _error(
                plan,
                f"--on-rewind replace would take only a part of {held} again, which snapshot {file.snapshot} published "
                f"in one file; begin there, or choose another way",
            )
    note = f"the rows of {again} are read again, and {len(leave)} file(s) that hold them leave the snapshot."
    if rest.ranges:
        note += f" The source offers nothing in {rest} now: rows from there are not seen any more."
    return dataclasses.replace(_with_note(plan, note), replaces=tuple(leave))


def _commits(before: DatasetState, store: StateStore) -> Iterator[tuple[int, CommittedRanges]]:
    """Yield the number of each snapshot to which a run added files, and the ranges that these files hold."""
    stored = store.load_sequences(before.job, {SequenceState.COMMITTED}, [before.dataset_urn])
    former = CommittedRanges(before.committed.watermark_type, {})
    for one in sorted(stored, key=lambda sequence: sequence.version_read):
        sequence = decode_sequence(one, store.places)
        committed = sequence.after.committed
        base = former
        if sequence.startpoints and sequence.report.low is not None:
            base = former.up_to(sequence.report.low)
        if sequence.files and sequence.report.change is None:
            yield sequence.after.snapshot, committed.minus(base)
        former = committed


def _with_note(plan: DatasetPlan, note: str) -> DatasetPlan:
    # After the note on where the run begins, which the history leaves out.
    return dataclasses.replace(plan, notes=(*plan.notes[:1], note, *plan.notes[1:]))


def _error(plan: DatasetPlan, problem: str) -> StartpointError:
    return StartpointError(dataset_urn=plan.dataset_urn, startpoint=str(plan.startpoint), problem=problem)
