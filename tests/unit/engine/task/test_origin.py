"""Ids of what was read: they are committed with it, kept, and forgotten with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import Field

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.startpoint import Specific, Upcoming
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.rows_source import RowsSource
from tests.unit.engine.jobs import job_spec, published, run
from tests.unit.engine.plan.test_startpoints import store_of, wish

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class NamedRows(RowsSource):
    """Rows of tables that have ids."""

    class Options(RowsSource.Options):
        """What exists, and its ids."""

        origin: dict[str, str] = Field(default_factory=dict)

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        assert isinstance(self._options, self.Options)
        for offer in super().plan(context):
            yield replace(offer, origin=self._options.origin)


def job(rows: int, **origin: str) -> JobSpec:
    source = {
        "type": "tests.unit.engine.task.test_origin:NamedRows",
        "datasets": {"a": {"rows": rows}},
        "origin": origin,
    }
    return job_spec({}, source=source)


def state_of(root: Path, spec: JobSpec) -> DatasetState:
    with store_of(root, spec) as store:
        return store.load_dataset_states(spec.job)["a"]


def test_ids_of_what_was_read_are_committed_and_others_stay(tmp_path: Path) -> None:
    run(tmp_path, job(10, orders="1", users="1"))
    assert state_of(tmp_path, job(10)).origin == {"orders": "1", "users": "1"}
    run(tmp_path, job(20, orders="2"))
    assert state_of(tmp_path, job(20)).origin == {"orders": "2", "users": "1"}
    run(tmp_path, job(20, orders="3"))  # nothing is committed, so nothing is known of it
    assert state_of(tmp_path, job(20)).origin == {"orders": "2", "users": "1"}


def test_reset_forgets_the_ids(tmp_path: Path) -> None:
    spec = job(10, orders="1")
    run(tmp_path, spec)
    with store_of(tmp_path, spec) as store:
        apply_change(store, plan_reset(state_of(tmp_path, spec), who="anna", why="it was made anew", now=NOON))
    assert state_of(tmp_path, spec).origin == {}
    run(tmp_path, job(10, orders="2"))
    assert state_of(tmp_path, spec).origin == {"orders": "2"}


@pytest.mark.parametrize("rows", [10, 15], ids=["nothing behind it", "rows behind it"])
def test_startpoint_is_a_position_in_what_is_there_now(tmp_path: Path, rows: int) -> None:
    run(tmp_path, job(10, orders="1", users="1"))
    spec = job(rows, orders="2")
    wish(tmp_path, spec, Upcoming() if rows == 10 else Specific("12"), "a")
    run(tmp_path, spec)
    assert state_of(tmp_path, spec).origin == {"orders": "2"}
    assert published(tmp_path, spec, "a") == [*range(10), *range(12, rows)]


def test_state_that_an_older_program_wrote_has_no_ids() -> None:
    state = DatasetState("j", "a", 1, CommittedRanges(LongWatermark, {}), 1, "r", NOON, origin={"orders": "1"})
    assert from_json(DatasetState, to_json(state)) == state
    older = json.loads(to_json(state))
    del older["origin"]
    loaded = from_json(DatasetState, json.dumps(older))
    assert loaded.origin == {}
    assert not loaded.is_other("orders", "2")


def test_another_id_is_told_where_both_are_known() -> None:
    state = DatasetState("j", "a", 1, CommittedRanges(LongWatermark, {}), 1, "r", NOON, origin={"orders": "1"})
    told = {(name, new): state.is_other(name, new) for name in ("orders", "users") for new in ("", "1", "2")}
    assert [key for key, is_other in told.items() if is_other] == [("orders", "2")]
