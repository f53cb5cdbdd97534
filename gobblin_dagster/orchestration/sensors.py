"""Sensors: one asks for a run where there is new data, one looks after what other processes did or left undone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.commit import StoredSequence, canonical_json
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.engine.new_data import NewData, NewDataPoller, PollResult, plans_with_spark
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import Event, Publication, materializations
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.partitions import missing_keys
from gobblin_dagster.orchestration.reconcile import is_known, newest
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

PATIENCE_S = 5.0
"""Seconds that a tick waits for a look at the source. Dagster's daemon evaluates one sensor after the other."""
INTERVAL_S, SPARK_INTERVAL_S = 30, 120
"""Seconds between looks at a source, and at one that plans with Spark: each look costs Spark jobs."""
STOPPED, RUNNING = dg.DefaultSensorStatus.STOPPED, dg.DefaultSensorStatus.RUNNING


def new_data_sensor(
    project: Project | Path | str,
    job: JobSpec | str,
    *,
    spark: GobblinSparkResource | None = None,
    interval_s: int | None = None,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that plans a job and asks for one run over the datasets with something new.

    The same findings are never asked for twice: datasets that fail are asked for once more by themselves, and then together
    with what is found new later. Datasets that a run is working on are left to it. A tick waits at most `PATIENCE_S` seconds
    for the source; what a slow one says is taken up by a later tick.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        spark: what sources that plan with Spark look with, in a process of its own; default: the Spark of `gobblin.yaml`.
            Other sources start none.
        interval_s: seconds between looks at the source; default: 30, and 120 where it plans with Spark.
        default_status: stopped until switched on in Dagster's pages, unless said otherwise.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.
    """
    binding = JobBinding.of(project, job)
    used = spark or GobblinSparkResource.of_project(binding.project)
    poller = NewDataPoller.of(binding.project, binding.job, used.spec, used.log_path)

    @dg.sensor(
        name=f"{binding.name}_new_data",
        job_name=binding.dagster_job,
        minimum_interval_seconds=interval_s or (SPARK_INTERVAL_S if plans_with_spark(binding.job) else INTERVAL_S),
        default_status=default_status,
        description="Asks for one run over the datasets that have something new.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if _finds_everything_new(binding.job):
            reason = (
                "Without a `watermark` nothing tells what is new, and a run reads everything: give the job a schedule."
            )
            return dg.SensorResult(skip_reason=reason)
        seen = poller.ask(PATIENCE_S)
        if seen is None:
            return dg.SensorResult(
                skip_reason=f"Still looking at the source, for {poller.seconds:.0f} s; a later tick takes the answer."
            )
        new = _free(binding, seen.new)
        if not new:
            return dg.SensorResult(skip_reason=_nothing_new(seen))
        found: list[list[object]] = [[one.dataset_urn, one.high, one.version, one.startpoint] for one in new]
        return _requests(binding, context.instance, {"new-data": (found, [one.dataset_urn for one in new])})

    return evaluate


def sweep_sensor(
    project: Project | Path | str,
    job: JobSpec | str,
    *,
    translator: GobblinTranslator | None = None,
    interval_s: int = INTERVAL_S,
    default_status: dg.DefaultSensorStatus = RUNNING,
) -> dg.SensorDefinition:
    """Return a sensor that puts right what a run could not do itself. It reads the state store only.

    - Commits of the command line, or of a run that died before it told Dagster, are reported.
    - A run whose process and code server died together stays started for ever in Dagster: once its leases have expired
      (or its process is provably gone) it is reported as failed.
    - A commit sequence that a dead run left unfinished gets one run, which finishes it.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        translator: as given to `gobblin_assets`.
        interval_s: seconds between looks at the store.
        default_status: running, unless said otherwise: nothing is read from the source.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.
    """
    binding = JobBinding.of(project, job, translator)

    @dg.sensor(
        name=f"{binding.name}_sweep",
        job_name=binding.dagster_job,
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Reports commits made elsewhere, ends dead runs, finishes what they left.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(binding.project.open_store()) as store:
            return _Sweep(binding, store, context.instance).result()

    return evaluate


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One tick of the sweep."""

    binding: JobBinding
    store: StateStore
    instance: dg.DagsterInstance

    def result(self) -> dg.SensorResult:
        held = self._end_dead_runs(self.store.load_leases(self.binding.name))
        waiting = [one for one in self.store.load_sequences(self.binding.name) if one.dataset_urn not in held]
        found = [[one.id, one.redo_failures] for one in waiting]
        urns = [one.dataset_urn for one in waiting]
        publications = newest(self._unreported())
        known = [*publications, *self.store.load_readable_states(self.binding.name)[0]]
        return _requests(
            self.binding,
            self.instance,
            {"recover": (found, urns)} if waiting else {},
            known,
            # No check evaluations: Dagster keeps one per check, partition and run, and here there is no run, so that the
            # second commit of a dataset would be refused. Their counts are in the materialization.
            [event for one in publications.values() for event in materializations(self.binding, one)],
        )

    def _end_dead_runs(self, leases: dict[str, Lease]) -> frozenset[str]:
        """Report runs of dead owners as failed; return the datasets that living owners hold."""
        living = _living(self.binding, leases)
        dead = {lease.owner.run_id for urn, lease in leases.items() if urn not in living}
        for run_id in sorted({_dagster_run_id(engine_run_id) for engine_run_id in dead}):
            run = self.instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                self.instance.report_run_failed(
                    run,
                    "The run's process is gone: its leases were not renewed. What it left is finished by the next run.",
                )
        return living

    def _unreported(self) -> Iterator[Publication]:
        """Yield commits that Dagster has to hear of; mark those of which it has heard."""
        heard = []
        for stored in self.store.load_unreported(self.binding.name):
            if not self._is_being_reported(stored):
                publication = Publication.of_stored(stored, self.store.places)
                if is_known(self.binding, self.instance, publication):
                    heard.append(stored.id)
                else:
                    yield publication
        self.store.mark_reported(heard)

    def _is_being_reported(self, stored: StoredSequence) -> bool:
        run = self.instance.get_run_by_id(_dagster_run_id(stored.run_id))
        return run is not None and not run.is_finished


def _finds_everything_new(job: JobSpec) -> bool:
    """Return whether the position that a source reads up to is only the time at which it was looked at."""
    return job.source.type == "spark" and not job.source.options.get("watermark")


def _free(binding: JobBinding, new: Iterable[NewData]) -> list[NewData]:
    """Leave out datasets that a run works on, and those of which a run has committed something since they were seen."""
    with closing(binding.project.open_store()) as store:
        held = _living(binding, store.load_leases(binding.name))
        states = store.load_dataset_states(binding.name, [one.dataset_urn for one in new])
    versions = {urn: state.version for urn, state in states.items()}
    return [one for one in new if one.dataset_urn not in held and versions.get(one.dataset_urn, 0) == one.version]


def _nothing_new(seen: PollResult) -> str:
    said = f"None of {seen.datasets} datasets has anything new to start on."
    if seen.problems:
        said += f" {len(seen.problems)} cannot be planned, such as: {seen.problems[0]}"
    return said


def _living(binding: JobBinding, leases: Mapping[str, Lease]) -> frozenset[str]:
    """Return the datasets whose leases have not expired and whose owners may still be alive."""
    now = binding.project.clock.now()
    return frozenset(urn for urn, one in leases.items() if not one.is_over(now) and not one.owner.is_provably_dead())


def _dagster_run_id(run_id: str) -> str:
    """Return the Dagster run of an engine run; ids of the command line name none."""
    return run_id.partition(".")[0]


def _requests(
    binding: JobBinding,
    instance: dg.DagsterInstance,
    wanted: dict[str, tuple[list[list[object]], list[str]]],
    known: Iterable[str] = (),
    events: Iterable[Event] = (),
) -> dg.SensorResult:
    """Return a result with one run request per wish: what was found (the run key), and the datasets to run."""
    urns = [*known, *(urn for _, chosen in wanted.values() for urn in chosen)]
    new = missing_keys(instance, binding.partitions_name, urns)
    requests = [
        dg.RunRequest(
            # Dagster starts one run per key, ever.
            run_key=f"{why}-{hashlib.sha256(canonical_json(sorted(found)).encode()).hexdigest()[:32]}",
            run_config=run_config(binding.name, sorted(chosen)),
        )
        for why, (found, chosen) in wanted.items()
    ]
    logged = list(events)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else f"Nothing to run; {len(logged)} events of commits made elsewhere.",
        dynamic_partitions_requests=[binding.partitions.build_add_request(new)] if new else [],
        asset_events=logged,
    )
