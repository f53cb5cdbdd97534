"""Changes by people, history, and export and import, on every kind of store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from gobblin_dagster.core.commit import (
    CommitReport,
    CommitSequence,
    CommitStep,
    PublishedFile,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    DatasetBusyError,
    SequenceChangedError,
    UnfinishedSequenceError,
    UsageError,
    WatermarkMovedError,
)
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.core.startpoint import ALL_JOBS, Specific, Startpoint, StartpointPosition, Upcoming
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.watermark import (
    CompositeWatermark,
    LongWatermark,
    NameWatermark,
    TimestampWatermark,
    Watermark,
)
from gobblin_dagster.core.watermark.file_set import FileSetWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.engine.commit.codec import encode_sequence
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.maintenance import state_export
from gobblin_dagster.engine.maintenance.startpoint_history import startpoint_history
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset, plan_set, require_free
from gobblin_dagster.engine.maintenance.state_export import (
    Exported,
    Standing,
    diff_states,
    export_state,
    plan_import,
    read_export,
    run_import,
)
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.testing.conformance.state_store import StoreMaker
from gobblin_dagster.testing.conformance.state_store.values import START
from tests.unit.core.weeks import WeekWatermark

JOB = "flights"
OWNER = LeaseOwner("run-1", "elsewhere", "boot", 1, "1")
TTL = timedelta(seconds=60)
SNOW: dict[str, Any] = {"who": "anna@host", "why": "snow fell into the file", "now": START + timedelta(hours=1)}


def commit(
    store: StateStore,
    urn: str,
    low: int,
    high: int,
    finish: bool = True,
    removed: Sequence[str] = (),
    startpoint: str = "",
    steps: tuple[CommitStep, ...] = (),
) -> CommitSequence:
    """Commit a range of a dataset as a run would, with one published file."""
    before = store.load_dataset_states(JOB, [urn]).get(urn)
    version = before.version if before else 0
    committed = before.committed if before else CommittedRanges(LongWatermark, {})
    sequence_id = new_commit_id()
    file = PublishedFile("all", f"/lake/{urn}/{sequence_id}.parquet", 10, "ab" * 32, high - low, version + 1)
    after = DatasetState(
        job=JOB,
        dataset_urn=urn,
        version=version + 1,
        committed=committed.add(WatermarkInterval(LongWatermark(low), LongWatermark(high))),
        snapshot=version + 1,
        run_id=f"run-{version + 1}",
        updated_at=START,
        totals=(before.totals if before else Totals()).plus(Totals(rows_read=high - low, files=1)),
        schemas={"all": "id: int64"},
        origin={"orders": "RjdN2yOxR-mZ1BRKj8qdmg"},
    )
    sequence = CommitSequence(
        sequence_id,
        JOB,
        urn,
        after.run_id,
        version,
        steps=steps,
        files=(file,),
        after=after,
        output_root="/lake",
        created_at=START,
        report=CommitReport(rows_read=high - low),
        removed=tuple(removed),
        startpoints=(startpoint,) if startpoint else (),
    )
    lease = store.acquire_leases(JOB, [urn], OWNER, TTL).granted[urn]
    store.prepare(encode_sequence(sequence, AS_STORED), lease.epoch)
    if finish:
        store.commit(sequence.id, lease.epoch, sequence.effect)
    store.release_leases(JOB, [lease])
    return sequence


def wish(urn: str, position: StartpointPosition) -> Startpoint:
    return Startpoint(JOB, urn, position, START, START + TTL, "anna@host")


def state_of(store: StateStore, urn: str = "a") -> DatasetState:
    return store.load_dataset_states(JOB, [urn])[urn]


# -- changes by people -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("to", "committed", "is_backward"),
    [(5, "[0, 5)", True), (20, "[0, 20)", False), (30, "[0, 30)", False), (0, "[0, 0)", True)],
)
def test_set_moves_the_watermark_and_closes_gaps_before_it(
    store: StateStore, to: int, committed: str, is_backward: bool
) -> None:
    commit(store, "a", 0, 10), commit(store, "a", 15, 20)
    change = plan_set(state_of(store), LongWatermark(to), **SNOW)
    assert change.is_backward is is_backward
    apply_change(store, change)
    state = state_of(store)
    assert (str(state.committed), state.watermark) == (committed, LongWatermark(to))
    assert (state.version, state.snapshot, state.totals.rows_read) == (3, 2, 15)
    assert state.generation == int(is_backward)
    assert list(state.origin) == ["orders"]
    assert len(store.load_snapshot(JOB, "a")) == 2
    assert store.load_unreported(JOB) != []  # those of the runs; a person's change is nothing to report
    assert all(stored.run_id.startswith("run-") for stored in store.load_unreported(JOB))


def test_reset_forgets_what_was_read_and_the_next_commit_begins_anew(store: StateStore) -> None:
    commit(store, "a", 0, 10)
    change = plan_reset(state_of(store), **SNOW)
    assert "read and published again" in change.consequence
    apply_change(store, change)
    assert (state_of(store).watermark, str(state_of(store).committed), state_of(store).origin) == (None, "", {})
    commit(store, "a", 0, 12)
    assert state_of(store).watermark == LongWatermark(12)


def test_history_explains_every_change_by_run_or_person(store: StateStore) -> None:
    commit(store, "a", 0, 10), commit(store, "b", 0, 99)
    apply_change(store, plan_set(state_of(store), LongWatermark(5), **SNOW))
    commit(store, "a", 5, 11)
    entries = history(store, JOB, "a")
    assert [(str(entry.watermark_before), str(entry.watermark_after), entry.by, entry.who) for entry in entries] == [
        ("None", "10", "run", "run-1"),
        ("10", "5", "person", "anna@host"),
        ("5", "11", "run", "run-3"),
    ]
    assert [entry.why for entry in entries] == ["", "set: snow fell into the file", ""]
    assert [(entry.rows, entry.files) for entry in entries] == [(10, 1), (0, 0), (6, 1)]


def test_history_names_attempts_that_came_to_nothing(store: StateStore) -> None:
    commit(store, "a", 0, 10)
    lost = commit(store, "a", 10, 20, finish=False)
    epoch = store.acquire_leases(JOB, ["a"], OWNER, TTL).granted["a"].epoch
    store.start_abort(lost.id, epoch, "its staged files are lost")
    store.finish_abort(lost.id, epoch)
    last = history(store, JOB, "a")[-1]
    assert (last.state, last.why) == (SequenceState.ABORTED, "its staged files are lost")
    assert last.watermark_before == last.watermark_after == LongWatermark(10)


def test_commit_of_a_sequence_that_was_abandoned_meanwhile_says_so(store: StateStore) -> None:
    late = commit(store, "a", 0, 10, finish=False)
    epoch = store.acquire_leases(JOB, ["a"], OWNER, TTL).granted["a"].epoch
    store.start_abort(late.id, epoch, "abandoned")
    store.finish_abort(late.id, epoch)
    with pytest.raises(SequenceChangedError, match="it was abandoned, or undone; expected prepared, got aborted"):
        store.commit(late.id, epoch, late.effect)


def test_change_is_refused_while_a_run_holds_the_lease(store: StateStore) -> None:
    commit(store, "a", 0, 10)
    change = plan_reset(state_of(store), **SNOW)
    lease = store.acquire_leases(JOB, ["a"], OWNER, TTL).granted["a"]
    with pytest.raises(DatasetBusyError, match="run run-1"):
        require_free(store, JOB, "a", lease.until - TTL)  # some stores have a clock of their own
    with pytest.raises(DatasetBusyError, match="run run-1"):
        apply_change(store, change)
    assert state_of(store).version == 1


def test_change_is_refused_while_a_sequence_is_unfinished(store: StateStore) -> None:
    commit(store, "a", 0, 10)
    commit(store, "a", 10, 20, finish=False)
    with pytest.raises(UnfinishedSequenceError):
        require_free(store, JOB, "a", START)
    with pytest.raises(UnfinishedSequenceError):
        apply_change(store, plan_reset(state_of(store), **SNOW))
    assert store.load_leases(JOB) == {}


def test_change_planned_from_an_older_state_is_refused(store: StateStore) -> None:
    commit(store, "a", 0, 10)
    change = plan_reset(state_of(store), **SNOW)
    commit(store, "a", 10, 20)
    with pytest.raises(WatermarkMovedError):
        apply_change(store, change)
    assert state_of(store).watermark == LongWatermark(20)


# -- export and import -------------------------------------------------------------------------------------------------
@pytest.fixture
def filled(tmp_path: Path, empty_sqlite: Path) -> Iterator[StateStore]:
    """A store with two datasets, changes by a person, a run and a sequence that was aborted."""
    store = open_store("sqlite:///filled.db", tmp_path)
    commit(store, "a", 0, 10), commit(store, "b/ü", 5, 6), commit(store, "a", 15, 20)
    apply_change(store, plan_set(state_of(store), LongWatermark(12), **SNOW))
    commit(store, "a", 12, 40)
    store.save_run(RunRecord("run-1", JOB, START, RunStatus.SUCCEEDED, START))
    store.save_startpoint(wish("a", Specific("7")))
    yield store
    store.close()


def lines(store: StateStore) -> list[str]:
    return list(export_state(store, store.list_jobs(), lambda urn: True))


def test_round_trip_through_any_store_loses_nothing(filled: StateStore, store: StateStore, tmp_path: Path) -> None:
    run_import(store, plan_import(store, read_export(lines(filled))))
    assert lines(store) == lines(filled)
    back = open_store("sqlite:///back.db", tmp_path)
    run_import(back, plan_import(back, read_export(lines(store))))
    assert back.load_dataset_states(JOB) == filled.load_dataset_states(JOB)
    assert back.load_runs() == filled.load_runs()
    for urn in ("a", "b/ü"):
        assert history(back, JOB, urn) == history(filled, JOB, urn)
        for snapshot in (None, 1):
            assert back.load_snapshot(JOB, urn, snapshot) == filled.load_snapshot(JOB, urn, snapshot)
    back.close()


class ForeignStep:
    """A step of a job's own, which nobody has registered who only reads the store."""

    type_name: ClassVar[str] = "foreign"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        return True

    def execute(self, storage: Storage) -> None:
        raise AssertionError("who reads the store does no step")

    def to_json(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return "foreign"


def test_steps_of_a_jobs_own_stand_in_nobodys_way(store: StateStore, tmp_path: Path) -> None:
    commit(store, "a", 0, 10, steps=(ForeignStep(),))
    assert [(str(one.watermark_after), one.why) for one in history(store, JOB, "a")] == [("10", "")]
    assert [one.snapshot for one in list_snapshots(store, JOB, "a")] == [1]
    apply_change(store, plan_set(state_of(store), LongWatermark(5), **SNOW))
    there = open_store("sqlite:///there.db", tmp_path)
    run_import(there, plan_import(there, read_export(lines(store))))
    assert lines(there) == lines(store)
    there.close()


def test_leases_of_an_import_are_renewed(
    filled: StateStore, store: StateStore, maker: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    keepers: list[LeaseKeeper] = []

    class Keeper(LeaseKeeper):
        def __enter__(self) -> Self:
            keepers.append(self)
            return super().__enter__()

    monkeypatch.setattr(state_export, "LeaseKeeper", Keeper)
    record = store.record

    def slow_record(stored: StoredSequence, *more: Any) -> None:
        maker.clock.advance(timedelta(seconds=40))
        keepers[0].renew()  # as its thread does every 20 seconds
        assert store.acquire_leases(JOB, ["a"], OWNER, TTL).granted == {}
        record(stored, *more)

    monkeypatch.setattr(store, "record", slow_record)
    run_import(store, plan_import(store, read_export(lines(filled))))
    assert lines(store) == lines(filled)


def test_second_import_changes_nothing_and_one_that_broke_off_is_completed(
    filled: StateStore, store: StateStore
) -> None:
    exported = read_export(lines(filled))
    plan = plan_import(store, exported)
    run_import(store, replace(plan, missing=plan.missing[:3], runs=()))
    rest = plan_import(store, exported)
    assert (len(rest.missing), rest.unchanged, len(rest.runs)) == (2, ((JOB, "b/ü"),), 1)
    run_import(store, rest)
    done = plan_import(store, exported)
    assert (done.missing, done.runs, done.conflicts) == ((), (), ())
    assert lines(store) == lines(filled)


def test_dataset_with_another_history_is_left_alone(filled: StateStore, store: StateStore) -> None:
    commit(store, "a", 0, 3)
    plan = plan_import(store, read_export(lines(filled)))
    assert plan.conflicts == ((JOB, "a"),)
    run_import(store, plan)
    assert str(state_of(store).committed) == "[0, 3)"
    assert str(state_of(store, "b/ü").committed) == "[5, 6)"


def test_import_is_refused_while_a_run_works_on_one_of_the_datasets(filled: StateStore, store: StateStore) -> None:
    store.acquire_leases(JOB, ["a"], OWNER, TTL)
    with pytest.raises(DatasetBusyError):
        run_import(store, plan_import(store, read_export(lines(filled))))
    assert store.load_dataset_states(JOB) == {}
    assert set(store.load_leases(JOB)) == {"a"}


def test_imported_dataset_goes_on_where_it_stood(filled: StateStore, maker: StoreMaker) -> None:
    store = maker.open()
    run_import(store, plan_import(store, read_export(lines(filled))))
    commit(store, "a", 40, 50)
    assert (state_of(store).version, state_of(store).watermark) == (5, LongWatermark(50))


def test_export_refuses_unfinished_sequences(filled: StateStore) -> None:
    commit(filled, "a", 40, 50, finish=False)
    with pytest.raises(UnfinishedSequenceError):
        lines(filled)
    assert len(list(export_state(filled, [JOB], lambda urn: urn != "a"))) == 4


def test_export_is_whole_where_a_run_commits_meanwhile(filled: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    load = filled.load_sequences
    alive = iter([True])

    def commit_after(*asked: Any, **more: Any) -> list[StoredSequence]:
        found = load(*asked, **more)
        if {SequenceState.COMMITTED} in asked and next(alive, False):
            commit(filled, "a", 40, 50)
        return found

    monkeypatch.setattr(filled, "load_sequences", commit_after)
    assert str(read_export(lines(filled)).standing().states[JOB, "a"].committed) == "[0, 40)"
    assert str(state_of(filled).committed) == "[0, 50)"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda rows: ["{}", *rows[1:]], "expected format 'GobblinState/3'"),
        (lambda rows: [], "line 1 is not JSON"),
        (lambda rows: [rows[0], "[]"], "line 2 is not a JSON object"),
        (lambda rows: [rows[0], "{}"], "line 2 is neither"),
        (lambda rows: [rows[0], '{"sequence": {"id": "x"}}'], "line 2 is not a sequence"),
        (lambda rows: [rows[0], *rows[2:]], "breaks off after line 9"),
        (lambda rows: rows[:-1], "breaks off after line 9"),
        (lambda rows: rows[:4], "breaks off after line 4"),
        (lambda rows: [*rows, rows[-2]], "breaks off after line 11"),
        (lambda rows: [rows[0], *rows[3:-1], '{"end": 7}'], "has a hole"),
        (lambda rows: [rows[0], rows[1].replace("rows_read", "rows_lost")], "does not match its digest"),
        (lambda rows: [rows[0], '{"sequence": 7}'], "line 2 is not a sequence"),
        (
            lambda rows: [rows[0], re.sub('"reason":"[^"]*"', '"reason":null', rows[1])],
            "not a sequence: reason: .* string",
        ),
        (
            lambda rows: [rows[0], re.sub('"body":".*","created', '"body":null,"created', rows[1])],
            "not a sequence: body: ",
        ),
        (lambda rows: [rows[0], rows[1].replace('"committed"', '"prepared"')], "line 2 is a sequence that is prepared"),
    ],
    ids=[
        "format",
        "empty",
        "list",
        "unknown",
        "incomplete",
        "lost",
        "cut",
        "short",
        "long",
        "hole",
        "damaged",
        "number",
        "no reason",
        "no body",
        "prepared",
    ],
)
def test_damaged_export_is_refused_before_anything_is_imported(
    filled: StateStore, damage: object, problem: str
) -> None:
    assert callable(damage)
    with pytest.raises(CorruptRecordError, match=problem):
        read_export(damage(lines(filled)))


