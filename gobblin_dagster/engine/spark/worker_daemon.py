"""The process from which local Spark forks its Python workers, started as a module: `spark.python.daemon.module`.

Spark puts its own Python code, as archives, first on the path of workers. They hold no compiled code, so each session
would compile it again; and before every task a worker would read their lists of files again, which took 130 ms of a
warm task. The same code is installed beside them. So the archives are removed from the path, and the modules that work
units need are imported once for all workers.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from gobblin_dagster.constructs.sql.stuck import let_process_end

_SAFE_PATH = "gobblin"
ENVIRONMENT = {} if "PYTHONSAFEPATH" in os.environ else {"spark.executorEnv.PYTHONSAFEPATH": _SAFE_PATH}
"""Spark's settings for the daemon: a project's `queue.py` in the current folder is not to hide Python's own."""


def without_archives(path: Sequence[str]) -> list[str]:
    """Return the path without entries inside the installed pyspark; unchanged if a package needs them."""
    unpacked = [entry for entry in path if not entry.endswith((".zip", ".jar"))]
    spark, py4j = (PathFinder.find_spec(name, unpacked) for name in ("pyspark", "py4j"))
    if spark is None or spark.origin is None or py4j is None:
        return list(path)
    inside = Path(spark.origin).parent
    return [entry for entry in path if inside not in Path(entry).parents]


def main() -> None:
    """Become Spark's daemon; returns when Spark ends it."""
    if os.environ.get("PYTHONSAFEPATH") == _SAFE_PATH:
        del os.environ["PYTHONSAFEPATH"]  # it is not meant for programs that constructs start
    before, sys.path[:] = set(sys.path), without_archives(sys.path)
    for archive in before.difference(sys.path):
        sys.path_importer_cache.pop(archive, None)
    from pyspark.daemon import manager  # noqa: PLC0415 - after the path was changed

    import gobblin_dagster.engine.task.multi_work_unit  # noqa: F401, PLC0415 - before workers fork; needs the path

    let_process_end()
    # A worker looks for cycles after every task, before it takes the next one: no longer among these modules.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]  # pyspark leaves it untyped


if __name__ == "__main__":
    main()
