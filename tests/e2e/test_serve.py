"""`gobblin serve` and `gobblin flow`, as a user calls them: real processes, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.cli.program import run_command
from tests.e2e.project import WITHOUT_SPARK
from tests.services.ports import free_port

GOBBLIN = [sys.executable, "-m", "gobblin_dagster"]

TEMPLATE = """
template: to_lake
description: Files from a folder into the lake, one dataset a folder.
parameters:
  folder: {type: path, default: landing, description: Folder that files arrive in}
  least: {type: integer, default: "0", description: Least amount that is kept}
  table: {type: name, description: Table in the lake}
job:
  source:
    type: files
    path: "${folder}/{dataset}/{date:%Y-%m-%d}.csv"
    format: {type: csv, columns: {id: int64, amount: int64}}
  extract: {namespace: shop, table: "${table}"}
  converters:
    - {type: sql, where: "amount >= ${least}"}
  output: {path: lake}
"""
CREATE = (
    "flow",
    "create",
    "shop/orders",
    "-t",
    "FS:///shop/to-lake.template",
    "--set",
    "table=orders",
    "--set",
    "least=10",
)


class Service:
    """A project with a template, and `gobblin serve` in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        (root / "gobblin.yaml").write_text(f"{WITHOUT_SPARK}service: {{port: {self.port}}}\n")
        (root / "templates" / "shop").mkdir(parents=True)
        (root / "templates" / "shop" / "to-lake.template").write_text(TEMPLATE)
        self.arrive("orders_eu", "2026-01-01", 5)
        self.arrive("orders_us", "2026-01-01", 5)
        self.process: subprocess.Popen[str] | None = None

    def arrive(self, dataset: str, day: str, rows: int) -> None:
        folder = self.root / "landing" / dataset
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{number},{number * 10}\n" for number in range(1, rows + 1))
        (folder / f"{day}.csv").write_text("id,amount\n" + text)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*GOBBLIN, "serve"], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for line in self.process.stdout or ():
            if "answers at" in line:
                return
        raise AssertionError("the service did not start")

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(120)

    def flow(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        told = subprocess.run([*GOBBLIN, *arguments], cwd=self.root, capture_output=True, text=True, check=False)
        assert code is None or told.returncode == code, told.stdout + told.stderr
        return told

    def document(self, *arguments: str) -> Any:
        return json.loads(self.flow(*arguments, "-o", "json").stdout)

    def rows(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in (self.root / "lake" / "shop").rglob("*.parquet"))


class CalledHere(Service):
    """The same; its other commands are called in this process, because each start of one takes a second."""

    def __init__(self, root: Path, captured: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._captured = captured

    def flow(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        self._captured.readouterr()
        with chdir(self.root):
            ended = run_command(arguments)
        told = subprocess.CompletedProcess(arguments, ended, *self._captured.readouterr())
        assert code is None or told.returncode == code, told.stdout + told.stderr
        return told


@contextmanager
def _started(made: Service) -> Iterator[Service]:
    made.start()
    yield made
    assert made.process is not None
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with _started(Service(tmp_path)) as made:
        yield made


@pytest.fixture
def called_here(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Service]:
    with _started(CalledHere(tmp_path, capfd)) as made:
        yield made


def test_flow_from_creation_to_published_rows_over_kills_and_restarts(service: Service) -> None:
    assert "table (name, required)" in service.flow("flow", "templates").stdout
    service.flow(*CREATE, "--schedule", "0 0 0 ? 1 1 2050")
    first = service.document("flow", "run", "shop/orders")["execution"]
    assert (first["executionStatus"], first["message"]) == ("COMPLETE", "10 rows in 1 job")
    assert service.rows() == 10
    # New data; the service is killed as soon as the job was handed over, with its worker.
    service.arrive("orders_eu", "2026-01-02", 7)
    service.flow("flow", "run", "shop/orders", "--no-wait")
    service.end(signal.SIGKILL)
    service.start()
    second = service.document("flow", "status", "shop/orders", "--wait")["execution"]
    assert second["executionStatus"] == "COMPLETE"
    assert service.rows() == 17
    # Ended gracefully, started again: everything is as it was.
    assert service.end(signal.SIGTERM) == 0
    service.start()
    assert [one["executionStatus"] for one in service.document("flow", "executions", "shop/orders")["executions"]] == [
        "COMPLETE",
        "COMPLETE",
    ]
    idle = service.document("flow", "run", "shop/orders")["execution"]
    assert idle["message"] == "0 rows in 1 job"
    assert service.rows() == 17


def test_flows_are_changed_shown_and_taken_back(called_here: Service) -> None:
    called_here.flow(*CREATE, "--schedule", "0 0/5 * ? * * 2050")
    again = called_here.flow(*CREATE, code=2)
    assert "already exists" in again.stderr
    called_here.flow("flow", "update", "shop/orders", "--set", "least=20", "--schedule", "0 0/10 * ? * * 2050")
    assert "least: 10 -> 20" in called_here.flow("flow", "diff", "shop/orders", "1", "2").stdout
    assert "0 0/10 * ? * * 2050" in called_here.flow("flow", "list").stdout
    called_here.flow("flow", "rollback", "shop/orders", "1")
    shown = called_here.document("flow", "show", "shop/orders")
    assert (shown["version"], shown["flow"]["properties"]["least"], len(shown["next_fires"])) == (3, "10", 5)
    called_here.flow("flow", "pause", "shop/orders")
    assert "paused" in called_here.flow("flow", "show", "shop/orders").stdout
    called_here.flow("flow", "unpause", "shop/orders")
    called_here.flow("flow", "unschedule", "shop/orders")
    assert "never" in called_here.flow("flow", "list").stdout
    assert "never ran" in called_here.flow("flow", "executions", "shop/orders").stdout
    called_here.flow("flow", "delete", "shop/orders", "--yes")
    assert "No flow" in called_here.flow("flow", "list").stdout
    changes = [one["change"] for one in called_here.document("flow", "history", "shop/orders")["versions"]]
    assert changes == ["created", "updated", "rolled_back", "paused", "resumed", "unscheduled", "deleted"]


def test_folder_of_flows_is_applied_as_it_was_shown(called_here: Service, tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(
            f"flow: shop/{name}\ntemplates: FS:///shop/to-lake.template\n"
            f"schedule: '0 0 * ? * *'\nset: {{table: {name}, least: 5}}\n"
        )
    planned = called_here.flow("flow", "apply", "flows", "--dry-run").stdout
    assert "create shop/a" in planned
    assert "+ properties.least = 5" in planned
    assert called_here.document("flow", "list")["flows"] == []
    called_here.flow("flow", "apply", "flows", "--yes")
    assert "Nothing to do" in called_here.flow("flow", "apply", "flows").stdout
    (folder / "a.yaml").unlink()
    (folder / "b.yaml").write_text((folder / "b.yaml").read_text().replace("least: 5", "least: 6"))
    called_here.flow(*CREATE, "--schedule", "0 0 * ? * *")
    told = called_here.flow("flow", "apply", "flows", "--prune", "--yes").stdout
    assert "~ properties.least: 5 -> 6" in told
    assert "delete shop/a" in told
    names = [one["id"]["flowName"] for one in called_here.document("flow", "list")["flows"]]
    assert names == ["b", "orders"], "what did not come from the folder stays"
    called_here.flow("flow", "export", "exported")
    assert "Nothing to do" in called_here.flow("flow", "apply", "exported").stdout


def test_what_cannot_be_is_said_without_a_trace(called_here: Service, tmp_path: Path) -> None:
    for arguments, text in {
        ("flow", "create", "orders", "-t", "FS:///shop/to-lake.template"): "GROUP/NAME",
        ("flow", "create", "shop/x", "-t", "FS:///shop/nope.template"): "templates: FS:///shop/to-lake.template",
        ("flow", "create", "shop/x", "-t", "FS:///shop/to-lake.template"): "needs the parameter 'table'",
        ("flow", "explain", "shop/x", "-t", "FS:///shop/to-lake.template", "--set", "table=1"): "is no name",
        ("flow", "run", "shop/nope"): "does not exist",
        ("flow", "logs", "shop/nope"): "No flow execution found",
        (*CREATE, "--schedule", "* * * * *"): "not in Cron format",
        (*CREATE, "--set", "oops"): "NAME=VALUE",
        ("worker",): "A worker is started by `gobblin serve`",
    }.items():
        told = called_here.flow(*arguments, code=2)
        assert text in told.stderr, told.stderr
        assert "Traceback" not in told.stderr
    second = subprocess.run(
        [*GOBBLIN, "serve"], cwd=called_here.root, capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert "cannot listen on 127.0.0.1" in second.stderr
    assert called_here.end(signal.SIGTERM) == 0
    assert "start it with `gobblin serve`" in called_here.flow("flow", "list", code=1).stderr


def test_token_is_kept_private_and_asked_for(service: Service) -> None:
    token = service.root / ".gobblin" / "service.token"
    assert token.stat().st_mode & 0o777 == 0o600
    environment = {**os.environ, "GOBBLIN_SERVICE_TOKEN": "wrong"}
    told = subprocess.run(
        [*GOBBLIN, "flow", "list"], cwd=service.root, capture_output=True, text=True, env=environment, check=False
    )
    assert told.returncode == 2
    assert "Authorization" in told.stderr


@pytest.mark.spark
def test_service_demo_shows_what_the_readme_says(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "gobblin"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gobblin_dagster "$@"\n')
    program.chmod(0o755)
    subprocess.run([program, "init", "--service", "demo"], cwd=tmp_path, check=True, capture_output=True)
    settings = tmp_path / "demo" / "gobblin.yaml"
    settings.write_text(settings.read_text().replace("port: 6956", f"port: {free_port()}"))
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "120"}
    told = subprocess.run(
        [root / "scripts" / "service-demo.sh", "demo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    steps = [line for line in told.stdout.splitlines() if line.startswith("$ gobblin ")]
    assert [step.split()[3] for step in steps] == [
        *("templates", "create", "run", "status", "datasets"),
        *("create", "run", "list"),
    ]
    assert "COMPLETE" in told.stdout.partition("$ gobblin flow status")[2]
    assert "The service has ended." in told.stdout
    readme = (root / "README.md").read_text().partition("## As a service")[2].partition("\n## ")[0]
    shown = readme.partition("```\n$ gobblin")[2].partition("```")[0].splitlines()[1:]
    told_without_times = [_without_time(line) for line in told.stdout.splitlines()]
    assert [line for line in shown if _without_time(line) not in (*told_without_times, "...")] == []
    assert all(line in readme for line in steps if " create " in line or " run " in line or " list" in line)
    with closing(sqlite3.connect(tmp_path / "demo" / "warehouse.db")) as warehouse:
        assert warehouse.execute("SELECT count(*), count(flight_date) FROM flights").fetchall() == [(697, 697)]
    assert "697 rows" in readme


def _without_time(line: str) -> str:
    """Return a line of what the demo prints, without what differs in each run."""
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|(?<=^Execution )\d+", "", line)