def test_export_is_json_lines_between_the_format_and_their_count(filled: StateStore) -> None:
    first, *rest = [json.loads(line) for line in lines(filled)]
    assert first == {"format": "GobblinState/3", "jobs": [JOB]}
    assert [next(iter(row)) for row in rest] == ["sequence"] * 5 + ["startpoint", "startpoint_event", "run", "end"]
    assert rest[-1] == {"end": 9}


def test_diff_names_what_differs_in_what_was_committed(filled: StateStore) -> None:
    exported = read_export(lines(filled))
    assert diff_states(standing(filled), exported.standing()) == []
    commit(filled, "a", 40, 50)
    (difference,) = diff_states(standing(filled), exported.standing())
    assert (difference.dataset_urn, difference.startpoint_here) == ("a", difference.startpoint_there)
    assert not difference.is_other_origin
    assert [d.here for d in diff_states(Standing({}), Exported(exported.all_sequences).standing())] == [None, None]


def test_diff_names_what_was_read_from_things_of_one_name_and_other_ids(filled: StateStore) -> None:
    there = read_export(lines(filled)).standing()
    here = {key: replace(state, origin={"orders": "another"}) for key, state in there.states.items()}
    assert [one.is_other_origin for one in diff_states(Standing(here, there.startpoints), there)] == [True, True]


