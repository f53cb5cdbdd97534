"""The two ops of every job's graph-backed asset: `extract` reads and stages, and `report` ends the run.

The IO manager of `extract` publishes in between. The outputs of `report`, which become assets, are optional and rarely
yielded: yielding one logs a materialization for every partition of the run, without our metadata
(docs/adr/0005-the-io-manager-publishes.md). No `from __future__ import annotations` here: Dagster reads the
annotations.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import dagster as dg

from gobblin_dagster.core.errors import SpecError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import RecoveredDataset, RunResult
from gobblin_dagster.engine.run.job_run import JobRun
from gobblin_dagster.engine.run.profile import RunProfiler
from gobblin_dagster.engine.task.runner import PagesRunner, TaskRunner
from gobblin_dagster.launcher.run_launcher import OP_TAG
from gobblin_dagster.orchestration._internal import assets_of_run
from gobblin_dagster.orchestration.backfill import Backfill
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.events import Event
from gobblin_dagster.orchestration.io_manager import Extracted
from gobblin_dagster.orchestration.partitions import add_partitions, tagged_keys, to_urn
from gobblin_dagster.orchestration.reconcile import reconcile
from gobblin_dagster.orchestration.report import RunReport
from gobblin_dagster.orchestration.startpoint_config import STARTPOINT_CONFIG, set_startpoints
from gobblin_dagster.orchestration.termination import waits_end_on_termination

EXTRACT = "extract"
REPORT = "report"
EXTRACTED = "extracted"
"""Input of `report`: that the output of `extract` is published."""
SHOWN = 20
"""Number of datasets that the run's log names for a plan."""


BUSY_WAIT_S = 60.0
"""Seconds that a run waits for datasets that another run holds, before it goes on without them."""
_POLL_S = 1.0

_CONFIG = {
    "urns": dg.Field(
        [str], is_required=False, description="dataset.urns to read in a run without partitions; default: all datasets."
    ),
    "busy_wait_s": dg.Field(
        float,
        default_value=BUSY_WAIT_S,
        description="Seconds to wait for datasets that another run holds; then the run goes on without them.",
    ),
    "startpoint": STARTPOINT_CONFIG,
}


def run_config(job: str, urns: list[str] | None = None, busy_wait_s: float | None = None) -> dict[str, object]:
    """Return the run config of a job for some datasets; None stands for the default of each setting."""
    config = {name: value for name, value in (("urns", urns), ("busy_wait_s", busy_wait_s)) if value is not None}
    return {"ops": {job: {"ops": {EXTRACT: {"config": config}}}}}


def upstream_inputs(binding: JobBinding) -> dict[str, dg.AssetIn]:
    """Return an input for each external asset that the job reads from; nothing is loaded for it."""
    keys = [spec.key for spec in binding.upstream]
    return {f"upstream_{number}": dg.AssetIn(key, dagster_type=dg.Nothing) for number, key in enumerate(keys)}


def extract_op(binding: JobBinding, runner: TaskRunner | None) -> dg.OpDefinition:
    """Return the op that recovers, plans and runs work units; if `runner` is None, with the job's Spark resource."""
    needed = {"io_manager", binding.io_manager_key, *(() if runner else (binding.spark_key,))}

    # Dagster requires the key `io_manager` if a single branch is selected, although nothing here uses it.
    @dg.op(
        name=f"{binding.name}_{EXTRACT}",
        ins={name: dg.In(dg.Nothing) for name in upstream_inputs(binding)},
        out=dg.Out(io_manager_key=binding.io_manager_key),
        config_schema=_CONFIG,
        required_resource_keys=needed,
        pool=binding.pool,
        tags={OP_TAG: binding.name},
    )
    def extract(context: dg.OpExecutionContext) -> Extracted:
        """Recover earlier runs, plan, run all work units as one Spark job, and decide what to commit."""
        used = runner or getattr(context.resources, binding.spark_key).runner
        try:
            with without_secrets(), waits_end_on_termination():
                return _extract(context, binding.for_run(context.run.tags), used, context.op_config)
        except SpecError as error:
            # Without the cause: Dagster would store it with values of environment variables.
            raise dg.Failure(str(error), allow_retries=False) from None

    return extract


def report_op(binding: JobBinding, outputs: list[str]) -> dg.OpDefinition:
    """Return the op whose optional outputs are the assets and their checks."""
    out = {name: dg.Out(is_required=False, io_manager_key=binding.io_manager_key) for name in outputs}

    # The two ops may run in two processes (Dagster's default executor), so they share nothing but the state store.
    @dg.op(name=f"{binding.name}_{REPORT}", ins={EXTRACTED: dg.In(dg.Nothing)}, out=out)
    def report(context: dg.OpExecutionContext) -> Iterator[dg.Output[None]]:
        """End the run; let assets downstream in the same run go on."""
        context.log.addFilter(_tells_something)
        keys = tagged_keys(context.instance, context.run, binding.partitions_name)
        beyond = assets_of_run(context) - set(binding.keys.values())
        if keys is None or not beyond:
            return
        for branch, key in binding.keys.items():
            if key in context.selected_asset_keys:
                yield dg.Output(None, branch)
        # Dagster has now logged every key of the range as materialized, without metadata. Log our events again: the
        # newest event counts.
        step_key = context.get_step_execution_context().step.key
        with waits_end_on_termination(), closing(binding.project.open_store()) as store:
            again = RunReport(binding, store, context.instance, context.run, step_key, _logger(context))
            again.log_again([to_urn(key) for key in keys])

    return report


