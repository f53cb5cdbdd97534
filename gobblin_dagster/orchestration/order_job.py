"""The Dagster job of `order_definitions`: it runs what a service elsewhere orders from this instance.

The service launches it by GraphQL and reads the run's tags (`service.executors.remote_dagster`). No
`from __future__ import annotations` here: Dagster reads the annotations.
"""

import threading
from collections.abc import Iterator

import dagster as dg

from gobblin_dagster import __version__
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.launcher.run_launcher import OP_TAG
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.service.executors.announcements import STATE, write_announcement
from gobblin_dagster.service.executors.messages import JobNews, Message, RunOrder, Shutdown, from_line, to_line
from gobblin_dagster.service.executors.remote_dagster import (
    KEY_TAG,
    ORDER_OP,
    OUTCOME_TAG,
    SERVICE_TAG,
    WORKER_METADATA,
    outcome_tag,
)
from gobblin_dagster.service.model import ExecutionStatus
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.topology.capabilities import announce
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.state.place import state_place

ORDER_JOB = "gobblin_order"
_LOOK_S = 0.5
"""How often a run looks whether its job is over; it is interrupted at once."""


def order_job(opened: Project, runner: TaskRunner | None) -> dg.JobDefinition:
    """Return the Dagster job; arguments as in `order_definitions`."""

    @dg.op(
        name=ORDER_OP,
        config_schema={"order": dg.Field(str, description="One order of the service, as a line of JSON.")},
        tags={OP_TAG: ORDER_JOB},
        description="Runs the job of an order, and notes in the run's tags what became of it.",
    )
    def run_order(context: dg.OpExecutionContext) -> None:
        with without_secrets():
            _run(context, opened, runner or GobblinSparkResource.of_project(opened).runner)

    @dg.job(
        name=ORDER_JOB,
        executor_def=dg.in_process_executor,
        metadata={WORKER_METADATA: _announcement(opened)},
        description="Runs jobs that a service orders (executors of the type `dagster` in its topology).",
    )
    def gobblin_order() -> None:
        run_order()

    return gobblin_order


def _announcement(project: Project) -> str:
    """Return what the instance can do, as workers announce it."""
    now = project.clock.now()
    name = f"dagster-{project.spec.project}"
    place = {STATE: state_place(project.spec.state, project.root)}
    about = {"inlet": "dagster"} | announce(project.spec.allow.lists) | place
    return write_announcement(Node(name, LeaseOwner.current(name), "", __version__, now, now, now, about=about))


def _run(context: dg.OpExecutionContext, project: Project, runner: TaskRunner) -> None:
    try:
        order: Message = from_line(context.op_config["order"])
    except ValueError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    if not isinstance(order, RunOrder):
        raise dg.Failure(f"a {type(order).__name__} is no order to run a job", allow_retries=False)
    _end_if_second(context)
    told: list[JobNews] = []
    is_over, is_interrupted = threading.Event(), threading.Event()

    def tell(news: JobNews) -> None:
        if news.status.is_final:
            told.append(news)
            is_over.set()

    def lines() -> Iterator[str]:
        yield to_line(RunOrder(order.key, context.run_id, order.body))
        try:
            while not is_over.wait(_LOOK_S):
                pass
        except dg.DagsterExecutionInterruptedError:
            is_interrupted.set()
        yield to_line(Shutdown())  # what is whole is committed

    # The job runs in a thread of the worker's, so that an interrupt lets it end as one of `gobblin worker` does.
    Worker(project, runner, tell, 1).serve(lines())
    [news] = told
    key = order.key
    report = news.report(context.run_id)
    context.instance.add_run_tags(context.run_id, {OUTCOME_TAG: outcome_tag(report)})
    context.log.info(f"{key}: {news.status.value}: {news.message}; {news.processed_count} rows")
    if is_interrupted.is_set():
        raise dg.DagsterExecutionInterruptedError
    if news.status is not ExecutionStatus.COMPLETE:
        raise dg.Failure(news.message or news.status.value, allow_retries=False)


def _end_if_second(context: dg.OpExecutionContext) -> None:
    """End the run if the order has an older one: its launch came twice, or somebody ran it again."""
    tags = {name: context.run.tags[name] for name in (KEY_TAG, SERVICE_TAG) if name in context.run.tags}
    if len(tags) < 2:
        return  # launched by hand
    oldest = context.instance.get_runs(dg.RunsFilter(tags=tags))[-1]
    if oldest.run_id != context.run_id:
        raise dg.Failure(
            f"The order was run by {oldest.run_id}, and is run once; retry or resume the flow in its service.",
            allow_retries=False,
        )