def test_diff_names_startpoints_that_differ(filled: StateStore) -> None:
    there = read_export(lines(filled)).standing()
    newer = wish("b/ü", Upcoming())
    filled.save_startpoint(newer)
    (difference,) = diff_states(standing(filled), there)
    assert (difference.dataset_urn, difference.startpoint_here, difference.startpoint_there) == ("b/ü", newer, None)
    assert difference.here == difference.there


def standing(store: StateStore) -> Standing:
    states = {(JOB, urn): state for urn, state in store.load_dataset_states(JOB).items()}
    return Standing(states, {(JOB, urn): one for urn, one in store.load_startpoints(JOB).items()})


def test_removed_files_and_consumed_startpoints_come_along(store: StateStore, tmp_path: Path) -> None:
    first = commit(store, "a", 0, 10)
    consumed = wish("a", Specific("5"))
    store.save_startpoint(consumed)
    second = commit(store, "a", 10, 20, removed=(first.files[0].path,), startpoint=consumed.id)
    assert store.load_startpoints(JOB) == {}
    there = open_store("sqlite:///there.db", tmp_path)
    run_import(there, plan_import(there, read_export(lines(store))))
    assert there.load_snapshot(JOB, "a") == list(second.files)
    assert there.load_snapshot(JOB, "a", 1) == list(first.files)
    assert lines(there) == lines(store)
    there.close()


