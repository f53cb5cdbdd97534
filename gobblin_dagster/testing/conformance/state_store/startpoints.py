"""Tests of a state store's startpoints: one per dataset, consumed by id in the commit's own transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.errors import (
    StaleEpochError,
    WatermarkMovedError,
)
from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore, StoreMaker
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    PINNED,
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

    def test_startpoint_is_deleted_by_its_id(self, store: StateStore) -> None:
        """`delete_startpoint` deletes the startpoint of that id; of another it returns False and changes nothing."""
        old, new = wish(), wish()
        store.save_startpoint(old)
        store.save_startpoint(new)
        assert store.delete_startpoint(old) is False
        assert store.load_startpoints(JOB) == {URN: new}
        assert store.delete_startpoint(new) is True
        assert store.delete_startpoint(new) is False
        assert store.load_startpoints(JOB) == {}

    def test_pinning_changes_the_startpoint_of_that_id_only(self, store: StateStore) -> None:
        """`pin_startpoint` replaces the startpoint of the same id; of another it returns False and changes nothing."""
        old, new = wish(Upcoming()), wish(Upcoming())
        assert store.pin_startpoint(old) is False
        store.save_startpoint(new)
        assert store.pin_startpoint(replace(old, pinned=PINNED)) is False
        assert store.load_startpoints(JOB) == {URN: new}
        pinned = replace(new, pinned=PINNED)
        assert store.pin_startpoint(pinned) is True
        assert store.load_startpoints(JOB) == {URN: pinned}

    def test_commit_consumes_the_startpoint_once_and_prepare_does_not(self, store: StateStore) -> None:
        """`commit` deletes the startpoint of the effect's id, once; `prepare` does not."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        store.save_startpoint(wish(urn="another"))
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        assert store.load_startpoints(JOB, [URN]) == {URN: saved}
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoint=saved.id))
        assert set(store.load_startpoints(JOB)) == {"another"}
        again = wish()
        store.save_startpoint(again)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoint=saved.id))
        assert store.load_startpoints(JOB, [URN]) == {URN: again}, "a commit that took place already does nothing"

    def test_record_consumes_the_startpoint(self, store: StateStore) -> None:
        """`record` deletes the startpoint of the effect's id."""
        saved, seq = wish(), sequence("one")
        store.save_startpoint(saved)
        store.record(seq, take(store).epoch, CommitEffect(state(1), startpoint=saved.id))
        assert store.load_startpoints(JOB) == {}
        assert store.load_dataset_states(JOB) == {URN: state(1)}

    def test_startpoint_set_in_mid_run_survives_the_commit(self, store: StateStore) -> None:
        """`commit` leaves a startpoint alone that was saved after the run began."""
        seen, newer, seq = wish(), wish(Upcoming()), sequence("one")
        store.save_startpoint(seen)
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        store.save_startpoint(newer)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoint=seen.id))
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
            store.commit(seq.id, epoch + 1, CommitEffect(state(1), files_of(seq), startpoint=saved.id))
        with pytest.raises(WatermarkMovedError):
            store.record(sequence("two", 4), epoch, CommitEffect(state(5), startpoint=saved.id))
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
            lambda: store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoint=seen.id)),
        )
        assert store.load_startpoints(JOB) == {URN: newer}
        assert store.load_dataset_states(JOB) == {URN: state(1)}
