"""What every StateStore promises, over all that we ship.

Expired leases are made with a negative time to live: some stores take the time from their server, which no test moves.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gobblin_dagster.core.commit import CommitEffect, PublishedFile, SequenceState, StoredSequence, body_digest
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import (
    CommitConflictError,
    CorruptRecordError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.state import StateStore
from tests.contract.conftest import NEARBY, START, StoreMaker

JOB = "flights"
URN = "AA/JFK"
TTL = timedelta(minutes=5)
EXPIRED = timedelta(seconds=-1)
ME = LeaseOwner.current("run-me")
OTHER = LeaseOwner.current("run-other")

STRANGE_URNS = (
    "",
    "a:b",
    "a.b",
    "a_b",
    "a/b",
    "a%2Fb",
    "a%b",
    "a b",
    "A:B",
    ".",
    "..",
    "../../etc/passwd",
    ".hidden",
    "_hidden",
    "größe/日本語/🛫",
    "grosse",
    "'; DROP TABLE gobblin_dataset_states; --",
    "x" * 200,
)


def state(version: int, urn: str = URN, job: str = JOB) -> DatasetState:
    """A state that committed [0, 10 * version)."""
    none = CommittedRanges(LongWatermark, {})
    return DatasetState(
        job=job,
        dataset_urn=urn,
        version=version,
        committed=none.add(WatermarkInterval(LongWatermark(0), LongWatermark(10 * version))),
        snapshot=version,
        run_id="run-me",
        updated_at=START,
        totals=Totals(rows_read=10 * version, branch_rows={"all": 10 * version}),
        schemas={"all": "carrier: string"},
        failed_ranges=("[3, 4)",),
        origin={"orders": "RjdN2yOxR-mZ1BRKj8qdmg"},
    )


def sequence(name: str, version_read: int = 0, urn: str = URN, job: str = JOB) -> StoredSequence:
    body = f'{{"name":"{name}","größe":"日本"}}'
    return StoredSequence(
        id=hashlib.md5(name.encode()).hexdigest(),
        job=job,
        dataset_urn=urn,
        run_id="run-me",
        version_read=version_read,
        state=SequenceState.PREPARED,
        body=body,
        digest=body_digest(body),
        created_at=START + timedelta(seconds=version_read),
    )


def files_of(seq: StoredSequence, names: Sequence[str] = ("1",)) -> list[PublishedFile]:
    return [
        PublishedFile(
            branch=branch,
            path=f"/lake/{branch}/{seq.id}-{name}.parquet",
            size_bytes=5_000_000_000,
            sha256="ab" * 32,
            rows=7,
            snapshot=seq.version_read + 1,
        )
        for branch in ("all", "masked")
        for name in names
    ]


def in_order(files: Sequence[PublishedFile]) -> list[PublishedFile]:
    return sorted(files, key=lambda file: (file.branch, file.path))


def take(store: StateStore, owner: LeaseOwner = ME, urn: str = URN, job: str = JOB, ttl: timedelta = TTL) -> Lease:
    return store.acquire_leases(job, [urn], owner, ttl).granted[urn]


def publish(store: StateStore, name: str, version_read: int = 0, urn: str = URN, job: str = JOB) -> StoredSequence:
    """Bring one sequence from nothing to COMMITTED."""
    seq = sequence(name, version_read, urn, job)
    epoch = take(store, urn=urn, job=job).epoch
    store.prepare(seq, epoch)
    store.commit(seq.id, epoch, CommitEffect(state(version_read + 1, urn, job), files_of(seq)))
    return seq


def state_of(store: StateStore, seq: StoredSequence) -> SequenceState | None:
    stored = store.load_sequence(seq.id)
    return None if stored is None else stored.state


def contents(store: StateStore) -> object:
    """Everything but leases, to tell that nothing changed."""
    return (
        store.load_dataset_states(JOB),
        store.load_sequences(states=list(SequenceState)),
        store.load_snapshot(JOB, URN),
        store.load_unreported(JOB),
        store.list_jobs(),
    )


def race(*calls: Callable[[], object]) -> list[object]:
    """Run calls at the same moment and return what each returned or raised."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        gate.wait()
        try:
            return call()
        except (CommitConflictError, CorruptRecordError) as refusal:
            return refusal

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