def _extract(
    context: dg.OpExecutionContext, binding: JobBinding, runner: TaskRunner, config: Mapping[str, Any]
) -> Extracted:
    urns: list[str] | None = config.get("urns")
    keys = tagged_keys(context.instance, context.run, binding.partitions_name)
    with ExitStack() as resources:
        store = resources.enter_context(closing(binding.project.open_store()))
        backfill = Backfill()
        if keys is not None:
            own = frozenset(map(to_urn, keys))
            # Assets below run right after this step, so their run must commit its datasets itself.
            if assets_of_run(context) <= set(binding.keys.values()):
                backfill = Backfill.of_run(context.instance, context.run, own, binding, store)
            urns = sorted((own | backfill.waiting) - backfill.failed.keys())
            if more := len(backfill.waiting - own):
                context.log.info(
                    f"A run of this backfill works on the datasets of all: {more} more here. Datasets that another of "
                    "its runs holds are busy, and left to that run."
                )
        opened = JobContext.of(
            binding.project,
            binding.job,
            store,
            Selection(urns=frozenset(urns) if urns is not None else None),
            runner=runner,
            # A retried step must not use the staging folder of its first try.
            run_id=f"{context.run_id}.{context.retry_number}" if context.retry_number else context.run_id,
        )
        _wait_for_others(opened, config["busy_wait_s"], context.log, backfill)
        if "startpoint" in config:
            first = context.run.root_run_id or context.run_id
            set_startpoints(opened, urns, config["startpoint"], runner, run_id=first)
        profiler = RunProfiler()
        run = resources.enter_context(JobRun(opened, runner, [profiler, _LogObserver(context.log)]))
        recovered = run.recover()
        reconciled = reconcile(binding, store, context.instance, _logger(context))
        plan = run.plan()
        add_partitions(context.instance, binding.partitions_name, [dataset.dataset_urn for dataset in plan.datasets])
        for urn in sorted(set(urns or ()) - {dataset.dataset_urn for dataset in plan.datasets}):
            context.log.warning(f"The source has no dataset {urn!r} any more.")
        pages = {}
        if isinstance(runner, PagesRunner):
            pages = {name: hidden(address) for name, address in runner.pages().items()}
        if pages:
            context.log.info("\n".join(["Spark shows the work of this run:", *pages.values()]))
        commit = run.extract(plan)
        # From here on the IO manager releases leases and store.
        logger = _logger(context)
        failed = backfill.failed
        rest = resources.pop_all()
        getattr(context.resources, binding.io_manager_key).keep(rest)
        return Extracted(run, commit, recovered, store, keys, reconciled, failed, logger, profiler, pages, rest)


def _wait_for_others(opened: JobContext, wait_s: float, log: dg.DagsterLogManager, backfill: Backfill) -> None:
    """Wait until no other run holds a dataset of this run, at most `wait_s` seconds; not for runs of its backfill.

    A run of the command line and one of a sensor often meet at the same new data. What the other run commits needs no
    second run, so waiting costs less than a run that fails.
    """
    end = time.monotonic() + wait_s
    is_told = False
    while held := _held(opened, backfill):
        if not is_told:
            log.info(f"Waiting up to {wait_s:.0f} s for {len(held)} datasets that other runs hold: {held[0]!r}, ...")
            is_told = True
        if time.monotonic() >= end:
            return
        time.sleep(min(_POLL_S, wait_s))


def _held(opened: JobContext, backfill: Backfill) -> list[str]:
    now = opened.project.clock.now()
    leases = {urn: one for urn, one in opened.store.load_leases(opened.job.job).items() if one.is_held(now)}
    return sorted(
        urn for urn, lease in leases.items() if opened.selection.matches(urn) and not backfill.holds(lease.owner.run_id)
    )


def _tells_something(record: logging.LogRecord) -> bool:
    """Leave out what Dagster says of outputs that are declared for checks and never yielded: they are logged."""
    return "did not yield or return expected outputs" not in record.getMessage()


def _logger(context: dg.OpExecutionContext) -> Callable[[Event], None]:
    return context.log_event  # type: ignore[return-value]  # it accepts check evaluations too, against its annotation


class _LogObserver(RunListener):
    """Writes progress into the run's log, in few messages: each costs Dagster as much as a materialization."""

    def __init__(self, log: dg.DagsterLogManager) -> None:
        self._log = log

    def recovered(self, dataset: RecoveredDataset) -> None:
        reason = f": {dataset.reason}" if dataset.reason else ""
        self._log.info(
            hidden(f"Dataset {dataset.dataset_urn!r}: sequence {dataset.sequence_id} is now {dataset.state}{reason}")
        )

    def planned(self, plan: JobPlan) -> None:
        moving = [f"{one.dataset_urn}: {one.low} -> {one.expected_high}" for one in plan.datasets if one.is_moving]
        self._log.info(_listed(f"{len(moving)} of {len(plan.datasets)} datasets have something new", moving))
        if types := [f"{one.dataset_urn}: {text}" for one in plan.datasets for text in one.type_notes]:
            self._log.info(_listed("Types of columns:", types))
        if told := [
            f"{one.dataset_urn}: {text}" for one in plan.datasets for text in (*one.notes, one.problem) if text
        ]:
            self._log.warning(_listed("What the plan says of datasets:", told))

    def finished(self, result: RunResult) -> None:
        counts = Counter(dataset.outcome.value for dataset in result.datasets)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "none"
        self._log.info(f"Datasets: {said}; {sum(one.rows_read for one in result.datasets)} rows read")


def _listed(title: str, lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return hidden("\n".join([title, *lines[:SHOWN], *more]))
