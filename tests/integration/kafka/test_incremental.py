"""Reading again and again equals reading once, whatever comes when and whatever fails: on a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.state.sql.store import SqlStateStore
from tests.integration.kafka.conftest import KafkaJob


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.storm) for seed in (1, 2))])
def test_incremental_equals_full_under_random_arrivals_and_faults(
    new_job: Callable[..., KafkaJob], monkeypatch: pytest.MonkeyPatch, policy: str, seed: int
) -> None:
    dice = random.Random(f"{policy} {seed}")
    job = new_job(partitions=3)
    commit = {"policy": policy, "durability": "fast"}
    sent = 0
    for _ in range(6):
        for partition in range(3):
            more = dice.choice([0, 1, 40])
            job.send(range(sent, sent + more), partition)
            sent += more
        job.parts = {"commit": commit, "execution": {"retries": {"count": 0}}}
        with monkeypatch.context() as patched:
            fault = dice.choice(["none", "row", "commit"])
            if fault == "row":
                bad = dice.randrange(sent + 1)
                job.parts["row_policies"] = [
                    {"name": "not_bad", "type": "sql", "rule": f"id <> {bad}", "on_violation": "fail"}
                ]
            elif fault == "commit":
                patched.setattr(SqlStateStore, "commit", _store_away)
            job.run()
        found = job.ids()
        assert len(found) == len(set(found))
    job.parts = {"commit": commit}
    assert job.run().status is RunStatus.SUCCEEDED
    assert job.ids() == list(range(sent))
    assert not job.plan().has_work


def _store_away(*_: Any, **__: Any) -> None:
    raise OSError("the store is away")
