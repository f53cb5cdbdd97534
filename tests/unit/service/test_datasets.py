"""Datasets of flows: no flow shares state with another, and REST tells and changes where runs begin."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import select

from gobblin_dagster.client import FlowClient
from gobblin_dagster.core.commit import WAITING, SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import FlowNotFoundError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.watermark import DateWatermark, LongWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.service.datasets import lag_positions, lag_s
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.audit import broken_rows
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.tables import audit
from tests.services.flow_project import make_project, open_core, open_state, run_flow, store_flow
from tests.services.rest_service import answering

ORDERS, OTHER = FlowId("shop", "orders"), FlowId("shop/eu", "orders (new)")
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoreServices]:
    make_project(tmp_path)
    opened = open_core(tmp_path)
    store_flow(opened, ORDERS)
    yield opened
    opened.datasets.close()
    opened.store.close()


@pytest.fixture
def client(core: CoreServices) -> Iterator[FlowClient]:
    with answering(core) as url, FlowClient(url, core.token) as connected:
        yield connected


def rows_read(root: Path, core: CoreServices, flow: FlowId) -> int:
    return sum(one.rows_read for result in run_flow(root, core, flow) for one in result.datasets)


def audited(core: CoreServices) -> list[tuple[str, str, str]]:
    with core.store.read() as transaction:
        assert list(broken_rows(transaction)) == []
        return [
            (row.resource, row.outcome, row.detail)
            for row in transaction.execute(select(audit).order_by(audit.c.number))
        ]


def test_flows_of_one_template_share_no_state(core: CoreServices, tmp_path: Path) -> None:
    store_flow(core, OTHER, folder="other")
    assert rows_read(tmp_path, core, ORDERS) == 20
    assert core.datasets.find(OTHER) == [], "what the first flow read, the second has not"
    assert rows_read(tmp_path, core, OTHER) == 20
    # A later range of one flow moves only its own watermarks.
    store_flow(core, ORDERS, rows="15")
    assert rows_read(tmp_path, core, ORDERS) == 10
    marks = {
        flow: [str(one.state.watermark) for one in core.datasets.find(flow) if one.state] for flow in (ORDERS, OTHER)
    }
    assert marks == {ORDERS: ["15", "15"], OTHER: ["10", "10"]}
    names = [{one.job for one in core.datasets.find(flow)} for flow in (ORDERS, OTHER)]
    assert len(names[0] | names[1]) == 2


def test_datasets_tell_watermark_rows_and_rejected_rows(core: CoreServices, client: FlowClient, tmp_path: Path) -> None:
    assert client.datasets("shop", "orders") == []
    run_flow(tmp_path, core, ORDERS)
    [first, second] = client.datasets("shop", "orders")
    assert (first["jobName"], first["datasetUrn"], first["watermark"]) == ("shop__orders__rows", "a", "10")
    assert (first["rowsRead"], first["rowsWritten"], first["rowsQuarantined"]) == (10, {"main": 9}, 1)
    assert "lagSeconds" not in first, "ids are no times"
    assert first["lagPositions"] == 0
    assert client.dataset("shop", "orders", "b/c") == second
    with pytest.raises(FlowNotFoundError, match="Nothing is known of dataset 'nope'"):
        client.dataset("shop", "orders", "nope")
    with pytest.raises(FlowNotFoundError, match="does not exist: shop/nope"):
        client.datasets("shop", "nope")


def test_deleted_flow_still_tells_its_datasets(core: CoreServices, client: FlowClient, tmp_path: Path) -> None:
    run_flow(tmp_path, core, ORDERS)
    client.delete("shop", "orders")
    (tmp_path / "templates" / "rows.template").rename(tmp_path / "gone")
    assert client.datasets("shop", "orders") == [], "no execution ran through the service, and the template is gone"
    (tmp_path / "gone").rename(tmp_path / "templates" / "rows.template")
    assert len(client.datasets("shop", "orders")) == 2


def test_startpoint_by_rest_is_honoured_once_and_audited(
    core: CoreServices, client: FlowClient, tmp_path: Path
) -> None:
    run_flow(tmp_path, core, ORDERS)
    told = client.set_startpoint("shop", "orders", "b/c", "4", "bad files", on_rewind="append")
    assert (told["position"], told["reason"], told["setBy"]) == ("4", "bad files", "owner")
    assert client.dataset("shop", "orders", "b/c")["startpoint"] == told
    [result] = run_flow(tmp_path, core, ORDERS)
    assert {one.dataset_urn: one.rows_read for one in result.datasets} == {"a": 0, "b/c": 6}
    assert "startpoint" not in client.dataset("shop", "orders", "b/c")
    client.set_startpoint("shop", "orders", "a", "oldest", "again", expires_in_days=1)
    assert client.remove_startpoint("shop", "orders", "a", "set by mistake")["position"] == "oldest"
    with open_state(tmp_path) as store:
        (job,) = store.list_jobs()
        last = store.load_startpoint_events(job)[-1]
        assert (last.change, last.startpoint.dataset_urn, last.who) == ("removed", "a", "owner")
    assert audited(core)[-3:] == [
        ("shop/orders", "allowed", "startpoint of 'b/c' set to 4: bad files"),
        ("shop/orders", "allowed", "startpoint of 'a' set to oldest: again"),
        ("shop/orders", "allowed", "startpoint of 'a' removed: set by mistake"),
    ]


def test_startpoint_that_goes_back_publishes_no_row_twice_unless_it_says_so(
    core: CoreServices, client: FlowClient, tmp_path: Path
) -> None:
    run_flow(tmp_path, core, ORDERS)
    assert client.set_startpoint("shop", "orders", "b/c", "4", "bad files")["onRewind"] == "refuse"
    [result] = run_flow(tmp_path, core, ORDERS)
    assert "published" in result.datasets[1].problem
    assert result.datasets[1].rows_read == 0


def test_what_is_no_startpoint_is_refused(core: CoreServices, client: FlowClient, tmp_path: Path) -> None:
    run_flow(tmp_path, core, ORDERS)
    for wrong, told in {"x": "is no watermark of type 'long'", "timestamp:soon": "cannot be read"}.items():
        with pytest.raises(UsageError, match=told):
            client.set_startpoint("shop", "orders", "a", wrong, "why")
    with pytest.raises(UsageError, match="'reason' takes a text"):
        client.set_startpoint("shop", "orders", "a", "4", " ")
    with pytest.raises(UsageError, match="'expiresInDays' takes 1 to"):
        client.set_startpoint("shop", "orders", "a", "4", "why", expires_in_days=0)
    with pytest.raises(UsageError, match="has no job 'nope'"):
        client.set_startpoint("shop", "orders", "a", "4", "why", job="nope")
    with pytest.raises(FlowNotFoundError, match="has no startpoint"):
        client.remove_startpoint("shop", "orders", "a", "why")
    assert client.dataset("shop", "orders", "a")["openSequences"] == []


def test_keys_bodies_and_strangers_are_refused(core: CoreServices) -> None:
    flow = "(flowGroup:shop,flowName:orders)"
    one = "(datasetUrn:a,flowGroup:shop,flowName:orders)"
    with answering(core) as url:

        def ask(method: str, path: str, body: Any = None, token: str | None = core.token) -> requests.Response:
            headers = {"X-RestLi-Protocol-Version": "2.0.0", "Authorization": f"Bearer {token}"}
            return requests.request(method, f"{url}/flowdatasets/{path}", json=body, headers=headers, timeout=10)

        good = {"position": "4", "reason": "why"}
        assert ask("POST", f"{one}?action=setStartpoint", good, token="wrong").status_code == 401
        for path, body in [
            (f"{flow}?action=setStartpoint", good),
            (f"{one}?action=nope", good),
            (f"{one}?action=setStartpoint", []),
            (f"{one}?action=setStartpoint", {**good, "more": 1}),
            (f"{one}?action=setStartpoint", {"reason": "why"}),
            (f"{one}?action=setStartpoint", {**good, "reason": 5}),
            ("(flowGroup:shop,flowName:orders,dataset:a)?action=setStartpoint", good),
        ]:
            assert ask("POST", path, body).status_code == 400, path
        assert ask("GET", "(flowGroup:shop)").status_code == 400
        assert ask("GET", f"{flow}?q=all").status_code == 200
        page = ask("GET", f"{flow}?start=0&count=1").json()
        assert (page["elements"], page["total"], page["jobNames"]) == ([], 0, ["shop__orders__rows"])


def test_open_sequences_are_told(core: CoreServices, client: FlowClient, tmp_path: Path) -> None:
    run_flow(tmp_path, core, ORDERS)
    with open_state(tmp_path) as store:
        job = "shop__orders__rows"
        version = store.load_dataset_states(job)["a"].version
        lease = store.acquire_leases(job, ["a"], LeaseOwner.current("run-9"), NOW - NOW.replace(hour=11)).granted["a"]
        open_one = StoredSequence("f" * 32, job, "a", "run-9", version, SequenceState.PREPARED, "{}", "d", NOW)
        store.prepare(open_one, lease.epoch)
        store.quarantine("f" * 32, "a person must look")
        assert [one.id for one in store.load_sequences(job, WAITING)] == ["f" * 32]
    [told] = client.dataset("shop", "orders", "a")["openSequences"]
    assert (told["sequence"], told["state"], told["reason"]) == ("f" * 32, "quarantined", "a person must look")


def test_lag_of_numbers_is_what_the_last_run_left(core: CoreServices, client: FlowClient, tmp_path: Path) -> None:
    run_flow(tmp_path, core, ORDERS)
    store_flow(core, ORDERS, rows="25", fail_at="20")
    run_flow(tmp_path, core, ORDERS)
    assert [one["lagPositions"] for one in client.datasets("shop", "orders")] == [15, 15]
    store_flow(core, ORDERS, rows="25")
    run_flow(tmp_path, core, ORDERS)
    run_flow(tmp_path, core, ORDERS)  # nothing is new: no dataset is in this run's record
    assert [one["lagPositions"] for one in client.datasets("shop", "orders")] == [0, 0]


def test_lag_is_unknown_if_no_run_told_it() -> None:
    ranges = CommittedRanges(LongWatermark, {}).add(WatermarkInterval(LongWatermark(0), LongWatermark(7)))
    state = DatasetState("j", "d", 1, ranges, 1, "r", NOW)
    older = RunRecord("r", "j", NOW, RunStatus.SUCCEEDED, NOW, {"d": DatasetRunRecord(DatasetOutcome.COMMITTED)})
    going = RunRecord("s", "j", NOW, RunStatus.RUNNING)
    assert lag_positions(state, [going, older]) is None, "a program without this count wrote the record"
    assert lag_positions(state, []) is None


@pytest.mark.parametrize(
    ("mark", "lag"),
    [(DateWatermark(date(2026, 11, 21)), 36 * 3600), (DateWatermark(date(2027, 1, 1)), 0), (LongWatermark(7), None)],
)
def test_lag_is_known_of_times_only(mark: Watermark, lag: int | None) -> None:
    [(name, position)] = mark.components().items()
    low = type(mark).from_components({name: type(mark).position_from_json(0 if lag is None else "2020-01-01")})
    ranges = CommittedRanges(type(mark), {}).add(WatermarkInterval(low, mark))
    assert str(ranges.watermark) == str(mark)
    assert position is not None
    assert lag_s(DatasetState("j", "d", 1, ranges, 1, "r", NOW), NOW) == lag
