"""Sensors: one requests runs for new data; one reports commits of other processes, and finishes what dead runs left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.commit import canonical_json
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.engine.new_data import NewData, NewDataPoller, PollResult, plans_with_spark
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import Event, Publication, materializations, to_dagster_run
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.partitions import missing_keys
from gobblin_dagster.orchestration.reconcile import is_known, last_publication
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

PATIENCE_S = 5.0
"""Seconds that a tick waits for a plan of the job. Dagster's daemon evaluates one sensor after the other."""
INTERVAL_S, SPARK_INTERVAL_S = 30, 120
"""Seconds between two plans; the second for sources that plan with Spark, where each plan costs Spark jobs."""
TOLD_AT_ONCE = 300
"""Number of commits that one tick of the sweep tells Dagster, about 5 s of CPU: Dagster ends a tick after 60 s."""
ALL_TOLD = "all told"
"""Cursor of the sweep once it has compared all datasets with what its Dagster instance shows. Before, the cursor is the
last dataset.urn that was compared; a new instance has none."""
STOPPED, RUNNING = dg.DefaultSensorStatus.STOPPED, dg.DefaultSensorStatus.RUNNING


def new_data_sensor(
    project: Project | Path | str,
    job: JobSpec | str,
    *,
    spark: GobblinSparkResource | None = None,
    interval_s: int | None = None,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that plans a job and requests one run for all datasets with new data.

    It requests a run for the same new data only once. If some datasets of the run fail, one more run is requested for
    them alone; after that, they are read again together with data that come later. Datasets that a run works on are
    left out. A tick waits at most `PATIENCE_S` seconds for the plan; if the source is slower, a later tick uses it.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        spark: the Spark for sources that plan with Spark, in a process of its own; default: the Spark of
            `gobblin.yaml`. Other sources do not start it.
        interval_s: seconds between two plans; default: 30, or 120 if the source plans with Spark.
        default_status: by default, the sensor is stopped until it is switched on in Dagster's pages.

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
        description="Requests one run for all datasets with new data.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if _finds_everything_new(binding.job):
            reason = (
                "The source has no `watermark`, so each run reads everything and new data cannot be found: "
                "give the job a schedule."
            )
            return dg.SensorResult(skip_reason=reason)
        seen = poller.ask(PATIENCE_S)
        if seen is None:
            return dg.SensorResult(
                skip_reason=f"Still planning, for {poller.seconds:.0f} s so far; a later tick uses the plan."
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
    """Return a sensor that cleans up after other processes and dead runs. It reads the state store.

    Only while the job has no partitions, it also plans the job, as `new_data_sensor` does: without partitions,
    Dagster's pages offer no way to start the first run.

    - It reports commits of the command line, and of runs that died before they reported them, in bounded batches.
    - On a new Dagster instance, or after a reset of its cursor on Dagster's page of the sensor, it compares the newest
      commit of each dataset with what Dagster shows, and reports those that Dagster does not know.
    - It reports a run as failed once its leases have expired or its process is provably gone. Dagster itself shows
      such a run as started for ever if its code server died with it.
    - It requests one run to finish commit sequences that dead runs left.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        translator: the same as for `gobblin_assets`.
        interval_s: seconds between two looks at the store.
        default_status: by default, the sensor runs, because it is cheap.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.
    """
    binding = JobBinding.of(project, job, translator)
    spark = GobblinSparkResource.of_project(binding.project)
    poller = NewDataPoller.of(binding.project, binding.job, spark.spec, spark.log_path)

    @dg.sensor(
        name=f"{binding.name}_sweep",
        job_name=binding.dagster_job,
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Reports commits of other processes, ends dead runs, and finishes their commit sequences.",
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(binding.project.open_store()) as store:
            is_new = not context.instance.get_dynamic_partitions(binding.partitions_name)
            planned = poller.ask(PATIENCE_S) if is_new else None
            first = [one.dataset_urn for one in planned.new] if planned else []
            return _Sweep(binding, store, context.instance).result(context.cursor or "", first)

    return evaluate


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One tick of the sweep."""

    binding: JobBinding
    store: StateStore
    instance: dg.DagsterInstance

    def result(self, cursor: str, first: Sequence[str]) -> dg.SensorResult:
        """Return the answer of the tick; `first` are datasets that need a partition before their first run."""
        held = self._end_dead_runs(self.store.load_leases(self.binding.name))
        waiting = [one for one in self.store.load_sequences(self.binding.name) if one.dataset_urn not in held]
        found = [[one.id, one.redo_failures] for one in waiting]
        urns = [one.dataset_urn for one in waiting]
        publications = self._unreported()
        states = self.store.load_readable_states(self.binding.name)[0]
        if cursor != ALL_TOLD and not publications:
            compared = sorted(urn for urn in states if urn > cursor)[:TOLD_AT_ONCE]
            publications = self._unknown(compared)
            cursor = compared[-1] if compared else ALL_TOLD
        known = [*publications, *states, *first]
        return _requests(
            self.binding,
            self.instance,
            {"recover": (found, urns)} if waiting else {},
            known,
            # No check evaluations: Dagster stores one per check, partition and run, and a sensor has no run, so it
            # would refuse those of a dataset's second commit. The counts are in the metadata of the materializations.
            [event for one in publications.values() for event in materializations(self.binding, one)],
            cursor=cursor,
        )

    def _end_dead_runs(self, leases: dict[str, Lease]) -> frozenset[str]:
        """Report runs of dead owners as failed; return the datasets that living owners hold."""
        living = _living(self.binding, leases)
        dead = {lease.owner.run_id for urn, lease in leases.items() if urn not in living}
        for run_id in sorted({to_dagster_run(engine_run_id) for engine_run_id in dead}):
            run = self.instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                self.instance.report_run_failed(
                    run,
                    "The run's process is gone: it did not renew its leases. The next run finishes what it left.",
                )
        return living

    def _unreported(self) -> dict[str, Publication]:
        """Return commits to report to Dagster by dataset.urn; mark those as reported that Dagster knows already.

        Of several commits of a dataset only the newest is reported: an older one that is logged later would be shown.
        """
        found, heard = {}, []
        stored = self.store.load_unreported(self.binding.name, TOLD_AT_ONCE)
        by_dataset = groupby(sorted(stored, key=lambda one: one.dataset_urn), lambda one: one.dataset_urn)
        for urn, group in by_dataset:
            commits = [one for one in group if not self._is_running(one.run_id)]
            if commits:
                last = Publication.of_stored(commits[-1], self.store.places)
                if is_known(self.binding, self.instance, last):
                    heard += [one.id for one in commits]
                else:
                    found[urn] = last
        self.store.mark_reported(heard)
        return found

    def _unknown(self, urns: Iterable[str]) -> dict[str, Publication]:
        """Return the newest commits of datasets that Dagster does not show, by dataset.urn."""
        found = {}
        for urn in urns:
            last = last_publication(self.binding, self.store, urn)
            if last and not self._is_running(last.run_id) and not is_known(self.binding, self.instance, last):
                found[urn] = last
        return found

    def _is_running(self, run_id: str) -> bool:
        """Return whether a run of Dagster goes on; it reports its commits itself."""
        run = self.instance.get_run_by_id(to_dagster_run(run_id))
        return run is not None and not run.is_finished


def _finds_everything_new(job: JobSpec) -> bool:
    """Return whether every plan of the source reads everything, so that new data cannot be found."""
    return job.source.type == "spark" and not job.source.options.get("watermark")


def _free(binding: JobBinding, new: Iterable[NewData]) -> list[NewData]:
    """Leave out datasets that a run works on, or that were committed after the plan was made."""
    with closing(binding.project.open_store()) as store:
        held = _living(binding, store.load_leases(binding.name))
        states = store.load_dataset_states(binding.name, [one.dataset_urn for one in new])
    versions = {urn: state.version for urn, state in states.items()}
    return [one for one in new if one.dataset_urn not in held and versions.get(one.dataset_urn, 0) == one.version]


def _nothing_new(seen: PollResult) -> str:
    said = f"None of {seen.datasets} datasets has new data to read."
    if seen.problems:
        said += f" {len(seen.problems)} cannot be planned; the first one: {seen.problems[0]}"
    return said


def _living(binding: JobBinding, leases: Mapping[str, Lease]) -> frozenset[str]:
    """Return the datasets whose leases have not expired and whose owners may still be alive."""
    now = binding.project.clock.now()
    return frozenset(urn for urn, lease in leases.items() if lease.is_held(now))


def _requests(
    binding: JobBinding,
    instance: dg.DagsterInstance,
    wanted: dict[str, tuple[list[list[object]], list[str]]],
    known: Iterable[str] = (),
    events: Iterable[Event] = (),
    cursor: str | None = None,
) -> dg.SensorResult:
    """Return a sensor result.

    Args:
        binding: the job.
        instance: the Dagster instance.
        wanted: run requests by reason: what was found (hashed into the run key), and the dataset.urns to run.
        known: further dataset.urns that need a partition.
        events: events to log.
        cursor: the sensor's new cursor.
    """
    urns = [*known, *(urn for _, chosen in wanted.values() for urn in chosen)]
    new = missing_keys(instance, binding.partitions_name, urns)
    requests = [
        dg.RunRequest(
            # Dagster starts only one run per run key, for ever.
            run_key=f"{why}-{hashlib.sha256(canonical_json(sorted(found)).encode()).hexdigest()[:32]}",
            run_config=run_config(binding.name, sorted(chosen)),
        )
        for why, (found, chosen) in wanted.items()
    ]
    logged = list(events)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else f"Nothing to run; reported {len(logged)} events of other processes.",
        dynamic_partitions_requests=[binding.partitions.build_add_request(new)] if new else [],
        asset_events=logged,
        cursor=cursor,
    )