@pytest.mark.parametrize("end", ["consumed", "replaced", "removed"])
def test_import_brings_no_startpoint_that_has_ended_here(filled: StateStore, store: StateStore, end: str) -> None:
    exported = read_export(lines(filled))
    run_import(store, plan_import(store, exported))
    (brought,) = store.load_startpoints(JOB).values()
    if end == "consumed":
        commit(store, "a", 40, 50, startpoint=brought.id)
    elif end == "replaced":
        store.save_startpoint(newer := wish("a", Upcoming()))
        assert not plan_import(store, exported).has_changes
        store.delete_startpoint(newer, "anna@host")
    else:
        store.delete_startpoint(brought, "anna@host")
    assert store.load_startpoints(JOB) == {}
    assert not plan_import(store, exported).has_changes


@pytest.mark.parametrize("is_consumed", [True, False])
def test_export_from_before_the_first_commit_brings_no_startpoint(store: StateStore, is_consumed: bool) -> None:
    """Each commit after the export may have made it needless, as may a person who removed it."""
    wanted = wish("a", Specific("7"))
    store.save_startpoint(wanted)
    exported = read_export(lines(store))
    if not is_consumed:
        store.delete_startpoint(wanted, "anna@host")
    commit(store, "a", 0, 10, startpoint=wanted.id if is_consumed else "")
    assert store.load_startpoints(JOB) == {}
    plan = plan_import(store, exported)
    assert (plan.startpoints, plan.startpoint_events, plan.ahead) == ((), (), ((JOB, "a"),))
    assert not plan.has_changes


