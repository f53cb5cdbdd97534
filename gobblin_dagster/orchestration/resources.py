"""GobblinSparkResource: the Spark that runs a job's work units. Starts when the first work is found, and is kept."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from gobblin_dagster.engine.layout import SPARK_LOG
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.spec.project import SparkSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GobblinSparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # generic only for Dagster's own checks
    """A lane on Spark, shared by all runs of a process.

    An idle run starts no JVM. dagster-pyspark's LazyPySparkResource is lazy too, but it cannot be told to begin while the
    plan is still being made, nor does it set what makes local Spark start in half the time.
    """

    master: str = Field(default="local[2,4]", description="Spark master; locally always `local[cores,4]`.")
    remote: str | None = Field(default=None, description="Spark Connect address (`sc://host:port`); replaces `master`.")
    conf: dict[str, str] = Field(default_factory=dict, description="Further Spark settings.")
    log_file: str | None = Field(default=None, description="Where the JVM's output goes; default: nowhere.")

    @classmethod
    def of_project(cls, project: Project) -> GobblinSparkResource:
        """Return the Spark that `gobblin.yaml` asks for."""
        spark = project.spec.spark
        log_file = str(project.root / SPARK_LOG)
        return cls(master=spark.master, remote=spark.remote, conf=dict(spark.conf), log_file=log_file)

    @property
    def spec(self) -> SparkSpec:
        """The same as a part of `gobblin.yaml`."""
        return SparkSpec(master=self.master, remote=self.remote, conf=self.conf)

    @property
    def log_path(self) -> Path | None:
        """Where the JVM's output goes."""
        return Path(self.log_file) if self.log_file else None

    @property
    def runner(self) -> LazySparkRunner:
        """The lane; the same object for equal settings in one process."""
        return _runner(self.spec.model_dump_json(), self.log_path)

    @property
    def session(self) -> SparkSession:
        """The lane's session, for assets that read with Spark; starts it. Raises EnvironmentFaultError."""
        return self.runner.started().session


@cache
def _runner(spec_json: str, log_file: Path | None) -> LazySparkRunner:
    # Never closed: it serves every run of the process, and its JVM ends with the process.
    return LazySparkRunner(SparkSpec.model_validate_json(spec_json), log_file)
