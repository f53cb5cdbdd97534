"""Decide whether a run needs Spark, or runs in processes of this machine (`spark.start: when_needed`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import FrameSource
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.runner import TaskPlace
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import SparkSpec

SMALL_BYTES = 256 << 20
"""Bytes of input up to which a run is small: a few seconds of work, about what the start of Spark takes."""
SMALL_ROWS = 5_000_000
"""Rows up to which a run is small, if its source knows rows and no bytes."""


def task_place(spec: SparkSpec, job: JobSpec, units: Iterable[WorkUnit], *, is_running: bool) -> TaskPlace:
    """Return where the work units of a job are run, and why.

    Units of unknown size count as small: a process runs what Spark's task would, on the same cores.

    Args:
        spec: settings of Spark; `start` must be `when_needed`.
        job: the job.
        units: its planned work units.
        is_running: whether Spark has been started.
    """
    sizes = [(unit.size_bytes, unit.rows) for unit in units]
    size = sum(one for one, _ in sizes if one is not None)
    rows = sum(one for known, one in sizes if known is None and one is not None)
    reads_with_spark = issubclass(registry.load(ConstructKind.SOURCE, job.source.type), FrameSource)
    reasons = {
        "`spark.remote` is set": spec.remote is not None,
        f"`spark.master` is {spec.master}": spec.local_cores is None,
        "`spark.conf` has settings": bool(spec.conf),
        "the source reads with Spark": reads_with_spark,
        "it has started already": is_running,
        f"more than {SMALL_BYTES >> 20} MB are to be read": size > SMALL_BYTES,
        f"more than {count(SMALL_ROWS, 'row')} are to be read": rows > SMALL_ROWS,
    }
    for why, is_true in reasons.items():
        if is_true:
            return TaskPlace(True, why)
    is_known = all(one is not None or counted is not None for one, counted in sizes)
    return TaskPlace(False, "little is to be read" if is_known else "nothing says that much is to be read")


def may_need_no_spark(spec: SparkSpec) -> bool:
    """Return whether a run with these settings may be run without Spark."""
    return spec.start == "when_needed" and spec.local_cores is not None and not spec.conf


def has_session() -> bool:
    """Return whether something in this process has a Spark session already; imports no pyspark."""
    if "pyspark.sql" not in sys.modules:
        return False
    from gobblin_dagster.engine.spark.runner import existing_session  # noqa: PLC0415 - imports pyspark

    return existing_session() is not None
