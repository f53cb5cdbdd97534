"""Tests of a state store's dataset states, and of the store: opened again, by several processes, with much data."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import (
    StaleEpochError,
)
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore, StoreMaker
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    OTHER,
    START,
    STRANGE_URNS,
    TTL,
    URN,
    contents,
    files_of,
    publish,
    run_record,
    sequence,
    state,
    take,
)


class States(OpensStore):
    """States of datasets, and what they never share."""

    def test_a_new_store_is_empty(self, store: StateStore) -> None:
        """A new store holds nothing: every load returns an empty result."""
        assert contents(store) == ({}, [], [], [], [])
        assert store.load_leases(JOB) == {}
        assert store.load_runs() == []

    def test_a_committed_state_is_loaded_whole(self, store: StateStore) -> None:
        """`load_dataset_states` returns a committed state with every field."""
        publish(store, "one")

        assert store.load_dataset_states(JOB) == {URN: state(1)}

    def test_states_are_loaded_of_the_named_datasets_only(self, store: StateStore) -> None:
        """`load_dataset_states` returns the named datasets of the job alone; with no names none, with None all."""
        for urn in ("a", "b", "c"):
            publish(store, urn, urn=urn)

        assert set(store.load_dataset_states(JOB, ["a", "c", "absent"])) == {"a", "c"}
        assert store.load_dataset_states(JOB, []) == {}
        assert store.load_dataset_states("another") == {}

    def test_jobs_are_listed_once_and_sorted(self, store: StateStore) -> None:
        """`list_jobs` returns each job that has a state or a run once, sorted."""
        publish(store, "one", job="b")
        publish(store, "two", job="Ä")
        publish(store, "three", job="a")
        take(store, job="a", urn="leased only")
        store.save_run(RunRecord("run-9", "c", START, RunStatus.SUCCEEDED))

        assert store.list_jobs() == ["a", "b", "c", "Ä"]
        assert store.list_jobs(["another", URN]) == ["a", "b", "Ä"]
        assert store.list_jobs(["another", URN], ["b", "none"]) == store.list_jobs(besides=["b", "c"]) == ["a", "Ä"]
        assert store.list_jobs(["leased only"]) == []

    def test_urns_never_share_anything(self, store: StateStore) -> None:
        """Two dataset.urns never share a state, lease, snapshot or sequence, whatever characters they hold."""
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

    def test_jobs_share_nothing_under_the_same_urn(self, store: StateStore) -> None:
        """Two jobs share nothing, also where job and dataset.urn together read alike."""
        publish(store, "one", job="j/a")
        publish(store, "two", job="j", urn=f"a/{URN}")

        assert store.load_dataset_states("j/a") == {URN: state(1, job="j/a")}
        assert store.load_dataset_states("j") == {f"a/{URN}": state(1, f"a/{URN}", "j")}
        assert store.load_snapshot("j", URN) == []

    def test_jobs_share_no_epoch_under_the_same_urn(self, store: StateStore) -> None:
        """`prepare` compares the epoch with that of the job's own lease."""
        for _ in range(2):
            store.release_leases("another", [take(store, job="another")])

        publish(store, "one")

        with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
            store.prepare(sequence("two", job="another"), 1)

    def test_everything_is_there_after_reopening(self, maker: StoreMaker) -> None:
        """A store that is opened again holds everything."""
        store = maker.open()
        publish(store, "one")
        store.save_run(run_record("run-1", START))
        leases, before = store.load_leases(JOB), contents(store)
        store.close()

        again = maker.open()

        assert contents(again) == before
        assert again.load_leases(JOB) == leases
        assert again.load_runs() == [run_record("run-1", START)]

    def test_a_second_opening_sees_what_the_first_commits(self, maker: StoreMaker) -> None:
        """A commit by one opened store is seen by another at once."""
        one, two = maker.open(), maker.open()
        assert two.load_dataset_states(JOB) == {}

        publish(one, "one")

        assert two.load_dataset_states(JOB) == {URN: state(1)}
        assert set(two.acquire_leases(JOB, [URN], OTHER, TTL).busy) == {URN}

    def test_a_commit_of_many_files_is_stored_whole(self, store: StateStore) -> None:
        """`commit` stores thousands of files."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        files = files_of(seq, [f"{n:05}" for n in range(2_500)])

        store.commit(seq.id, epoch, CommitEffect(state(1), files))

        assert store.load_snapshot(JOB, URN) == files
