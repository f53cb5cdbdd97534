"""The API of the exactly-once design, over every state store that we ship; its own example is run as it stands
there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.engine.commit import step_store
from gobblin_dagster.engine.commit.step_store import CommitSequenceStore, CommitStepStore
from gobblin_dagster.engine.commit.steps.transaction import HighWatermarkStep
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.conformance import StepStoreConformance
from tests.contract.conftest import STORES


class TestStepStore(StepStoreConformance):
    @pytest.fixture(params=STORES)
    def open_one(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
        opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
        return opens


def test_names_of_the_original() -> None:
    assert CommitSequenceStore is CommitStepStore
    assert CommitStepStore.delete is CommitStepStore.remove
    assert CommitStepStore.get is CommitStepStore.get_commit_sequence
    assert step_store.BoundStep.is_completed is step_store.BoundStep.verify


def test_watermark_step_survives_json() -> None:
    step = HighWatermarkStep("kafka_hdfs", "MyTopic", "0", 5, CompositeWatermark)
    assert HighWatermarkStep.from_json(step.to_json()) == step
