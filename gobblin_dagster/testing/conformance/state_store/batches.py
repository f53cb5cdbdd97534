"""Tests of a state store's `prepare_all` and `commit_all`: datasets that share transactions do not harm each other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState, StoredSequence
from gobblin_dagster.core.errors import (
    SequenceChangedError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore
from gobblin_dagster.testing.conformance.state_store.values import (
    EXPIRED,
    JOB,
    OTHER,
    contents,
    ending_of,
    files_of,
    in_order,
    publish,
    sequence,
    state,
    take,
)

URNS = ("a", "b", "c")


class Batches(OpensStore):
    """`prepare_all` and `commit_all`; what an error leaves is finished by `prepare` and `commit`."""

    def test_prepare_all_and_commit_all_move_all_datasets(self, store: StateStore) -> None:
        """Both do for each dataset what `prepare` and `commit` do, with old datasets beside new ones."""
        publish(store, "older", urn="b")
        batch = _batch(store, {"b": 1})

        store.prepare_all(batch)
        assert {ending_of(store, seq) for seq, _ in batch} == {SequenceState.PREPARED}
        store.commit_all(_effects(batch))

        assert {ending_of(store, seq) for seq, _ in batch} == {SequenceState.COMMITTED}
        assert store.load_dataset_states(JOB) == {"a": state(1, "a"), "b": state(2, "b"), "c": state(1, "c")}
        for seq, _ in batch:
            files = [file for file in store.load_snapshot(JOB, seq.dataset_urn) if seq.id in file.path]
            assert files == in_order(files_of(seq))

    def test_prepare_all_refuses_a_lost_lease_and_the_others_can_be_prepared(self, store: StateStore) -> None:
        """`prepare_all` with one old epoch raises StaleEpochError; the others are stored, or `prepare` stores them."""
        batch = _batch(store, expired="b")
        take(store, OTHER, urn="b")

        with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
            store.prepare_all(batch)

        for seq, epoch in (item for item in batch if item[0].dataset_urn != "b"):
            with suppress(UnfinishedSequenceError):
                store.prepare(seq, epoch)
        endings = {seq.dataset_urn: ending_of(store, seq) for seq, _ in batch}
        assert endings == {"a": SequenceState.PREPARED, "b": None, "c": SequenceState.PREPARED}

    def test_prepare_all_refuses_what_was_planned_from_another_version(self, store: StateStore) -> None:
        """`prepare_all` with one dataset planned from an old version raises WatermarkMovedError; it is not stored."""
        publish(store, "older", urn="c")
        batch = _batch(store)

        with pytest.raises(WatermarkMovedError, match="planned from version 0, the store holds 1"):
            store.prepare_all(batch)

        assert ending_of(store, batch[-1][0]) is None

    def test_prepare_all_again_names_a_sequence_that_is_stored(self, store: StateStore) -> None:
        """`prepare_all` of stored sequences raises UnfinishedSequenceError with the id of one; changes nothing."""
        batch = _batch(store)
        store.prepare_all(batch)
        before = contents(store)

        with pytest.raises(UnfinishedSequenceError) as caught:
            store.prepare_all(batch)

        assert caught.value.sequence_id in {seq.id for seq, _ in batch}
        assert contents(store) == before

    def test_commit_all_refuses_a_lost_lease_and_the_others_can_be_committed(self, store: StateStore) -> None:
        """`commit_all` with one old epoch raises StaleEpochError; that dataset stays, `commit` commits the others."""
        batch = _batch(store, expired="b")
        store.prepare_all(batch)
        take(store, OTHER, urn="b")

        with pytest.raises(StaleEpochError):
            store.commit_all(_effects(batch))

        for sequence_id, epoch, effect in _effects(batch):
            if effect.after.dataset_urn != "b":
                store.commit(sequence_id, epoch, effect)
        assert store.load_dataset_states(JOB) == {"a": state(1, "a"), "c": state(1, "c")}
        assert store.load_snapshot(JOB, "b") == []
        assert ending_of(store, batch[1][0]) is SequenceState.PREPARED

    def test_commit_all_refuses_a_sequence_that_was_given_up(self, store: StateStore) -> None:
        """`commit_all` with one ABORTING sequence raises SequenceChangedError, and does not commit it."""
        batch = _batch(store)
        store.prepare_all(batch)
        store.start_abort(batch[1][0].id, batch[1][1], "gave up")

        with pytest.raises(SequenceChangedError, match="aborting"):
            store.commit_all(_effects(batch))

        assert "b" not in store.load_dataset_states(JOB)

    def test_commit_all_leaves_committed_sequences_alone(self, store: StateStore) -> None:
        """`commit_all` commits the sequences that are PREPARED and changes nothing about COMMITTED ones."""
        batch = _batch(store)
        store.prepare_all(batch)
        store.commit(*_effects(batch)[0])

        store.commit_all(_effects(batch))
        before = contents(store)
        store.commit_all(_effects(batch))

        assert contents(store) == before
        assert set(store.load_dataset_states(JOB)) == set(URNS)


def _batch(
    store: StateStore, versions: dict[str, int] | None = None, expired: str = ""
) -> list[tuple[StoredSequence, int]]:
    """Sequences of three datasets, with leases; that of `expired` is over."""
    return [
        (
            sequence(f"of {urn}", (versions or {}).get(urn, 0), urn),
            (take(store, urn=urn, ttl=EXPIRED) if urn == expired else take(store, urn=urn)).epoch,
        )
        for urn in URNS
    ]


def _effects(batch: Sequence[tuple[StoredSequence, int]]) -> list[tuple[str, int, CommitEffect]]:
    return [
        (seq.id, epoch, CommitEffect(state(seq.version_read + 1, seq.dataset_urn), files_of(seq)))
        for seq, epoch in batch
    ]
