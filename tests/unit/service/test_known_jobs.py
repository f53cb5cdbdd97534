"""Flows that are renamed publish no row to the same place once more, unless a person says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.service.compiler.children import CHILDREN
from gobblin_dagster.service.executors.flows_around import FlowsAround, split_body, with_flows_around
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.known_jobs import with_flows, with_order
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, Schedule, Trigger
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import Execution, add_executions
from gobblin_dagster.service.store.flow_rows import load_flow
from gobblin_dagster.service.store.job_rows import add_jobs
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.flow_project import NEVER, TEMPLATE, URI, make_project, open_core, store_flow

FORMER, LATER = FlowId("shop", "orders"), FlowId("shop", "bestellungen")
JOB_FILE = """
job: beside
source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {a: {rows: 10}}}
extract: {namespace: test, table: rows}
output: {path: lake}
"""


def test_place_of_the_database_that_nobody_may_look_at_is_named_with_what_to_do(tmp_path: Path) -> None:
    # Root may look into all folders; a name of 300 letters is refused to everybody.
    (tmp_path / "gobblin.yaml").write_text(f"project: shop\nservice: {{store: 'sqlite:///{'x' * 300}'}}\n")
    told = f"cannot look for the service's database at {tmp_path}/x+: .*too long; whoever runs the project must"
    with pytest.raises(StorageError, match=told):
        with_flows(Project(tmp_path, load_project(tmp_path)))


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoreServices]:
    make_project(tmp_path)
    (tmp_path / "templates" / "lines.template").write_text(TEMPLATE.replace("template: rows", "template: lines"))
    opened = open_core(tmp_path)
    yield opened
    opened.datasets.close()
    opened.store.close()


BOTH = pytest.mark.parametrize("run", ["near", "far"], indirect=True)


@pytest.fixture
def run(core: CoreServices, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., RunResult]:
    """Return what runs the one job of a flow as an execution, near the service's database or far from it."""
    numbers, is_far = iter(range(1, 9)), getattr(request, "param", "near") == "far"

    def execute(
        flow: FlowId,
        *,
        is_deleted: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        listener: CommitListener | None = None,
    ) -> RunResult:
        with core.store.read() as transaction:
            stored = load_flow(transaction, flow)
        assert stored is not None
        dag, execution = core.compile(stored.config), ExecutionId(flow, next(numbers))
        with core.store.write() as transaction:
            now = core.store.now(transaction)
            row = Execution(execution, stored.version, Trigger.RUN_NOW, ExecutionStatus.RUNNING, now)
            add_executions(transaction, [row])
            add_jobs(transaction, execution, dag)
        if is_deleted:
            delete(core, flow)
        name, body = dag.jobs[0].name, dag.jobs[0].body
        project = Project(tmp_path, load_project(tmp_path))
        if is_far:
            with core.store.read() as transaction:
                body = with_flows_around(body, FlowsAround.of(transaction, name))
            project = with_order(project, split_body(body)[1])
        else:
            project = with_flows(project)
        job = read_job_body(name, body, tmp_path, project.spec)
        listeners = [_Planned(meanwhile)]
        return run_job(project, job, runner=InlineRunner(), listeners=listeners, commit_listener=listener)

    return execute


class _Killed(BaseException):
    """Ends a run as a crash would."""


class _KilledOncePrepared(SilentListener):
    def prepared(self, sequence: CommitSequence) -> None:
        raise _Killed


