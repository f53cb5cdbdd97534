"""What Dagster's pages show, asked from a real webserver whose runs are processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.remote_dagster import JOB_TAG, DagsterExecutor, GraphqlDagster
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus
from gobblin_dagster.service.topology.model import DagsterAddress
from tests.contract.executor_worlds import RemoteWorld
from tests.integration.dagster_server import STATUS, Webserver, running_webserver, wait_for
from tests.unit.engine.jobs import TWO_BRANCHES
from tests.unit.orchestration.world import BAD_BRANCH

pytestmark = pytest.mark.slow

DEFINITIONS = '''
"""Runs every job of this folder without Spark; kills a run between its commits and its events where it is told to."""
import os, signal, time
from pathlib import Path
import dagster as dg
import pyarrow as pa
from gobblin_dagster.orchestration import build_definitions, order_definitions
from gobblin_dagster.orchestration.report import RunReport
from gobblin_dagster.testing.inline_runner import InlineRunner

ROOT = Path(__file__).parent
log_commits = RunReport.log_commits

def killed(self, commit, result, failed_before):
    mark = ROOT / f"kill-{commit.job}"
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return log_commits(self, commit, result, failed_before)

RunReport.log_commits = killed

class HeldRunner(InlineRunner):
    def run(self, *given):
        while (ROOT / "hold").exists():
            (ROOT / "held").touch()
            time.sleep(0.05)
        return super().run(*given)

@dg.asset(ins={"rows": dg.AssetIn(key=["test", "below", "all"])},
          partitions_def=dg.DynamicPartitionsDefinition(name="below.dataset_urn"))
def count(rows: pa.Table) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": rows.num_rows})

defs = dg.Definitions.merge(build_definitions(ROOT, runner=InlineRunner()), dg.Definitions([count]))
if (ROOT / "orders").exists():  # the processes of other runs need not load the service
    defs = dg.Definitions.merge(defs, order_definitions(ROOT, runner=HeldRunner()))
'''
GOOD: dict[str, dict[str, Any]] = {"a": {"rows": 30}, "b": {"rows": 5}, "c": {"rows": 20}}
JOBS = ("partial", "ranges", "again", "below", "killed")


class Live:
    """A project with one job per test, and the webserver over it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "jobs").mkdir()
        (root / "gobblin.yaml").write_text("project: live\n")
        (root / "definitions.py").write_text(DEFINITIONS)
        for job in JOBS:
            self.write(job, GOOD)
        self.server = Webserver(0)

    def write(self, job: str, datasets: dict[str, dict[str, Any]], fork: Any = TWO_BRANCHES) -> None:
        """Write a job's file; the next run reads it."""
        source = {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": datasets}
        extract = {"namespace": "test", "table": job}
        body = {"job": job, "source": source, "extract": extract, "fork": fork, "output": {"path": "lake"}}
        (self.root / "jobs" / f"{job}.yaml").write_text(json.dumps(body))

    def run(self, job: str, *urns: str) -> tuple[str, str]:
        """Run a job without partitions; return status and id."""
        run_id = self.server.launch(f"{job}_job", config=run_config(job, list(urns)) if urns else None)
        return self.server.wait(run_id), run_id

    def run_range(
        self, job: str, first: str, last: str, branches: tuple[str, ...] = ("all", "masked")
    ) -> tuple[str, str]:
        """Run what the pages call "materialize" for a range of partitions; return status and id."""
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        assets = [("test", job, branch) for branch in branches]
        run_id = self.server.launch("__ASSET_JOB", assets, tags)
        return self.server.wait(run_id), run_id


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("live"))
    (made.root / "orders").touch()
    with running_webserver(made.root) as server:
        (made.root / "orders").unlink()
        made.server = server
        yield made


def test_bad_file_and_failing_branch_are_failed_partitions_with_metadata_on_the_others(live: Live) -> None:
    live.write("partial", GOOD | {"b": {"rows": 5, "fail_at": 2}, "bad_branch": {"rows": 5}}, BAD_BRANCH)
    status, run_id = live.run("partial", "a", "b", "bad_branch", "c")
    assert status == "FAILURE"
    for branch in ("all", "masked"):
        shown = live.server.shown(("test", "partial", branch), ["a", "b", "c"])
        assert (shown.materialized, shown.failed, shown.counts) == ({"a", "c"}, {"b", "bad_branch"}, (2, 2, 4))
        assert shown.events == {"a": [run_id], "c": [run_id]}
    assert shown.latest["a"][md.ACTUAL_HIGH] == "30"
    assert shown.latest["a"][md.ROWS] == 30
    assert shown.latest["c"][md.RUN_ID] == run_id


def test_range_of_a_selected_branch_reports_every_branch_and_keeps_idle_partitions_green(live: Live) -> None:
    assert live.run("ranges")[0] == "SUCCESS"
    live.write("ranges", GOOD | {"c": {"rows": 25, "fail_at": 22}, "b": {"rows": 9}})
    assert live.run_range("ranges", "a", "c", ("all",))[0] == "FAILURE"
    for branch in ("all", "masked"):
        shown = live.server.shown(("test", "ranges", branch), ["a", "b", "c"])
        assert (shown.materialized - shown.failed, shown.failed, shown.counts) == ({"a", "b"}, {"c"}, (2, 1, 3))
        assert (shown.latest["a"][md.MOVED], shown.latest["b"][md.MOVED]) == (True, True)
        assert (shown.latest["a"][md.ACTUAL_HIGH], shown.latest["b"][md.ACTUAL_HIGH]) == ("30", "9")


