"""GobblinSparkResource: the Spark that runs a job's work units. It starts with the first work and stays."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import KeptSparkRunner, LazySparkRunner
from gobblin_dagster.spec.project import SparkSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GobblinSparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # generic only for Dagster's own checks
    """Spark as a Dagster resource, shared by all runs of a process.

    Dagster stores the settings of a resource with each job, so values of `${NAME}` in them are hidden; the runner
    has them.

    A run without new data starts no JVM. LazyPySparkResource of dagster-pyspark is lazy too, but it cannot start Spark
    while the run is still planning, and lacks the settings that halve the start time of local Spark.
    """

    master: str = Field(default="local[2,4]", description="Spark master; locally always `local[cores,4]`.")
    remote: str | None = Field(default=None, description="Spark Connect address (`sc://host:port`); replaces `master`.")
    conf: dict[str, str] = Field(default_factory=dict, description="Further Spark settings.")
    start: str = Field(
        default="always",
        description="`always`, or `when_needed`: small runs on a local master run in processes, without Spark.",
    )
    log_file: str | None = Field(default=None, description="File for the output of the JVM; default: not kept.")

    @classmethod
    def of_project(cls, project: Project) -> GobblinSparkResource:
        """Return the Spark with the settings of `gobblin.yaml`."""
        return _of_spec(cls, project.spec.spark.model_dump_json(), str(project.root / SPARK_LOG))

    @property
    def spec(self) -> SparkSpec:
        """The settings as the `spark` part of `gobblin.yaml`."""
        shown = SparkSpec.model_validate(
            {"master": self.master, "remote": self.remote, "conf": self.conf, "start": self.start}
        )
        return _specs.get(_as_shown(shown, self.log_file), shown)

    @property
    def log_path(self) -> Path | None:
        """File for the output of the JVM; None if it is not kept."""
        return Path(self.log_file) if self.log_file else None

    @property
    def runner(self) -> LazySparkRunner:
        """The runner of work units; the same object for equal settings in one process."""
        return _runner(self.spec.model_dump_json(), self.log_path)

    @property
    def session(self) -> SparkSession:
        """The Spark session, for assets that read with Spark. Starts Spark if needed; raises EnvironmentFaultError."""
        return self.runner.started().session


_specs: dict[str, SparkSpec] = {}
"""Settings whose values Dagster must not see, by what it sees of them."""


@cache
def _of_spec(kind: type[GobblinSparkResource], spec_json: str, log_file: str) -> GobblinSparkResource:
    # Once for all jobs of a project: Dagster takes milliseconds to make a resource.
    spark = SparkSpec.model_validate_json(spec_json)
    shown = SparkSpec(
        master=hidden(spark.master),
        remote=None if spark.remote is None else hidden(spark.remote),
        conf={key: hidden(value) for key, value in spark.conf.items()},
        start=spark.start,
    )
    _specs[_as_shown(shown, log_file)] = SparkSpec(
        master=spark.master, remote=spark.remote, conf=spark.conf, start=spark.start
    )
    return kind(master=shown.master, remote=shown.remote, conf=dict(shown.conf), start=shown.start, log_file=log_file)


def _as_shown(spec: SparkSpec, log_file: str | None) -> str:
    return f"{spec.model_dump_json()} {log_file}"


_kept: list[KeptSparkRunner] = []


def kept_runners() -> tuple[KeptSparkRunner, ...]:
    """Return the runners of this process; a process that executes several runs closes them after each."""
    return tuple(_kept)


@cache
def _runner(spec_json: str, log_file: Path | None) -> KeptSparkRunner:
    # Never ended by a run: all runs of the process use it, and its JVM ends with the process.
    _kept.append(KeptSparkRunner(SparkSpec.model_validate_json(spec_json), log_file))
    return _kept[-1]