def test_history_of_startpoints_comes_along(store: StateStore, tmp_path: Path) -> None:
    """Of those that are gone, of jobs that never ran, and of those for all jobs; a second import adds nothing."""
    gone, wide = replace(wish("never", Upcoming()), job="another"), replace(wish("a", Upcoming()), job=ALL_JOBS)
    store.save_startpoint(gone)
    store.delete_startpoint(gone, "anna@host")
    store.save_startpoint(wide)
    commit(store, "a", 0, 10)
    there = open_store("sqlite:///there.db", tmp_path)
    exported = read_export(lines(store))
    run_import(there, plan_import(there, exported))
    assert lines(there) == lines(store)
    assert [event.change for event in there.load_startpoint_events("another")] == ["set", "removed"]
    assert not plan_import(there, exported).has_changes
    there.close()


def test_history_of_startpoints_tells_the_commits_that_applied_them(store: StateStore) -> None:
    """By commit, run and watermark, for the job that applied it; what the store holds stays as it is."""
    own, wide = wish("a", Specific("5")), replace(wish("a", Upcoming()), job=ALL_JOBS)
    store.save_startpoint(own)
    store.save_startpoint(wide)
    commit(store, "a", 0, 10)
    assert store.pin_startpoint(replace(own, generation=2), "run-2")
    first = commit(store, "a", 10, 20, startpoint=own.id)
    assert store.fan_out_startpoint(replace(wide, job=JOB, is_copy=True, generation=3), "run-3")
    second = commit(store, "a", 20, 30, startpoint=wide.id)
    told = startpoint_history(store, [JOB])
    assert [(one.change, one.who) for one in told if one.startpoint.id == own.id] == [
        ("set", "anna@host"),
        ("fanned out", "run-2"),
        ("applied", "run-2"),
    ]
    assert [(one.startpoint.job, one.change, one.who) for one in told if one.startpoint.id == wide.id] == [
        (ALL_JOBS, "set", "anna@host"),
        (JOB, "fanned out", "run-3"),
        (JOB, "applied", "run-3"),
    ]
    applied = [(one.startpoint.id, one.commit_id, str(one.watermark)) for one in told if one.commit_id]
    assert applied == [(own.id, first.id, "20"), (wide.id, second.id, "30")]
    assert [one.change for one in startpoint_history(store, [])] == ["set"]
    assert [one.change for one in store.load_startpoint_events(JOB)] == ["set", "fanned out", "fanned out"]


