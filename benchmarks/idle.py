"""An idle run over many datasets: everything was published before, nothing is new. Prints what it took, as JSON.

python benchmarks/idle.py <project folder>
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from gobblin_dagster.engine.project import open_project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.spark.lazy import LazySparkRunner


def main(folder: Path) -> None:
    """Run the job and count what the state store was asked."""
    statements: list[str] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT") and "dataset_state" in statement.lower():
            statements.append(statement)

    project = open_project(folder)
    runner = LazySparkRunner(project.spec.spark)
    begun = time.perf_counter()
    result = run_job(project, project.job("bench"), runner=runner)
    print(
        json.dumps(
            {
                "exit_code": result.exit_code,
                "datasets": len(result.datasets),
                "seconds": time.perf_counter() - begun,
                "spark_started": runner.is_started or "pyspark" in sys.modules,
                "state_queries": len(statements),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
