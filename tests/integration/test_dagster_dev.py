"""`dagster dev` as `gobblin dev` starts it: commits of the command line appear by themselves, and it ends when told
to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gobblin_dagster.engine.project import open_project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.integration.dagster_server import Shown, Webserver, wait_for
from tests.services.ports import free_port

pytestmark = pytest.mark.slow

JOB = """\
job: numbers
source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {a: {rows: 3}, "b c": {rows: 4}}}
extract: {namespace: test, table: numbers}
output: {path: lake}
"""
SERVE = """\
import sys
from pathlib import Path
from gobblin_dagster.orchestration.dev import serve
sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_dev_shows_what_the_command_line_committed_and_ends_with_its_processes(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: dev\n")
    (tmp_path / "jobs" / "numbers.yaml").write_text(JOB)
    project = open_project(tmp_path)
    run_job(project, project.job("numbers"), runner=InlineRunner())

    server = Webserver(free_port())
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    command = [sys.executable, "-c", SERVE, str(tmp_path), str(server.port)]
    with (tmp_path / "dev.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            wait_for(lambda: server.ask("{ version }"), bool, 180)

            def both(shown: Shown) -> bool:
                return shown.materialized == {"a", "b%20c"}

            wait_for(lambda: server.shown(("test", "numbers", "main")), both, 180)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
    with pytest.raises(OSError, match="refused"):
        server.ask("{ version }")