# -- dataset states ----------------------------------------------------------------------------------------------------
def test_a_new_store_is_empty(store: StateStore) -> None:
    assert contents(store) == ({}, [], [], [], [])
    assert store.load_leases(JOB) == {}
    assert store.load_runs() == []


def test_a_committed_state_is_loaded_whole(store: StateStore) -> None:
    publish(store, "one")

    assert store.load_dataset_states(JOB) == {URN: state(1)}


def test_states_are_loaded_of_the_named_datasets_only(store: StateStore) -> None:
    for urn in ("a", "b", "c"):
        publish(store, urn, urn=urn)

    assert set(store.load_dataset_states(JOB, ["a", "c", "absent"])) == {"a", "c"}
    assert store.load_dataset_states(JOB, []) == {}
    assert store.load_dataset_states("another") == {}


def test_jobs_are_listed_once_and_sorted(store: StateStore) -> None:
    publish(store, "one", job="b")
    publish(store, "two", job="Ä")
    publish(store, "three", job="a")
    take(store, job="a", urn="leased only")
    store.save_run(RunRecord("run-9", "c", START, RunStatus.SUCCEEDED))

    assert store.list_jobs() == ["a", "b", "c", "Ä"]


def test_urns_never_share_anything(store: StateStore) -> None:
    epochs = {urn: n % 3 + 1 for n, urn in enumerate(STRANGE_URNS)}
    for urn, epoch in epochs.items():
        for _ in range(epoch - 1):
            store.release_leases(JOB, [take(store, OTHER, urn)])
        publish(store, f"of {urn}", urn=urn)

    states = store.load_dataset_states(JOB)
    assert states == {urn: state(1, urn) for urn in STRANGE_URNS}
    assert {urn: lease.epoch for urn, lease in store.load_leases(JOB).items()} == epochs
    for urn in STRANGE_URNS:
        assert store.load_dataset_states(JOB, [urn]) == {urn: state(1, urn)}
        assert store.load_snapshot(JOB, urn) == files_of(sequence(f"of {urn}", urn=urn))
        assert [seq.dataset_urn for seq in store.load_sequences(JOB, list(SequenceState), [urn])] == [urn]


def test_jobs_share_nothing_under_the_same_urn(store: StateStore) -> None:
    publish(store, "one", job="j/a")
    publish(store, "two", job="j", urn=f"a/{URN}")

    assert store.load_dataset_states("j/a") == {URN: state(1, job="j/a")}
    assert store.load_dataset_states("j") == {f"a/{URN}": state(1, f"a/{URN}", "j")}
    assert store.load_snapshot("j", URN) == []


def test_jobs_share_no_epoch_under_the_same_urn(store: StateStore) -> None:
    for _ in range(2):
        store.release_leases("another", [take(store, job="another")])

    publish(store, "one")

    with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
        store.prepare(sequence("two", job="another"), 1)


# -- leases ------------------------------------------------------------------------------------------------------------
def test_the_first_lease_of_a_dataset_is_granted_for_the_time_asked(store: StateStore) -> None:
    grant = store.acquire_leases(JOB, ["a", "b"], ME, TTL)

    assert set(grant.granted) == {"a", "b"}
    assert grant.busy == {}
    assert all(lease.owner == ME and lease.epoch == 1 for lease in grant.granted.values())
    assert store.load_leases(JOB) == grant.granted
    assert store.load_leases("another") == {}


