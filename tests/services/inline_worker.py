"""The worker of the service's embedded executor, without Spark: the same program on the inline runner.

`python -m tests.services.inline_worker FOLDER`; a file `die` in the folder ends it by SIGKILL while a job runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.executors.messages import JobNews, to_line
from gobblin_dagster.service.model import ExecutionStatus
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.testing.inline_runner import InlineRunner


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(news: JobNews) -> None:
        with lock:
            messages.write(to_line(news))
            messages.flush()
        if news.status is ExecutionStatus.RUNNING and (root / "die").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    project = Project(root, load_project(root))
    if not Worker(project, InlineRunner(), tell, project.spec.service.jobs_at_once).serve(sys.stdin):
        os._exit(1)


if __name__ == "__main__":
    main()