def test_export_without_history_of_startpoints_is_imported(filled: StateStore, store: StateStore) -> None:
    first, *rest, _ = lines(filled)
    kept = [line for line in rest if "startpoint_event" not in json.loads(line)]
    former = [first.replace("GobblinState/3", "GobblinState/2"), *kept, json.dumps({"end": len(kept) + 1})]
    run_import(store, plan_import(store, read_export(former)))
    (brought,) = store.load_startpoints(JOB).values()
    assert [(event.startpoint, event.change) for event in store.load_startpoint_events(JOB)] == [(brought, "set")]


# -- what people write -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("like", "text"),
    [
        (LongWatermark(42), "42"),
        (TimestampWatermark(datetime(2013, 1, 31, tzinfo=UTC)), "2013-01-31"),
        (TimestampWatermark(datetime(2013, 1, 31, 5, tzinfo=UTC)), "2013-01-31T07:00:00+02:00"),
        (CompositeWatermark({"0": 5, "1": 9}), '{"0": 5, "1": 9}'),
        (NameWatermark.after("in/b.csv"), "after in/b.csv"),
        (NameWatermark("in/b.csv"), "in/b.csv"),
        (WeekWatermark(date(2013, 1, 7)), "2013-W02"),
    ],
)
def test_watermark_is_read_as_people_write_it(like: Watermark, text: str) -> None:
    assert parse_watermark(type(like), text) == like


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LongWatermark, "x"),
        (TimestampWatermark, "42"),
        (TimestampWatermark, "0001-01-01T00:00:00+01:00"),
        (CompositeWatermark, "5"),
    ],
)
def test_text_that_is_no_watermark_is_refused(kind: type[Watermark], text: str) -> None:
    with pytest.raises(UsageError, match=f"is no watermark of type '{kind.type_name}'"):
        parse_watermark(kind, text)


def test_set_before_the_beginning_or_with_other_components_is_refused(store: StateStore) -> None:
    commit(store, "a", 5, 10)
    with pytest.raises(UsageError, match="4 lies before 5, where dataset 'a' begins"):
        plan_set(state_of(store), LongWatermark(4), **SNOW)
    with pytest.raises(UsageError, match="has the components "):
        plan_set(state_of(store), CompositeWatermark({"0": 7}), **SNOW)


def test_set_of_files_is_not_written_by_hand_and_the_message_says_what_is_done_instead() -> None:
    with pytest.raises(UsageError, match=r"cannot be written by hand.*`gobblin state reset`"):
        parse_watermark(FileSetWatermark, '{"a.csv": 1}')