def test_a_live_lease_is_busy_and_names_its_holder(store: StateStore) -> None:
    held = take(store, OTHER, "a")

    grant = store.acquire_leases(JOB, ["a", "b"], ME, TTL)

    assert set(grant.granted) == {"b"}
    assert grant.busy == {"a": held}
    assert store.load_leases(JOB)["a"] == held


def test_acquiring_again_renews_and_keeps_the_epoch(store: StateStore) -> None:
    first = take(store, ttl=TTL)
    again = take(store, ttl=2 * TTL)

    assert again.epoch == first.epoch
    assert again.until > first.until


def test_an_expired_lease_is_taken_over_with_a_higher_epoch(store: StateStore) -> None:
    old = take(store, OTHER, ttl=EXPIRED)

    assert take(store).epoch == old.epoch + 1
    assert store.load_leases(JOB)[URN].owner == ME


def test_an_expired_lease_that_nobody_took_is_still_ours(store: StateStore) -> None:
    old = take(store, ttl=EXPIRED)

    assert take(store).epoch == old.epoch


def test_the_lease_of_an_ended_process_is_taken_over_at_once(store: StateStore) -> None:
    program = "from gobblin_dagster.core.lease import LeaseOwner as L; o = L.current('x'); print(o.pid, o.started)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    pid, started = ended.stdout.split()
    old = take(store, replace(ME, run_id="run-killed", pid=int(pid), started=started))

    assert take(store).epoch == old.epoch + 1


def test_the_lease_of_a_process_whose_pid_was_reused_is_taken_over(store: StateStore) -> None:
    old = take(store, replace(ME, run_id="run-killed", pid=os.getpid(), started="1"))

    assert take(store).epoch == old.epoch + 1


def test_the_lease_of_another_host_is_busy_until_it_expires(store: StateStore) -> None:
    take(store, replace(ME, host=f"not-{socket.gethostname()}", started="1"))

    assert set(store.acquire_leases(JOB, [URN], ME, TTL).busy) == {URN}


def test_a_release_frees_the_dataset_and_keeps_the_epoch(store: StateStore) -> None:
    lease = take(store)

    store.release_leases(JOB, [lease])

    assert store.load_leases(JOB) == {}
    assert take(store, OTHER).epoch == lease.epoch + 1


def test_a_release_leaves_a_taken_over_lease_alone(store: StateStore) -> None:
    old = take(store, OTHER, ttl=EXPIRED)
    new = take(store)

    store.release_leases(JOB, [old])

    assert store.load_leases(JOB) == {URN: new}


def test_renewal_prolongs_what_is_ours_and_leaves_out_what_is_not(store: StateStore) -> None:
    mine = take(store, OTHER, "mine", ttl=EXPIRED)
    lost = take(store, OTHER, "lost", ttl=EXPIRED)
    freed = take(store, OTHER, "freed")
    store.release_leases(JOB, [freed])
    new = take(store, ME, "lost")

    renewed = store.renew_leases(JOB, [mine, lost, freed, replace(mine, dataset_urn="never leased")], TTL)

    assert set(renewed) == {"mine"}
    assert renewed["mine"].epoch == mine.epoch
    assert renewed["mine"].until > mine.until
    assert store.load_leases(JOB) == {"lost": new, **renewed}


def test_a_lease_that_was_given_back_is_not_inherited(store: StateStore) -> None:
    store.release_leases(JOB, [take(store, OTHER)])

    assert store.acquire_leases(JOB, [URN], ME, TTL).inherited == frozenset()
    assert store.acquire_leases(JOB, [URN], ME, TTL).inherited == frozenset()


def test_a_lease_that_expired_is_inherited_and_a_busy_one_is_not(store: StateStore) -> None:
    take(store, OTHER, "expired", ttl=EXPIRED)
    take(store, OTHER, "busy")

    grant = store.acquire_leases(JOB, ["expired", "busy", "new"], ME, TTL)

    assert grant.inherited == {"expired"}


