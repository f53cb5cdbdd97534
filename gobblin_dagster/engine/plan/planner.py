"""Plan a run: job spec + source + stored states -> JobPlan. Reads metadata only; needs no Spark and changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import WAITING, SequenceState
from gobblin_dagster.core.constructs import DatasetOffer, Source, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    InvalidUrnError,
    QuarantinedError,
    SourceError,
    StartpointError,
    UsageError,
)
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import DamagedLease, Lease
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.gc_pause import collector_paused
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.plan.branch_notes import with_branch_notes
from gobblin_dagster.engine.plan.commit_preview import branch_names, commit_outline
from gobblin_dagster.engine.plan.cost import with_costs
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, Leftover, left_out
from gobblin_dagster.engine.plan.other_names import with_name_notes
from gobblin_dagster.engine.plan.packing import pack_units
from gobblin_dagster.engine.plan.rewind import judge_rewind
from gobblin_dagster.engine.plan.source_identity import source_identity
from gobblin_dagster.engine.plan.startpoints import Start, find_starts, moved_states, other_place
from gobblin_dagster.engine.publishers import inferred_widenings, may_be_open, publisher_traits
from gobblin_dagster.engine.validation import starts_over
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore

_NO_START = Start()
_ABSENT = "the source does not have the dataset now"
_NEVER = datetime.min.replace(tzinfo=UTC)
_RUNS_LOOKED_AT = 1000
"""The number of runs that a project keeps by default; the records of bounded runs are short."""


@collector_paused()
def make_plan(
    spec: JobSpec,
    source: Source,
    store: StateStore,
    *,
    run_id: str,
    selection: Selection,
    clock: Clock,
    packs: int,
    on_work: Callable[[], None] | None = None,
    startpoints: Mapping[str, Startpoint] | None = None,
    unfit: Callable[[Sequence[DatasetPlan]], Mapping[str, str]] | None = None,
    lost: Callable[[Sequence[DatasetPlan], Mapping[str, DatasetState]], Mapping[str, str]] | None = None,
    homes: Callable[[str], Mapping[str, Mapping[str, str]]] | None = None,
    base_dir: str = "",
) -> JobPlan:
    """Plan one run of a job.

    Args:
        spec: the job.
        source: the job's source.
        store: gives the states, sequences, startpoints and run records.
        run_id: id of the run.
        selection: the datasets to plan.
        clock: gives the time to the source. Startpoints expire by the clock of the store.
        packs: number of packs, unless the job sets `execution.packs`.
        on_work: called once, while planning goes on, as soon as the first work unit is found of a dataset that no
            other run holds.
        startpoints: by dataset.urn, used beside the stored startpoints, and instead of the stored one of its key.
        unfit: takes all datasets and returns, by urn, why one cannot be read or published; it fails before it is
            read.
        lost: takes all datasets and the states, and returns, by urn, why a dataset must not go on from its state; it
            fails, also if it has nothing new.
        homes: takes a dataset and returns what holds the rows of each branch, and where (`Publishers.homes`).
        base_dir: absolute folder that relative ones of these places begin at.

    Raises:
        SourceError: the source as a whole cannot be listed. An error of a single dataset is put into its `problem`.
        UsageError: globs were given that select no dataset.
    """
    states, damaged = store.load_readable_states(spec.job, selection.urns)
    leftovers = _leftovers(spec.job, store, selection)
    quarantined = {one.dataset_urn: one for one in leftovers if one.state == SequenceState.QUARANTINED}
    offered: dict[str, None] = {}

    def is_selected(urn: str) -> bool:
        offered[urn] = None
        return selection.matches(urn)

    context = SourceContext(
        extract=spec.to_extract(),
        states=states,
        is_selected=is_selected,
        clock=clock,
        previous_runs=cache(lambda: store.load_runs(spec.job)),
        publishes_parts=spec.commit.policy != "full",
        widens=inferred_widenings(spec),
        may_be_open=may_be_open(spec),
    )
    for_all: Collection[str] = ()
    if starts_over(spec, source):
        starts = {urn: Start(begin=CommittedRanges(s.committed.watermark_type, {})) for urn, s in states.items()}
    else:
        identity = source_identity(spec, type(source))
        found, for_all = StartpointManager(store).applicable(spec.job, identity, states, selection.urns)
        for urn, wish in (startpoints or {}).items():
            others = (one for one in found.get(urn, ()) if (one.key, one.is_copy) != (wish.key, wish.is_copy))
            found[urn] = [*others, wish]
        starts = find_starts(spec.job, source, context, found, store.now() if found else clock.now())
    moved = moved_states(spec.job, _as_planned(states), starts, clock.now())
    offers = source.plan(dataclasses.replace(context, states=moved))
    readable = {urn: start for urn, start in starts.items() if urn not in damaged}
    sound = _dataset_plans(offers, states, quarantined, readable, for_all)
    # Asked only if there is work, because a store of plain files reads a file for each dataset.
    leases = cache(lambda: store.load_leases(spec.job))
    ours = (_without_damaged_lease(one, leases) for one in _without_damaged(sound, damaged))

    def is_held(urn: str) -> bool:
        lease = leases().get(urn)
        return lease is not None and lease.owner.run_id != run_id and lease.is_held(clock.now())

    datasets = tuple(_number_units(ours, on_work, is_held))
    if unfit is not None and (problems := unfit(datasets)):
        datasets = tuple(_refused(dataset, problems.get(dataset.dataset_urn, "")) for dataset in datasets)
    if lost is not None and (problems := lost(datasets, states)):
        datasets = tuple(
            left_out(one, why) if (why := problems.get(one.dataset_urn)) and not one.problem else one
            for one in datasets
        )
    most = spec.execution.max_work_units
    found_units = {dataset.dataset_urn: len(dataset.work_units) for dataset in datasets}
    if most is not None and sum(len(dataset.work_units) for dataset in datasets) > most:
        moved_at = {urn: state.updated_at for urn, state in states.items()}
        datasets = limit_units(datasets, most, store.load_runs(spec.job, _RUNS_LOOKED_AT), moved_at)
    is_full = spec.extract.reads_everything
    going_on = [
        one.dataset_urn
        for one in datasets
        if one.startpoints or one.dataset_urn in states or (one.has_work and is_full)
    ]
    traits = publisher_traits(spec, going_on[0]) if going_on else {}
    kept_in = homes(going_on[0]) if going_on and homes is not None else {}
    if any(dataset.startpoints for dataset in datasets):
        in_parts = spec.keeps_parts or spec.commit.policy != "full"
        limited = {one.dataset_urn: len(one.work_units) < found_units[one.dataset_urn] for one in datasets}
        datasets = tuple(
            judge_rewind(
                one,
                states.get(one.dataset_urn),
                traits,
                kept_in,
                store,
                base_dir=base_dir,
                is_limited=limited[one.dataset_urn],
                in_parts=(in_parts or limited[one.dataset_urn]) and not spec.extract.delta_fields,
            )
            for one in datasets
        )
    datasets = tuple(
        with_branch_notes(one, states.get(one.dataset_urn), spec, traits, kept_in, base_dir) for one in datasets
    )
    if selection == Selection() and not is_full:
        datasets = with_name_notes(datasets, states)
    datasets = with_costs(datasets, states)
    if (selection.select or selection.exclude) and not datasets:
        raise UsageError(
            problem=f"No dataset of job {spec.job!r} is selected: {selection.why_empty(offered)}.",
            hint="`gobblin plan` lists the datasets.",
        )
    units = [unit for dataset in datasets for unit in dataset.work_units]
    return JobPlan(
        job=spec.job,
        run_id=run_id,
        datasets=datasets,
        packs=tuple(
            tuple(unit.id for unit in pack.work_units)
            for pack in pack_units(units, spec.execution.packs or packs, spec.execution.packing)
        ),
        leftovers=leftovers,
        branches=branch_names(spec),
        scope=spec.commit.scope,
        commit_steps=commit_outline(spec),
    )


def _refused(dataset: DatasetPlan, problem: str) -> DatasetPlan:
    if not problem or not dataset.is_moving:
        return dataset
    problem = f"Dataset {dataset.dataset_urn!r}, {problem}."
    return dataclasses.replace(dataset, problem=problem, code=UsageError.code, work_units=())


def _as_planned(states: Mapping[str, DatasetState]) -> dict[str, DatasetState]:
    """Return the states as sources see them: ranges that were given up count as read, so they are no gaps."""
    return {
        urn: state if state.given_up is None else dataclasses.replace(state, committed=state.settled, given_up=None)
        for urn, state in states.items()
    }


def limit_units(
    datasets: Sequence[DatasetPlan], most: int, runs: Sequence[RunRecord], moved_at: Mapping[str, datetime]
) -> tuple[DatasetPlan, ...]:
    """Keep the first work units of each dataset, `most` in all, shared out evenly.

    A unit that is left out was not committed, so the next run plans it again; the dataset's notes say how many were
    left out. If there is room for fewer units than datasets, take the datasets that have waited longest: first by
    `runs` (newest first), then by the last commit (`moved_at`). So no dataset waits for ever behind others.
    """
    turns: dict[str, int] = {}
    for age, run in enumerate(runs):
        for urn in run.datasets:
            turns.setdefault(urn, age)

    def turn(number: int) -> tuple[int, datetime]:
        urn = datasets[number].dataset_urn
        return -turns.get(urn, len(runs)), moved_at.get(urn, _NEVER)

    by_turn = sorted(range(len(datasets)), key=turn)
    kept = dict.fromkeys(by_turn, 0)
    left = most
    while left and (waiting := [n for n in kept if kept[n] < len(datasets[n].work_units)]):
        for number in waiting[:left]:
            kept[number] += 1
        left -= len(waiting[:left])
    return tuple(_first_units(dataset, kept[number]) for number, dataset in enumerate(datasets))


def _first_units(dataset: DatasetPlan, count: int) -> DatasetPlan:
    left_out = len(dataset.work_units) - count
    if not left_out:
        return dataset
    units = dataset.work_units[:count]
    note = f"{left_out} of {len(dataset.work_units)} work units are left for a later run (`execution.max_work_units`)."
    notes = (*dataset.notes, note)
    if not units:
        # Its startpoints wait for their turn, too: nobody has judged yet whether they may go back.
        return dataclasses.replace(dataset, work_units=(), expected_high=dataset.low, notes=notes, begin=None)
    return dataclasses.replace(dataset, work_units=units, expected_high=units[-1].expected_high, notes=notes)


def _leftovers(job: str, store: StateStore, selection: Selection) -> tuple[Leftover, ...]:
    waiting = store.load_sequences(job, states=WAITING)
    return tuple(
        Leftover(sequence.id, sequence.dataset_urn, sequence.state, sequence.reason)
        for sequence in waiting
        if selection.matches(sequence.dataset_urn)
    )


def _dataset_plans(
    offers: Iterator[DatasetOffer],
    states: Mapping[str, DatasetState],
    quarantined: Mapping[str, Leftover],
    starts: Mapping[str, Start],
    for_all: Collection[str],
) -> Iterator[DatasetPlan]:
    unseen = dict(starts)
    for offer in offers:
        urn = offer.dataset_urn
        unseen.pop(urn, None)
        state, leftover, start = states.get(urn), quarantined.get(urn), starts.get(urn, _NO_START)
        problem, code = _problem(offer, start)
        low, high, units, notes = offer.low, offer.expected_high, offer.work_units, offer.notes
        if offer.is_absent and start.startpoints:
            start = start.without_dataset(_ABSENT)
            low = high = state.watermark if state is not None else None
            notes = ()  # they are about the position of the startpoint, which is not applied
        if leftover is not None:
            error = QuarantinedError(dataset_urn=urn, sequence_id=leftover.sequence_id, reason=leftover.reason)
            problem, code = str(error), error.code
        yield DatasetPlan(
            dataset_urn=urn,
            commit_id=new_commit_id(),
            version_read=state.version if state else 0,
            low=low,
            expected_high=high,
            work_units=() if problem else tuple(_bounded(units, start.only)),
            notes=(*start.notes, *notes),
            problem=problem,
            code=code,
            quarantined=leftover is not None,
            previous_schemas=state.schemas if state else {},
            startpoints=tuple(_with_origin(one, offer.origin) for one in start.startpoints),
            applied_startpoints=_applied(start.startpoints, state, for_all),
            # A full extract of nothing changes neither the published data nor the ranges that count as read.
            begin=start.begin if start.startpoints or offer.work_units else None,
            expired=start.expired,
            origin=offer.origin,
            inferred=offer.inferred,
            type_notes=tuple(offer.type_notes),
        )
    for urn, start in unseen.items():
        state = states.get(urn)
        mark, version = (state.watermark, state.version) if state else (None, 0)
        if start.is_of_others and urn not in states:
            continue
        left = start.without_dataset(start.problem or _ABSENT)
        yield DatasetPlan(
            urn, new_commit_id(), version, low=mark, expected_high=mark, notes=left.told, expired=left.expired
        )


def _with_origin(startpoint: Startpoint, origin: Mapping[str, str]) -> Startpoint:
    """Return a startpoint with the ids of what its position lies in, if it has one by now."""
    if startpoint.origin or (startpoint.pinned is None and not startpoint.is_specific):
        return startpoint
    return dataclasses.replace(startpoint, origin=origin)


def _bounded(units: Sequence[WorkUnit], only: CommittedRanges | None) -> Iterator[WorkUnit]:
    """Yield the work units that lie in the bounds of a re-read; all if it has no bounds.

    Sources with sets of files read new files together with others, so these have no bounds.
    """
    for unit in units:
        positions = CommittedRanges(type(unit.low), {}).add(unit.interval)
        if only is None or only.watermark_type.is_layered or not positions.minus(only).ranges:
            yield unit


def _applied(
    startpoints: Sequence[Startpoint], state: DatasetState | None, for_all: Collection[str]
) -> tuple[str, ...]:
    """Return the ids of stored startpoints for all jobs that the job has applied after a commit."""
    before = [one for one in state.applied_startpoints if one in for_all] if state is not None else ()
    return tuple(dict.fromkeys((*before, *(one.id for one in startpoints if one.is_copy))))


def _without_damaged(
    datasets: Iterator[DatasetPlan], damaged: Mapping[str, CorruptRecordError]
) -> Iterator[DatasetPlan]:
    """Replace the plan of a dataset with an unreadable state by a problem: the source planned it as never read."""
    for dataset in datasets:
        error = damaged.get(dataset.dataset_urn)
        if error is None:
            yield dataset
            continue
        hint = (
            "`gobblin state restore` brings back the state of its last commit, "
            "`gobblin state reset` lets it begin again from nothing."
        )
        yield _quarantined(dataset, error, f"{error} {hint}")


def _without_damaged_lease(dataset: DatasetPlan, leases: Callable[[], Mapping[str, Lease]]) -> DatasetPlan:
    lease = leases().get(dataset.dataset_urn) if dataset.is_moving else None
    return _quarantined(dataset, lease.error, str(lease.error)) if isinstance(lease, DamagedLease) else dataset


def _quarantined(dataset: DatasetPlan, error: CorruptRecordError, problem: str) -> DatasetPlan:
    return DatasetPlan(
        dataset.dataset_urn,
        dataset.commit_id,
        version_read=0,
        low=None,
        expected_high=None,
        problem=problem,
        code=error.code,
        quarantined=True,
    )


def _problem(offer: DatasetOffer, start: Start) -> tuple[str, str]:
    """Return why a dataset cannot be planned and the code of the error; the reason is empty if it can be planned."""
    if not offer.problem and start.problem:
        return start.problem, StartpointError.code
    if not offer.problem and (moved := list(filter(None, (other_place(s, offer.origin) for s in start.startpoints)))):
        return moved[0], StartpointError.code
    if not offer.problem and offer.work_units:
        try:  # before a state store is asked for the urn: a store may cut a bad urn, or refuse the whole run
            DatasetUrn(offer.dataset_urn)
        except InvalidUrnError as error:
            return str(error), error.code
    return offer.problem, SourceError.code


def _number_units(
    datasets: Iterator[DatasetPlan], on_work: Callable[[], None] | None, is_held: Callable[[str], bool]
) -> Iterator[DatasetPlan]:
    """Give each work unit an id that is unique in the run; call `on_work` at the first unit that is not empty.

    Units of datasets that another run holds do not count: that run reads them.
    """
    number, is_told = 0, False
    for dataset in datasets:
        units = []
        is_work = not all(unit.is_empty for unit in dataset.work_units)
        if on_work is not None and not is_told and is_work and not is_held(dataset.dataset_urn):
            on_work()
            is_told = True
        for unit in dataset.work_units:
            number += 1
            units.append(dataclasses.replace(unit, id=f"wu-{number:05d}"))
        yield dataclasses.replace(dataset, work_units=tuple(units)) if units else dataset