def test_retry_redoes_only_what_its_parent_did_not_commit(live: Live) -> None:
    live.run("again")
    live.write("again", {"a": {"rows": 31}, "b": {"rows": 6, "fail_at": 5}, "c": {"rows": 20}})
    status, parent = live.run_range("again", "a", "c")
    assert status == "FAILURE"
    failing = live.server.retry(parent)
    assert live.server.wait(failing) == "FAILURE"
    shown = live.server.shown(("test", "again", "all"), ["a"])
    assert (shown.materialized - shown.failed, shown.failed) == ({"a", "c"}, {"b"})
    assert (shown.latest["a"][md.RUN_ID], shown.latest["a"][md.MOVED]) == (parent, True)
    live.write("again", {"a": {"rows": 31}, "b": {"rows": 6}, "c": {"rows": 20}})
    mended = live.server.retry(failing)
    assert live.server.wait(mended) == "SUCCESS"
    shown = live.server.shown(("test", "again", "all"), ["a", "b"])
    assert (shown.materialized, shown.failed) == ({"a", "b", "c"}, set())
    assert shown.latest["b"][md.RUN_ID] == mended
    assert mended not in shown.events["a"]


def test_downstream_asset_in_a_run_of_its_own_loads_committed_data_only(live: Live) -> None:
    live.run("below")
    live.write("below", GOOD | {"a": {"rows": 40, "fail_at": 35}})
    assert live.run("below")[0] == "FAILURE"
    run_id = live.server.launch("__ASSET_JOB", [("count",)], {"dagster/partition": "a"})
    assert live.server.wait(run_id) == "SUCCESS"
    assert live.server.shown(("count",), ["a"]).latest["a"]["rows"] == 30


def test_killed_run_is_failed_and_its_commits_appear_once_in_the_next(live: Live) -> None:
    (live.root / "kill-killed").touch()
    status, killed = live.run("killed")
    assert status == "FAILURE"
    assert live.server.shown(("test", "killed", "all"), ["a"]).events == {}
    status, after = live.run("killed")
    assert status == "SUCCESS"
    for branch in ("all", "masked"):
        shown = live.server.shown(("test", "killed", branch), ["a", "b", "c"])
        assert (shown.materialized, shown.failed) == ({"a", "b", "c"}, set())
        assert shown.events == {key: [after] for key in "abc"}
        assert {shown.latest[key][md.RUN_ID] for key in "abc"} == {killed}


RUNS = "query ($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results { runId } } } }"


class LosingDagster(GraphqlDagster):
    """Loses the answer of the first launch."""

    has_lost = False

    def launch(self, order: str, tags: Mapping[str, str]) -> str:
        run_id = super().launch(order, tags)
        if not self.has_lost:
            self.has_lost = True
            raise TransientError(problem="the answer is lost")
        return run_id


class Service(RemoteWorld):
    """A service elsewhere, one of whose executors is the webserver's instance."""

    queue = "far"
    port = 0

    def start(self) -> None:
        address = DagsterAddress(url=f"http://127.0.0.1:{self.port}", location="gobblin")
        executor = DagsterExecutor(self.queue, address, self.store, LosingDagster(address, self.folder))
        self.dispatcher = Dispatcher(self.store, executor, self._report)

    def worker_pass(self) -> None:
        """The instance's runs go on by themselves."""

    def status(self, execution: ExecutionId) -> ExecutionStatus:
        """Look once, and return what is known of the execution's job."""
        with suppress(TransientError):
            self.dispatcher.step()
        return self.job(execution).status

    def has_ended(self, execution: ExecutionId) -> bool:
        """Look once, and tell whether the execution is over."""
        self.status(execution)
        return self.is_over(execution)


def test_service_elsewhere_orders_jobs_from_the_instance_once_and_ends_them(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": {"a": {"rows": 30}}}
    extract = {"namespace": "test", "table": "ordered"}
    job = {"job": "ordered", "source": source, "extract": extract, "output": {"path": "lake"}}
    monkeypatch.setattr(Service, "body", json.dumps(job))
    monkeypatch.setattr(Service, "port", live.server.port)
    service = Service(f"sqlite:///{tmp_path}/service.db", tmp_path)
    assert service.executor().health() == ""
    [announced] = service.executor().take_announcements()
    assert "source.files" in announced.about["constructs"]

    orders, hold = live.root / "orders", live.root / "hold"
    orders.touch()
    hold.touch()
    stopped = service.order()
    wait_for(lambda: service.status(stopped), ExecutionStatus.RUNNING.__eq__, 180)
    wait_for((live.root / "held").exists, bool, 180)
    service.orchestrator.kill(stopped)
    service.dispatcher.step()
    run_id = service.job(stopped).run_id
    wait_for(lambda: live.server.ask(STATUS, id=run_id)["runOrError"]["status"], "CANCELING".__eq__, 60)
    hold.unlink()
    wait_for(lambda: service.has_ended(stopped), bool, 180)
    assert service.job(stopped).status is ExecutionStatus.CANCELLED

    whole = service.order()
    wait_for(lambda: service.has_ended(whole), bool, 180)
    done = service.job(whole)
    assert (done.status, done.processed_count) == (ExecutionStatus.COMPLETE, 30), done.message
    for execution in (stopped, whole):
        name = service.job(execution).job.name
        filter_ = {"tags": [{"key": JOB_TAG, "value": name}]}
        [run] = live.server.ask(RUNS, filter=filter_)["runsOrError"]["results"]
        assert run["runId"] == service.job(execution).run_id
    service.close()
    orders.unlink()
