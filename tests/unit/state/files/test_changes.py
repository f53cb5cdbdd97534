"""Checks of the commit that can fail only if the files of the store were edited by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, WatermarkMovedError
from gobblin_dagster.state.files import changes
from gobblin_dagster.state.files.records import DatasetHead, SequenceEntry
from gobblin_dagster.testing.conformance.state_store.values import JOB, URN, sequence, state

PREPARED = DatasetHead(JOB, URN, epoch=1, state=state(1), entry=SequenceEntry(3, sequence("one", 1)))


def test_commit_swaps_state_and_sequence_together() -> None:
    head = changes.commit(PREPARED, 1, CommitEffect(state(2)))
    assert head is not None
    assert head.version == 2
    assert head.entry is not None
    assert head.entry.sequence.state == "committed"


def test_commit_from_another_version_is_refused() -> None:
    with pytest.raises(WatermarkMovedError, match="planned from version 1, the store holds 5"):
        changes.commit(replace(PREPARED, state=state(5)), 1, CommitEffect(state(2)))


@pytest.mark.parametrize(
    "after",
    [state(1), state(3), state(2, urn="another"), state(2, job="another")],
    ids=["same version", "version skipped", "another dataset", "another job"],
)
def test_commit_of_a_state_that_is_not_the_next_is_refused(after: DatasetState) -> None:
    with pytest.raises(CorruptRecordError, match=f"{JOB}.*{URN}.*2.*got that of"):
        changes.commit(PREPARED, 1, CommitEffect(after))
