"""Implementations that break their protocols, each in one point; `test_broken.py` runs this file as an implementer would."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance import StateStoreConformance, StepStoreConformance, StorageConformance


class OverwritingStorage(MemoryStorage):
    def move(self, source: str, target: str) -> None:
        self.delete(target)
        super().move(source, target)


class TestOverwritingStorage(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return OverwritingStorage()


class ForgetfulStore(FileStateStore):
    """Gives leases back under the same epoch, and loses what a commit takes out."""

    def renew_leases(self, job: str, leases: object, ttl: timedelta) -> dict[str, Lease]:
        return {}

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        super().commit(sequence_id, epoch, CommitEffect(effect.after, effect.files, (), effect.startpoint))


class TestForgetfulStore(StateStoreConformance):
    @pytest.fixture
    def open_one(self) -> Callable[[Clock], ForgetfulStore]:
        storage = MemoryStorage()
        return lambda clock: ForgetfulStore("/state", storage, clock)


class TestNothingGiven(StepStoreConformance):
    pass