class _Planned(RunListener):
    """Does something while a run goes on: it has looked at what was published, and read nothing yet."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def planned(self, plan: JobPlan) -> None:
        self._then()


def delete(core: CoreServices, flow: FlowId) -> None:
    with core.store.write() as transaction:
        core.manager.delete(transaction, flow, "tester")


def is_gone(job: str, result: RunResult) -> bool:
    """Return whether a run was refused because of a job that is not there: a worker far away says so in other words."""
    words = ("this project does not have here any more", "no flow had here when this job was ordered")
    return any(f"job {job!r}, which {one}, published this dataset" in problems(result) for one in words)


def problems(result: RunResult) -> str:
    return " ".join(failure.message for one in result.datasets for failure in one.failures)


@BOTH
def test_flow_posted_under_another_name_is_refused_until_a_startpoint_says_where_it_begins(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    assert run(FORMER).status is RunStatus.SUCCEEDED
    delete(core, FORMER)
    store_flow(core, LATER)
    assert is_gone("shop__orders__rows", run(LATER, is_deleted=True)), "an execution goes on without its flow"
    store_flow(core, LATER)
    assert is_gone("shop__orders__rows", run(LATER))
    for urn in ("a", "b/c"):
        core.datasets.set_startpoint(LATER, urn, "10", job=None, who="me", why="renamed", expires=timedelta(days=1))
    store_flow(core, LATER, rows="12")
    assert [one.rows_read for one in run(LATER).datasets] == [2, 2]
    delete(core, LATER)
    store_flow(core, FORMER, rows="12")
    assert is_gone("shop__bestellungen__rows", run(FORMER))


@BOTH
def test_flow_with_another_template_is_refused_as_a_renamed_one(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    run(FORMER)
    config = FlowConfig(FORMER, URI.replace("rows", "lines"), {}, Schedule(NEVER))
    with core.store.write() as transaction:
        core.manager.update(transaction, config, "tester")
    assert "published this dataset up to 10 to the same place" in problems(run(FORMER))


@BOTH
def test_name_of_a_renamed_flow_that_another_one_took_is_no_job_beside_it(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    run(FORMER)
    store_flow(core, FORMER, folder="elsewhere")
    store_flow(core, LATER)
    assert is_gone("shop__orders__rows", run(LATER))


@BOTH
def test_flow_that_was_changed_and_publishes_where_it_did_is_beside_others_before_it_runs(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    run(FORMER)
    store_flow(core, FORMER, rows="12")
    store_flow(core, LATER)
    assert run(LATER).status is RunStatus.SUCCEEDED


@BOTH
def test_child_that_only_its_parent_runs_holds_its_place_as_it_stands_in_the_catalog(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    night, week = FlowId("shop", "nightly"), FlowId("shop", "weekly")

    def store_parent(flow: FlowId, child: FlowId) -> None:
        with core.store.write() as transaction:
            config = FlowConfig(flow, "", {CHILDREN: str(child)}, Schedule(NEVER))
            core.manager.create(transaction, config, "tester")

    store_flow(core, FORMER)
    store_parent(night, FORMER)
    assert run(night).status is RunStatus.SUCCEEDED
    store_flow(core, FORMER, folder="elsewhere")
    store_flow(core, LATER)
    assert is_gone("shop__orders__rows", run(LATER))
    delete(core, FORMER)
    assert is_gone("shop__orders__rows", run(LATER))
    for urn in ("a", "b/c"):
        core.datasets.set_startpoint(LATER, urn, "10", job=None, who="me", why="renamed", expires=timedelta(days=1))
    store_flow(core, LATER, rows="12")
    store_parent(week, LATER)
    assert run(week).status is RunStatus.SUCCEEDED
    delete(core, LATER)
    store_flow(core, FORMER, rows="12")
    assert is_gone("shop__bestellungen__rows", run(night))


def test_flow_that_is_renamed_while_it_runs_publishes_under_one_of_its_names(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    inner: list[RunResult] = []
    store_flow(core, FORMER)
    store_flow(core, LATER)
    outer = run(LATER, meanwhile=lambda: inner.append(run(FORMER, is_deleted=True)))
    assert [inner[0].status, outer.status] == [RunStatus.SUCCEEDED, RunStatus.FAILED]
    assert "job 'shop__orders__rows', which this project does not have here any more, published" in problems(outer)


@BOTH
def test_flow_that_is_renamed_while_it_runs_publishes_nothing_after_its_new_name_did(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    inner: list[RunResult] = []

    def rename() -> None:
        delete(core, FORMER)
        store_flow(core, LATER)
        inner.append(run(LATER))

    store_flow(core, FORMER)
    outer = run(FORMER, meanwhile=rename)
    assert [inner[0].status, outer.status] == [RunStatus.SUCCEEDED, RunStatus.FAILED]
    says = "published this dataset up to 10 to the same place"
    is_told = f"job 'shop__bestellungen__rows' {says}" in problems(outer)
    assert is_told or (is_gone("shop__bestellungen__rows", outer) and says in problems(outer)), "in words of its worker"
    store_flow(core, FORMER, rows="12")
    beside = run(FORMER, meanwhile=lambda: store_flow(core, FORMER, rows="12"))
    assert beside.status is RunStatus.SUCCEEDED, "both flows are there"


def is_twin(job: str, result: RunResult) -> bool:
    """Return whether a run was refused because another flow publishes the same rows."""
    return f"job {job!r} of another flow, which has the same source and the same steps," in problems(result)


@BOTH
def test_flow_that_is_posted_before_the_former_one_is_deleted_publishes_nothing_until_a_startpoint_says_where_it_begins(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    run(FORMER)
    store_flow(core, LATER)
    assert is_twin("shop__orders__rows", run(LATER, meanwhile=lambda: delete(core, FORMER)))
    assert is_gone("shop__orders__rows", run(LATER))
    for urn in ("a", "b/c"):
        core.datasets.set_startpoint(LATER, urn, "10", job=None, who="me", why="renamed", expires=timedelta(days=1))
    store_flow(core, LATER, rows="12")
    assert [one.rows_read for one in run(LATER).datasets] == [2, 2]


@BOTH
def test_of_two_new_flows_that_are_the_same_but_for_their_names_one_publishes(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    inner: list[RunResult] = []
    store_flow(core, FORMER)
    store_flow(core, LATER)
    outer = run(FORMER, meanwhile=lambda: inner.append(run(LATER)))
    assert inner[0].status is RunStatus.SUCCEEDED
    assert is_twin("shop__bestellungen__rows", outer)
    store_flow(core, LATER, rows="12")
    assert [one.rows_read for one in run(LATER).datasets] == [2, 2], "the one that published goes on"


@BOTH
def test_commit_that_a_killed_run_left_is_not_finished_after_a_flow_with_the_same_rows_made_it(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    store_flow(core, LATER)
    with pytest.raises(_Killed):
        run(FORMER, listener=_KilledOncePrepared())
    for urn in ("a", "b/c"):
        core.datasets.set_startpoint(LATER, urn, "oldest", job=None, who="me", why="it", expires=timedelta(days=1))
    assert run(LATER).status is RunStatus.SUCCEEDED
    recovered = run(FORMER).recovered
    assert [one.state for one in recovered] == [SequenceState.PREPARED] * len(recovered) != []
    assert "job 'shop__bestellungen__rows' of another flow, which has the same source" in recovered[0].reason


@BOTH
@pytest.mark.parametrize("is_renamed", [True, False])
def test_commit_of_a_run_that_was_killed_before_it_looked_again_is_not_finished(
    core: CoreServices, run: Callable[..., RunResult], *, is_renamed: bool
) -> None:
    def publish() -> None:
        assert run(LATER).status is RunStatus.SUCCEEDED
        if is_renamed:
            delete(core, LATER)

    store_flow(core, FORMER)
    store_flow(core, LATER)
    with pytest.raises(_Killed):
        run(FORMER, meanwhile=publish, listener=_KilledOncePrepared())
    recovered = run(FORMER).recovered
    assert [one.state for one in recovered] == [SequenceState.PREPARED] * len(recovered) != []
    assert "published this dataset up to 10 to the same place" in recovered[0].reason


@BOTH
def test_flows_that_published_the_same_rows_before_they_were_told_apart_go_on(
    core: CoreServices, run: Callable[..., RunResult]
) -> None:
    store_flow(core, FORMER)
    store_flow(core, LATER, rows="9")
    assert [run(flow).status for flow in (FORMER, LATER)] == [RunStatus.SUCCEEDED] * 2
    for flow in (FORMER, LATER):
        store_flow(core, flow, rows="12")
    assert [run(flow).status for flow in (FORMER, LATER)] == [RunStatus.SUCCEEDED] * 2


def test_flows_and_job_files_beside_each_other_are_no_renamed_ones(
    core: CoreServices, run: Callable[..., RunResult], tmp_path: Path
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "beside.yaml").write_text(JOB_FILE)
    store_flow(core, FORMER)
    store_flow(core, LATER, rows="12")
    project = with_flows(open_project(tmp_path))
    assert run(FORMER).status is RunStatus.SUCCEEDED
    assert run_job(project, project.job("beside"), runner=InlineRunner()).status is RunStatus.SUCCEEDED
    assert run(LATER).status is RunStatus.SUCCEEDED
