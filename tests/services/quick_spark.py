"""Settings of Spark for tests of few rows: compiling generated Java would take longer than the rows."""

from __future__ import annotations

from gobblin_dagster.spec.project import SparkSpec

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
}


def quick(spec: SparkSpec) -> SparkSpec:
    """Return the settings of a project with ours. Tests that run commands show that users' settings work, too."""
    return spec.model_copy(update={"conf": {**QUICK, **spec.conf}})