def test_a_lease_that_was_left_is_over_and_keeps_its_owner(store: StateStore) -> None:
    lease = take(store, OTHER)

    store.leave_leases(JOB, {URN: lease.epoch, "never leased": 1})

    (left,) = store.load_leases(JOB).values()
    assert left.is_left
    assert left.owner == OTHER
    assert store.renew_leases(JOB, [lease], TTL) == {}
    store.release_leases(JOB, [lease])
    assert store.load_leases(JOB) == {URN: left}
    grant = store.acquire_leases(JOB, [URN], ME, TTL)
    assert grant.inherited == {URN}
    assert grant.granted[URN].epoch == lease.epoch + 1


def test_a_lease_that_its_own_run_left_and_takes_again_is_inherited(store: StateStore) -> None:
    lease = take(store)
    store.leave_leases(JOB, {URN: lease.epoch})

    grant = store.acquire_leases(JOB, [URN], ME, TTL)

    assert grant.inherited == {URN}
    assert not grant.granted[URN].is_left


def test_leases_of_another_epoch_and_free_ones_cannot_be_left(store: StateStore) -> None:
    old = take(store, OTHER, ttl=EXPIRED)
    new = take(store)
    freed = take(store, OTHER, "freed")
    store.release_leases(JOB, [freed])

    store.leave_leases(JOB, {URN: old.epoch, "freed": freed.epoch})

    assert store.load_leases(JOB) == {URN: new}


