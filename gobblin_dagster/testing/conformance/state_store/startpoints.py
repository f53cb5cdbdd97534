"""Tests of a state store's startpoints: one per key, consumed by id in the commit's own transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.errors import (
    StaleEpochError,
    WatermarkMovedError,
)
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    Oldest,
    Specific,
    StartpointEvent,
    StartpointPosition,
    Timestamp,
    Upcoming,
)
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore, StoreMaker
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    PINNED,
    START,
    STRANGE_URNS,
    URN,
    files_of,
    publish,
    race,
    sequence,
    state,
    take,
    wish,
)

RUN = "run-1"


def _dated(events: list[StartpointEvent]) -> list[StartpointEvent]:
    """Return the events as of `START`: databases have clocks of their own."""
    return [replace(event, at=START) for event in events]


class Startpoints(OpensStore):
    """Startpoints: saved, pinned, deleted, and consumed by commits."""

    @pytest.mark.parametrize(
        "position",
        [Specific("größe 42"), Timestamp(datetime(2013, 1, 31, tzinfo=UTC)), Oldest(), Upcoming()],
        ids=lambda position: position.kind,
    )
    def test_startpoint_is_loaded_as_it_was_saved(self, maker: StoreMaker, position: StartpointPosition) -> None:
        """`load_startpoints` returns a startpoint with every field."""
        saved = replace(wish(position), pinned=PINNED)
        maker.open().save_startpoint(saved)
        assert maker.open().load_startpoints(JOB) == {URN: saved}

    def test_startpoint_replaces_the_one_of_its_dataset_and_no_other(self, store: StateStore) -> None:
        """`save_startpoint` replaces the startpoint of its dataset, and no other."""
        wishes = {urn: wish(urn=urn) for urn in STRANGE_URNS}
        for one in wishes.values():
            store.save_startpoint(one)
        store.save_startpoint(wish(job="another"))
        wishes[URN] = wish(Upcoming())
        store.save_startpoint(wishes[URN])
        assert store.load_startpoints(JOB) == wishes
        assert store.load_startpoints(JOB, [URN, "absent"]) == {URN: wishes[URN]}
        assert store.load_startpoints(JOB, []) == {}
        assert store.list_jobs() == ["another", JOB]
        assert store.load_dataset_states(JOB) == {}

    def test_each_key_holds_one_startpoint(self, store: StateStore) -> None:
        """Startpoints of a dataset, of its partitions and for all jobs do not replace one another."""
        whole, part, wide = wish(), replace(wish(), partition="a-0"), wish(job=ALL_JOBS)
        wide_part = replace(wish(job=ALL_JOBS), partition="a-0")
        other = replace(wish(urn="a.1"), partition="2")
        alike = replace(wish(urn="a"), partition="1.2")
        for one in (wide_part, part, whole, wide, other, alike):
            store.save_startpoint(one)
        assert store.list_startpoints(JOB, [URN]) == [whole, part]
        assert store.list_startpoints(JOB) == [whole, part, alike, other]
        assert store.load_startpoints(JOB) == {URN: whole}
        assert store.list_startpoints(ALL_JOBS) == [wide, wide_part]
        assert store.list_jobs() == [JOB]
        newer = replace(wish(Upcoming()), partition="a-0")
        store.save_startpoint(newer)
        assert store.list_startpoints(JOB, [URN]) == [whole, newer]
        assert store.pin_startpoint(replace(newer, pinned=PINNED), RUN) is True
        assert store.list_startpoints(JOB, [URN]) == [whole, replace(newer, pinned=PINNED)]
        assert store.delete_startpoint(replace(newer, partition=""), RUN) is False
        assert store.delete_startpoint(newer, RUN) is True
        assert store.list_startpoints(JOB, [URN]) == [whole]

    def test_fan_out_replaces_older_startpoints_of_its_key_alone(self, store: StateStore) -> None:
        """`fan_out_startpoint` stores a copy unless its key has a newer startpoint; a second time changes nothing."""
        older, copy, newer = (replace(wish(), created_at=START + timedelta(seconds=n)) for n in range(3))
        part = replace(wish(), partition="a-0")
        store.save_startpoint(older)
        store.save_startpoint(part)
        for _ in range(2):
            assert store.fan_out_startpoint(copy, RUN) is True
            assert store.list_startpoints(JOB) == [copy, part]
        fanned = replace(copy, generation=4, pinned=PINNED)
        assert store.fan_out_startpoint(fanned, RUN) is True
        assert store.list_startpoints(JOB) == [fanned, part]
        store.save_startpoint(newer)
        assert store.fan_out_startpoint(fanned, RUN) is False
        assert store.list_startpoints(JOB) == [newer, part]
        empty = replace(copy, partition="a-1")
        assert store.fan_out_startpoint(empty, RUN) is True
        assert store.list_startpoints(JOB) == [newer, part, empty]

    def test_startpoint_set_while_another_is_fanned_out_stays(self, store: StateStore) -> None:
        """A newer startpoint survives a fan-out of an older one to the same key at the same moment."""
        copy = wish()
        newer = replace(wish(Upcoming()), created_at=START + timedelta(seconds=1))
        race(lambda: store.save_startpoint(newer), lambda: store.fan_out_startpoint(copy, RUN))
        assert store.list_startpoints(JOB) == [newer]

    def test_commit_consumes_each_startpoint_that_it_names(self, store: StateStore) -> None:
        """`commit` deletes the startpoints of all its ids, whatever their partitions, and none of another job."""
        whole, part, stays = wish(), replace(wish(), partition="a-0"), replace(wish(), partition="a-1")
        wide = replace(whole, job=ALL_JOBS)
        for one in (whole, part, stays, wide):
            store.save_startpoint(one)
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoints=[whole.id, part.id]))
        assert store.list_startpoints(JOB) == [stays]
        assert store.list_startpoints(ALL_JOBS) == [wide]

    def test_each_change_writes_its_events(self, maker: StoreMaker) -> None:
        """Changes write events into the history, oldest first; calls that change nothing write none."""
        store = maker.open()
        one, part, wide = wish(), replace(wish(), partition="a-0"), wish(job=ALL_JOBS)
        copy = replace(wide, job=JOB, is_copy=True, created_at=START + timedelta(seconds=1), generation=4)
        fanned = replace(part, generation=4, pinned=PINNED)
        for _ in range(2):
            store.save_startpoint(one)
            store.save_startpoint(part)
        store.save_startpoint(wide)
        for generation in (4, 5):
            store.fan_out_startpoint(replace(copy, generation=generation), RUN)
            store.pin_startpoint(replace(fanned, generation=generation), RUN)
        store.delete_startpoint(one, "anna@host")
        assert store.delete_startpoint(copy, "anna@host") is True
        for _ in range(2):
            store.delete_startpoint(fanned, RUN, "expired")
        events = [
            StartpointEvent(one, "set", START, one.who),
            StartpointEvent(part, "set", START, part.who),
            StartpointEvent(one, "replaced", START, RUN),
            StartpointEvent(copy, "fanned out", START, RUN),
            StartpointEvent(fanned, "fanned out", START, RUN),
            StartpointEvent(copy, "removed", START, "anna@host"),
            StartpointEvent(fanned, "expired", START, RUN),
        ]
        assert _dated(maker.open().load_startpoint_events(JOB)) == events
        assert [event.startpoint for event in store.load_startpoint_events(ALL_JOBS)] == [wide]

    def test_job_whose_startpoints_are_all_gone_is_known(self, store: StateStore) -> None:
        """`list_jobs` names a job that never ran and has no startpoint any more, for the sake of its history."""
        one = wish()
        store.save_startpoint(one)
        store.delete_startpoint(one, "anna@host")
        assert store.list_jobs() == [JOB]

    def test_imported_startpoints_and_events_are_those_of_the_other_store(self, store: StateStore) -> None:
        """`import_startpoints` adds both as they are; a key that holds one keeps it; events are listed by time."""
        mine, theirs, part = wish(), wish(), replace(wish(), partition="a-0", generation=2, pinned=PINNED)
        store.save_startpoint(mine)
        events = [
            StartpointEvent(part, "set", START - timedelta(days=2), part.who),
            StartpointEvent(part, "fanned out", START - timedelta(days=1), RUN),
        ]
        store.import_startpoints(JOB, URN, [theirs, part], events)
        store.import_startpoints(ALL_JOBS, URN, [], [replace(events[0], startpoint=replace(part, job=ALL_JOBS))])
        assert store.list_startpoints(JOB) == [mine, part]
        found = store.load_startpoint_events(JOB)
        assert found[:2] == events
        assert [event.startpoint for event in found[2:]] == [mine]
        assert store.list_startpoints(ALL_JOBS) == []
        assert [event.at for event in store.load_startpoint_events(ALL_JOBS)] == [events[0].at]

    def test_imported_events_of_one_instant_keep_their_order(self, store: StateStore) -> None:
        """`import_startpoints` may bring many events; those of one instant are listed as they were brought."""
        events = [StartpointEvent(wish(), "set", START, "anna@host") for _ in range(12)]
        store.import_startpoints(JOB, URN, [], events)
        assert store.load_startpoint_events(JOB) == events

    def test_events_are_listed_by_dataset_and_stay_after_commits(self, store: StateStore) -> None:
        """`load_startpoint_events` returns the events of the datasets asked for; commits leave them."""
        one, other = wish(), wish(urn="größe/ß")
        store.save_startpoint(one)
        store.save_startpoint(other)
        seq = sequence("one")
        store.record(seq, take(store).epoch, CommitEffect(state(1), startpoints=[one.id]))
        publish(store, "two", 1)
        newer = wish(Upcoming())
        store.save_startpoint(newer)
        assert [event.startpoint for event in store.load_startpoint_events(JOB, [URN])] == [one, newer]
        assert store.load_startpoint_events(JOB, ["absent"]) == []
        found = store.load_startpoint_events(JOB)
        assert sorted(event.startpoint.id for event in found) == sorted(each.id for each in (one, other, newer))

    def test_startpoint_is_deleted_by_its_id(self, store: StateStore) -> None:
        """`delete_startpoint` deletes the startpoint of that id; of another it returns False and changes nothing."""
        old, new = wish(), wish()
        store.save_startpoint(old)
        store.save_startpoint(new)
        assert store.delete_startpoint(old, RUN) is False
        assert store.load_startpoints(JOB) == {URN: new}
        assert store.delete_startpoint(new, RUN) is True
        assert store.delete_startpoint(new, RUN) is False
        assert store.load_startpoints(JOB) == {}

    def test_startpoint_that_a_run_fans_out_when_it_expires_stays(self, store: StateStore) -> None:
        """`delete_startpoint` of an expired one, as it was read, leaves what a run has fanned out since then."""
        seen = wish()
        fanned = replace(seen, generation=3, pinned=PINNED)
        store.save_startpoint(seen)
        assert store.pin_startpoint(fanned, RUN) is True
        assert store.delete_startpoint(seen, "anna@host", "expired") is False
        assert store.list_startpoints(JOB) == [fanned]
        assert [event.change for event in store.load_startpoint_events(JOB)] == ["set", "fanned out"]
        assert store.delete_startpoint(seen, "anna@host") is True
        assert store.list_startpoints(JOB) == []

    def test_pinning_changes_the_startpoint_of_that_id_only(self, store: StateStore) -> None:
        """`pin_startpoint` replaces the startpoint of the same id; of another it returns False and changes nothing."""
        old, new = wish(Upcoming()), wish(Upcoming())
        assert store.pin_startpoint(old, RUN) is False
        store.save_startpoint(new)
        assert store.pin_startpoint(replace(old, pinned=PINNED), RUN) is False
        assert store.load_startpoints(JOB) == {URN: new}
        pinned = replace(new, pinned=PINNED)
        assert store.pin_startpoint(pinned, RUN) is True
        assert store.load_startpoints(JOB) == {URN: pinned}

    def test_commit_consumes_the_startpoint_once_and_prepare_does_not(self, store: StateStore) -> None:
        """`commit` deletes the startpoint of the effect's id, once; `prepare` does not."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        store.save_startpoint(wish(urn="another"))
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        assert store.load_startpoints(JOB, [URN]) == {URN: saved}
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoints=[saved.id]))
        assert set(store.load_startpoints(JOB)) == {"another"}
        again = wish()
        store.save_startpoint(again)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoints=[saved.id]))
        assert store.load_startpoints(JOB, [URN]) == {URN: again}, "a commit that took place already does nothing"

    def test_record_consumes_the_startpoint(self, store: StateStore) -> None:
        """`record` deletes the startpoint of the effect's id."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        store.record(seq, take(store).epoch, CommitEffect(state(1), startpoints=[saved.id]))
        assert store.load_startpoints(JOB) == {}
        assert store.load_dataset_states(JOB) == {URN: state(1)}

    def test_startpoint_set_in_mid_run_survives_the_commit(self, store: StateStore) -> None:
        """`commit` leaves a startpoint alone that was saved after the run began."""
        seen, newer, seq = wish(), wish(Upcoming()), sequence("one")
        store.save_startpoint(seen)
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        store.save_startpoint(newer)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoints=[seen.id]))
        assert store.load_startpoints(JOB) == {URN: newer}
        publish(store, "two", 1)
        assert store.load_startpoints(JOB) == {URN: newer}, "a commit without a startpoint consumes none"

    def test_refused_commit_leaves_the_startpoint(self, store: StateStore) -> None:
        """`commit` and `record` that are refused leave the startpoint."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        with pytest.raises(StaleEpochError):
            store.commit(seq.id, epoch + 1, CommitEffect(state(1), files_of(seq), startpoints=[saved.id]))
        with pytest.raises(WatermarkMovedError):
            store.record(sequence("two", 4), epoch, CommitEffect(state(5), startpoints=[saved.id]))
        assert store.load_startpoints(JOB) == {URN: saved}

    def test_startpoints_survive_leases_and_aborted_sequences(self, store: StateStore) -> None:
        """Neither leases nor aborted sequences consume startpoints."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        lease = take(store)
        store.prepare(seq, lease.epoch)
        store.start_abort(seq.id, lease.epoch, "lost")
        store.finish_abort(seq.id, lease.epoch)
        store.release_leases(JOB, [lease])
        assert store.load_startpoints(JOB) == {URN: saved}

    def test_startpoint_saved_while_others_commit_is_not_lost(self, store: StateStore) -> None:
        """A startpoint that is saved while a commit consumes the one before is not lost."""
        seen, newer, seq = wish(), wish(), sequence("one")
        store.save_startpoint(seen)
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        race(
            lambda: store.save_startpoint(newer),
            lambda: store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoints=[seen.id])),
        )
        assert store.load_startpoints(JOB) == {URN: newer}
        assert store.load_dataset_states(JOB) == {URN: state(1)}
