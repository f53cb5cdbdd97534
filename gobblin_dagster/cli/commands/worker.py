"""`gobblin worker`: the process in which the service's embedded executor runs jobs."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from gobblin_dagster.cli.context import project_root
from gobblin_dagster.cli.spark import lazy_spark
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.executors.messages import JobNews, to_line
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.spec.load import load_project

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def worker(
    ctx: typer.Context,
    pipe: Annotated[
        bool, typer.Option("--pipe", help="Take orders from standard input, one JSON object a line.")
    ] = False,
) -> None:
    """Run jobs that the service hands over; `gobblin serve` starts it.

    Jobs share one Spark, which stays warm. When the input ends without an order to end, the service was killed: the
    worker ends at once, and the next start of the service takes its jobs up again.
    """
    if not pipe:
        raise UsageError(problem="A worker is started by `gobblin serve`.", hint="It takes orders with --pipe.")
    root = project_root(ctx)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    # What anything prints must not stand between the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(news: JobNews) -> None:
        with lock:
            messages.write(to_line(news))
            messages.flush()

    spec = load_project(root)
    project = Project(root.resolve(), spec)
    runner = lazy_spark(project)
    is_ordered = Worker(project, runner, tell, spec.service.jobs_at_once).serve(sys.stdin)
    if not is_ordered:
        os._exit(1)
    runner.close()