def test_a_quarantined_sequence_is_prepared_again_without_its_failures(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    store.record_redo_failure(seq.id, "no schema")
    store.quarantine(seq.id, "no schema")

    with pytest.raises(StaleEpochError):
        store.retry(seq.id, epoch + 1)
    store.retry(seq.id, epoch)
    store.retry(seq.id, epoch)

    stored = store.load_sequence(seq.id)
    assert stored is not None
    assert (stored.state, stored.redo_failures, stored.reason) == (SequenceState.PREPARED, 0, "no schema")
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    with pytest.raises(CorruptRecordError, match="committed"):
        store.retry(seq.id, epoch)


def test_no_datasets_need_no_leases(store: StateStore) -> None:
    grant = store.acquire_leases(JOB, [], ME, TTL)

    assert (grant.granted, grant.busy, grant.inherited) == ({}, {}, frozenset())
    store.leave_leases(JOB, {})
    assert store.renew_leases(JOB, [], TTL) == {}
    store.release_leases(JOB, [])


def test_of_two_runs_that_race_for_a_lease_one_gets_it(store: StateStore) -> None:
    urns = [f"d{n}" for n in range(20)]

    def acquire(owner: LeaseOwner, order: Sequence[str]) -> set[str]:
        return set(store.acquire_leases(JOB, order, owner, TTL).granted)

    one, two = race(lambda: acquire(ME, urns), lambda: acquire(OTHER, urns[::-1]))

    assert isinstance(one, set)
    assert isinstance(two, set)
    assert sorted([*one, *two]) == sorted(urns)
    assert {lease.epoch for lease in store.load_leases(JOB).values()} == {1}


# -- prepare -----------------------------------------------------------------------------------------------------------
def test_prepare_stores_the_sequence_unchanged_and_moves_nothing(store: StateStore) -> None:
    seq = sequence("one")

    store.prepare(seq, take(store).epoch)

    assert store.load_sequence(seq.id) == seq
    assert store.load_sequences(JOB) == [seq]
    assert store.load_dataset_states(JOB) == {}
    assert store.load_snapshot(JOB, URN) == []


def test_prepare_with_an_old_epoch_is_refused(store: StateStore) -> None:
    old = take(store, OTHER, ttl=EXPIRED)
    take(store)
    before = contents(store)

    with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2") as caught:
        store.prepare(sequence("one"), old.epoch)

    assert (caught.value.dataset_urn, caught.value.ours, caught.value.current) == (URN, 1, 2)
    assert contents(store) == before


@pytest.mark.parametrize("epoch", [0, 1])
def test_prepare_without_any_lease_is_refused(store: StateStore, epoch: int) -> None:
    with pytest.raises(StaleEpochError):
        store.prepare(sequence("one"), epoch)

    assert store.load_sequence(sequence("one").id) is None


@pytest.mark.parametrize("version_read", [0, 2])
def test_prepare_from_another_version_is_refused(store: StateStore, version_read: int) -> None:
    publish(store, "one")
    epoch = take(store).epoch
    before = contents(store)

    with pytest.raises(WatermarkMovedError, match=f"planned from version {version_read}, the store holds 1"):
        store.prepare(sequence("two", version_read), epoch)

    assert contents(store) == before


def test_prepare_is_refused_while_a_sequence_is_prepared(store: StateStore) -> None:
    epoch = take(store).epoch
    first = sequence("one")
    store.prepare(first, epoch)
    before = contents(store)

    with pytest.raises(UnfinishedSequenceError, match=first.id):
        store.prepare(sequence("two"), epoch)

    assert contents(store) == before


def test_prepare_is_refused_while_a_sequence_is_aborting(store: StateStore) -> None:
    epoch = take(store).epoch
    first = sequence("one")
    store.prepare(first, epoch)
    store.start_abort(first.id, epoch, "staged files are lost")

    with pytest.raises(UnfinishedSequenceError, match=first.id):
        store.prepare(sequence("two"), epoch)


def test_prepare_is_refused_while_a_sequence_is_quarantined_and_others_go_on(store: StateStore) -> None:
    epoch = take(store).epoch
    first = sequence("one")
    store.prepare(first, epoch)
    store.quarantine(first.id, "a stranger's file is in the way")

    with pytest.raises(UnfinishedSequenceError, match=first.id):
        store.prepare(sequence("two"), epoch)

    publish(store, "three", urn="another")
    assert set(store.load_dataset_states(JOB)) == {"another"}


def test_of_two_prepares_that_race_one_is_stored(store: StateStore) -> None:
    epoch = take(store).epoch
    one, two = sequence("one"), sequence("two")

    results = race(lambda: store.prepare(one, epoch), lambda: store.prepare(two, epoch))

    assert len(store.load_sequences(JOB)) == 1
    assert sorted(type(result).__name__ for result in results) == ["NoneType", "UnfinishedSequenceError"]


# -- commit ------------------------------------------------------------------------------------------------------------
def test_commit_moves_state_files_and_sequence_together(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == files_of(seq)
    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.COMMITTED)
    assert store.load_sequences(JOB) == []


def test_commit_without_files_moves_the_state(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    store.commit(seq.id, epoch, CommitEffect(state(1)))

    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == []


def test_commit_again_changes_nothing(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
    before = contents(store)

    store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert contents(store) == before


def test_commit_again_after_the_next_commit_changes_nothing(store: StateStore) -> None:
    first = publish(store, "one")
    publish(store, "two", 1)
    before = contents(store)

    store.commit(first.id, take(store).epoch, CommitEffect(state(1), files_of(first)))

    assert contents(store) == before


def test_commit_with_an_old_epoch_is_refused_whole(store: StateStore) -> None:
    seq = sequence("one")
    old = take(store, OTHER, ttl=EXPIRED)
    store.prepare(seq, old.epoch)
    take(store)
    before = contents(store)

    with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
        store.commit(seq.id, old.epoch, CommitEffect(state(1), files_of(seq)))

    assert contents(store) == before


def test_commit_by_the_new_holder_finishes_what_the_old_one_prepared(store: StateStore) -> None:
    seq = sequence("one")
    store.prepare(seq, take(store, OTHER, ttl=EXPIRED).epoch)

    store.commit(seq.id, take(store).epoch, CommitEffect(state(1), files_of(seq)))

    assert store.load_dataset_states(JOB) == {URN: state(1)}


def test_commit_of_an_unknown_sequence_is_refused(store: StateStore) -> None:
    take(store)

    with pytest.raises(CorruptRecordError, match="does-not-exist"):
        store.commit("does-not-exist", 1, CommitEffect(state(1)))

    assert contents(store) == ({}, [], [], [], [])


@pytest.mark.parametrize("end", ["aborting", "aborted", "quarantined"])
def test_commit_of_a_sequence_that_was_given_up_is_refused_whole(store: StateStore, end: str) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    if end == "quarantined":
        store.quarantine(seq.id, "a reason")
    else:
        store.start_abort(seq.id, epoch, "a reason")
    if end == "aborted":
        store.finish_abort(seq.id, epoch)
    before = contents(store)

    with pytest.raises(CorruptRecordError, match=end):
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert contents(store) == before


def test_of_two_commits_of_a_sequence_that_race_one_takes_effect(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    def commit() -> None:
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

    assert race(commit, commit) == [None, None]
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == files_of(seq)


@pytest.mark.parametrize("urn", ["d1", "d2", "d3"])
def test_of_a_commit_and_an_abort_that_race_one_wins(store: StateStore, urn: str) -> None:
    seq = sequence("one", urn=urn)
    epoch = take(store, urn=urn).epoch
    store.prepare(seq, epoch)

    commit, abort = race(
        lambda: store.commit(seq.id, epoch, CommitEffect(state(1, urn), files_of(seq))),
        lambda: store.start_abort(seq.id, epoch, "gave up"),
    )

    won = commit is None
    assert won == isinstance(abort, CorruptRecordError)
    assert state_of(store, seq) is (SequenceState.COMMITTED if won else SequenceState.ABORTING)
    assert bool(store.load_dataset_states(JOB)) == bool(store.load_snapshot(JOB, urn)) == won


def test_of_a_takeover_and_a_commit_that_race_the_state_tells_which_came_first(store: StateStore) -> None:
    seq = sequence("one")
    old = take(store, OTHER, ttl=EXPIRED)
    store.prepare(seq, old.epoch)

    committed, lease = race(
        lambda: store.commit(seq.id, old.epoch, CommitEffect(state(1), files_of(seq))),
        lambda: take(store),
    )

    assert isinstance(lease, Lease)
    assert lease.epoch == old.epoch + 1
    won = committed is None
    assert won or isinstance(committed, StaleEpochError)
    assert bool(store.load_dataset_states(JOB)) == won


# -- abort, quarantine, redo -------------------------------------------------------------------------------------------
def test_an_aborted_sequence_makes_room_for_the_next(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    store.start_abort(seq.id, epoch, "staged files are lost")
    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.ABORTING, reason="staged files are lost")
    assert [found.id for found in store.load_sequences(JOB)] == [seq.id]
    store.finish_abort(seq.id, epoch)

    assert state_of(store, seq) is SequenceState.ABORTED
    assert store.load_sequences(JOB) == []
    publish(store, "two")
    assert store.load_dataset_states(JOB) == {URN: state(1)}


def test_aborting_steps_may_be_repeated(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    for reason in ("staged files are lost", "tried again"):
        store.start_abort(seq.id, epoch, reason)
    for _ in range(2):
        store.finish_abort(seq.id, epoch)

    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.ABORTED, reason="staged files are lost")


def test_aborting_with_an_old_epoch_is_refused(store: StateStore) -> None:
    seq = sequence("one")
    old = take(store, OTHER, ttl=EXPIRED)
    store.prepare(seq, old.epoch)
    new = take(store)

    with pytest.raises(StaleEpochError):
        store.start_abort(seq.id, old.epoch, "gave up")
    assert state_of(store, seq) is SequenceState.PREPARED

    store.start_abort(seq.id, new.epoch, "gave up")
    with pytest.raises(StaleEpochError):
        store.finish_abort(seq.id, old.epoch)
    assert state_of(store, seq) is SequenceState.ABORTING


def test_a_committed_sequence_can_neither_be_aborted_nor_quarantined(store: StateStore) -> None:
    seq = publish(store, "one")
    epoch = take(store).epoch
    before = contents(store)

    with pytest.raises(CorruptRecordError, match="committed"):
        store.start_abort(seq.id, epoch, "gave up")
    with pytest.raises(CorruptRecordError, match="committed"):
        store.finish_abort(seq.id, epoch)
    with pytest.raises(CorruptRecordError, match="committed"):
        store.quarantine(seq.id, "gave up")

    assert contents(store) == before


def test_an_abort_cannot_end_before_it_began(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)

    with pytest.raises(CorruptRecordError, match="prepared"):
        store.finish_abort(seq.id, epoch)

    assert state_of(store, seq) is SequenceState.PREPARED


@pytest.mark.parametrize("begun", [False, True], ids=["prepared", "aborting"])
def test_quarantine_keeps_the_reason_and_is_no_longer_recovered(store: StateStore, begun: bool) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    if begun:
        store.start_abort(seq.id, epoch, "gave up")

    store.quarantine(seq.id, "größe passt nicht")

    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.QUARANTINED, reason="größe passt nicht")
    assert store.load_sequences(JOB) == []
    assert [found.id for found in store.load_sequences(JOB, [SequenceState.QUARANTINED])] == [seq.id]


def test_failed_redos_are_counted_one_by_one(store: StateStore) -> None:
    seq = sequence("one")
    store.prepare(seq, take(store).epoch)

    counts = [store.record_redo_failure(seq.id, f"disk full {n}") for n in (1, 2, 3)]

    assert counts == [1, 2, 3]
    assert store.load_sequence(seq.id) == replace(seq, redo_failures=3, reason="disk full 3")


# -- sequences, snapshots, reports -------------------------------------------------------------------------------------
def test_sequences_are_found_by_job_state_and_dataset_newest_first(store: StateStore) -> None:
    old = publish(store, "old")
    new = publish(store, "new", 1)
    other = sequence("other", urn="other")
    store.prepare(other, take(store, urn="other").epoch)
    publish(store, "elsewhere", job="another")

    committed = [SequenceState.COMMITTED]
    assert [seq.id for seq in store.load_sequences(JOB, committed)] == [new.id, old.id]
    assert [seq.id for seq in store.load_sequences(JOB, committed, limit=1)] == [new.id]
    assert len(store.load_sequences(None, committed)) == 3
    assert [seq.id for seq in store.load_sequences()] == [other.id]
    assert store.load_sequences(JOB, urns=[URN]) == []
    assert store.load_sequences(JOB, []) == []
    assert store.load_sequence("absent") is None


def test_snapshots_accumulate_and_old_ones_stay_readable(store: StateStore) -> None:
    first = files_of(publish(store, "one"))
    second = files_of(publish(store, "two", 1))

    assert store.load_snapshot(JOB, URN) == in_order([*first, *second])
    assert store.load_snapshot(JOB, URN, 2) == in_order([*first, *second])
    assert store.load_snapshot(JOB, URN, 1) == first
    assert store.load_snapshot(JOB, URN, 0) == []
    assert store.load_snapshot(JOB, "another") == []


def test_snapshot_files_are_ordered_by_branch_and_path(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    files = files_of(seq, ["b", "B", "a", "_", "é", "-", "10", "9"])

    store.commit(seq.id, epoch, CommitEffect(state(1), files))

    assert store.load_snapshot(JOB, URN) == in_order(files)


def test_committed_sequences_are_unreported_until_marked_oldest_first(store: StateStore) -> None:
    first, second = publish(store, "one"), publish(store, "two", 1)
    other = sequence("other", urn="other")
    store.prepare(other, take(store, urn="other").epoch)
    publish(store, "elsewhere", job="another")

    assert [seq.id for seq in store.load_unreported(JOB)] == [first.id, second.id]

    store.mark_reported([first.id])
    store.mark_reported([first.id])
    assert [seq.id for seq in store.load_unreported(JOB)] == [second.id]
    assert store.load_sequence(first.id) == replace(first, state=SequenceState.COMMITTED, reported=True)

    store.mark_reported([second.id, "unknown"])
    store.mark_reported([])
    assert store.load_unreported(JOB) == []


# -- runs --------------------------------------------------------------------------------------------------------------
def run_record(name: str, started_at: datetime, job: str = JOB) -> RunRecord:
    datasets = {urn: DatasetRunRecord(DatasetOutcome.FAILED, error="größe") for urn in STRANGE_URNS}
    return RunRecord(name, job, started_at, RunStatus.SUCCEEDED, datasets=datasets)


def test_runs_are_kept_newest_first(store: StateStore) -> None:
    one = run_record("run-1", START)
    two = run_record("run-2", START + timedelta(seconds=1))
    three = run_record("run-3", START + timedelta(seconds=2), job="another")
    for record in (two, three, one):
        store.save_run(record)

    assert store.load_runs() == [three, two, one]
    assert store.load_runs(limit=2) == [three, two]
    assert store.load_runs(JOB) == [two, one]
    assert store.load_runs(JOB, 1) == [two]
    assert store.load_runs("absent") == []


def test_all_but_the_newest_runs_of_a_job_are_forgotten(store: StateStore) -> None:
    for number in range(5):
        store.save_run(run_record(f"run-{number}", START + timedelta(minutes=number)))
    store.save_run(RunRecord("run-other", "other", START, RunStatus.SUCCEEDED))
    store.prune_runs(JOB, keep=2)
    assert [run.run_id for run in store.load_runs()] == ["run-4", "run-3", "run-other"]
    store.prune_runs("absent", keep=2)


def test_a_run_saved_again_replaces_its_record(store: StateStore) -> None:
    running = run_record("run-1", START)
    ended = replace(running, status=RunStatus.PARTIAL, ended_at=START + timedelta(seconds=5), datasets={})
    store.save_run(running)
    store.save_run(ended)

    assert store.load_runs() == [ended]


# -- the store itself --------------------------------------------------------------------------------------------------
def test_everything_is_there_after_reopening(maker: StoreMaker) -> None:
    store = maker.open()
    publish(store, "one")
    store.save_run(run_record("run-1", START))
    leases, before = store.load_leases(JOB), contents(store)
    store.close()

    again = maker.open()

    assert contents(again) == before
    assert again.load_leases(JOB) == leases
    assert again.load_runs() == [run_record("run-1", START)]


def test_a_second_opening_sees_what_the_first_commits(maker: StoreMaker) -> None:
    one, two = maker.open(), maker.open()
    assert two.load_dataset_states(JOB) == {}

    publish(one, "one")

    assert two.load_dataset_states(JOB) == {URN: state(1)}
    assert set(two.acquire_leases(JOB, [URN], OTHER, TTL).busy) == {URN}


@pytest.mark.parametrize("maker", NEARBY, indirect=True)  # far ones take minutes, and promise nothing of the time
def test_many_datasets_cost_few_calls(store: StateStore) -> None:
    urns = [f"dataset/{n:05}" for n in range(2_000)]

    granted = store.acquire_leases(JOB, urns, ME, TTL).granted
    renewed = store.renew_leases(JOB, list(granted.values()), 2 * TTL)
    store.release_leases(JOB, list(renewed.values()))

    assert set(granted) == set(renewed) == set(urns)
    assert store.load_leases(JOB) == {}
    assert store.load_dataset_states(JOB, urns) == {}


def test_a_commit_of_many_files_is_stored_whole(store: StateStore) -> None:
    seq = sequence("one")
    epoch = take(store).epoch
    store.prepare(seq, epoch)
    files = files_of(seq, [f"{n:05}" for n in range(2_500)])

    store.commit(seq.id, epoch, CommitEffect(state(1), files))

    assert store.load_snapshot(JOB, URN) == files
