"""What every StateStore promises of startpoints: one per dataset, consumed by id in the commit's own transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.errors import StaleEpochError, WatermarkMovedError
from gobblin_dagster.core.startpoint import Oldest, Position, Specific, Startpoint, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.state import StateStore
from tests.contract.conftest import START, StoreMaker
from tests.contract.test_state_store import JOB, STRANGE_URNS, URN, files_of, publish, race, sequence, state, take

PINNED = CommittedRanges(CompositeWatermark, {"0": ((3, 5),)})


def wish(position: Position | None = None, urn: str = URN, job: str = JOB) -> Startpoint:
    """A startpoint of one day."""
    return Startpoint(job, urn, position or Oldest(), START, START + timedelta(days=1), "anna@host", "snow fell")


@pytest.mark.parametrize(
    "position",
    [Specific("größe 42"), Timestamp(datetime(2013, 1, 31, tzinfo=UTC)), Oldest(), Upcoming()],
    ids=lambda position: position.kind,
)
def test_startpoint_is_loaded_as_it_was_saved(maker: StoreMaker, position: Position) -> None:
    saved = replace(wish(position), pinned=PINNED)
    maker.open().save_startpoint(saved)
    assert maker.open().load_startpoints(JOB) == {URN: saved}


def test_startpoint_replaces_the_one_of_its_dataset_and_no_other(store: StateStore) -> None:
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


def test_startpoint_is_deleted_by_its_id(store: StateStore) -> None:
    old, new = wish(), wish()
    store.save_startpoint(old)
    store.save_startpoint(new)
    assert store.delete_startpoint(old) is False
    assert store.load_startpoints(JOB) == {URN: new}
    assert store.delete_startpoint(new) is True
    assert store.delete_startpoint(new) is False
    assert store.load_startpoints(JOB) == {}


def test_pinning_changes_the_startpoint_of_that_id_only(store: StateStore) -> None:
    old, new = wish(Upcoming()), wish(Upcoming())
    assert store.pin_startpoint(old) is False
    store.save_startpoint(new)
    assert store.pin_startpoint(replace(old, pinned=PINNED)) is False
    assert store.load_startpoints(JOB) == {URN: new}
    pinned = replace(new, pinned=PINNED)
    assert store.pin_startpoint(pinned) is True
    assert store.load_startpoints(JOB) == {URN: pinned}


def test_commit_consumes_the_startpoint_once_and_prepare_does_not(store: StateStore) -> None:
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


def test_record_consumes_the_startpoint(store: StateStore) -> None:
    saved, seq = wish(), sequence("one")
    store.save_startpoint(saved)
    store.record(seq, take(store).epoch, CommitEffect(state(1), startpoint=saved.id))
    assert store.load_startpoints(JOB) == {}
    assert store.load_dataset_states(JOB) == {URN: state(1)}


def test_startpoint_set_in_mid_run_survives_the_commit(store: StateStore) -> None:
    seen, newer, seq = wish(), wish(Upcoming()), sequence("one")
    store.save_startpoint(seen)
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    store.save_startpoint(newer)
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq), startpoint=seen.id))
    assert store.load_startpoints(JOB) == {URN: newer}
    publish(store, "two", 1)
    assert store.load_startpoints(JOB) == {URN: newer}, "a commit without a startpoint consumes none"


def test_refused_commit_leaves_the_startpoint(store: StateStore) -> None:
    saved, seq = wish(), sequence("one")
    store.save_startpoint(saved)
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    with pytest.raises(StaleEpochError):
        store.commit(seq.id, epoch + 1, CommitEffect(state(1), files_of(seq), startpoint=saved.id))
    with pytest.raises(WatermarkMovedError):
        store.record(sequence("two", 4), epoch, CommitEffect(state(5), startpoint=saved.id))
    assert store.load_startpoints(JOB) == {URN: saved}


def test_startpoints_survive_leases_and_aborted_sequences(store: StateStore) -> None:
    saved, seq = wish(), sequence("one")
    store.save_startpoint(saved)
    lease = take(store)
    store.prepare(seq, lease.epoch)
    store.start_abort(seq.id, lease.epoch, "lost")
    store.finish_abort(seq.id, lease.epoch)
    store.release_leases(JOB, [lease])
    assert store.load_startpoints(JOB) == {URN: saved}


def test_startpoint_saved_while_others_commit_is_not_lost(store: StateStore) -> None:
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
