"""Seconds from "Launch run" to the first step and to the end of the run: cold, in the warm worker, and dagster-dlt.

    python benchmarks/launch.py [--datasets 20] [--rounds 5] [--dlt PYTHON]

`--dlt` names a Python in which dagster-dlt, dagster-webserver and dlt are installed with `[filesystem,parquet]`. Each
side loads CSV files by one job, shown by `dagster dev` (SQLite, runs are not queued). Our sides get a new file for each
dataset before each launch, so that each run has work for Spark; dlt loads the same files each time, so its ends are not
compared. A launch posts what the button posts, and the times are those of the run's events. The sides are launched in
turn, each run ends before the next is launched, and the first launch of each side does not count: it starts the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from figures import Figure, save_figures
from in_dagster import DLT, OURS, fresh
from many_datasets import HERE, JOB, write_files

HOME = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""
WARM = """
run_launcher:
  module: gobblin_dagster.launcher
  class: GobblinWarmRunLauncher
  config: {{projects: {{definitions.py: {folder}}}}}
"""
LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
EVENTS = """
query Events($run: ID!) {
  runOrError(runId: $run) {
    ... on Run { status endTime eventConnection { events { ... on ExecutionStepStartEvent { timestamp } } } }
  }
}
"""
LOCATIONS = """
query Locations {
  repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } }
}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=20, help="files that the job reads (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, help="launches of each side (default: 5)")
    parser.add_argument("--dlt", type=Path, help="a Python that has dagster-dlt and dagster-webserver")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".work" / "bench", help="folder to work in")
    args = parser.parse_args()
    cache = args.cache.resolve()
    files = write_files(cache, args.datasets, 336)
    sides = {"cold": "", "warm": WARM}
    took: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as servers:
        urls = {}
        folders = {side: fresh(cache / side) for side in sides}
        for side, folder in folders.items():
            shutil.copytree(files, folder / "files")
            home = HOME + sides[side].format(folder=folder)
            urls[side] = made(servers, Path(sys.executable), folder, home, OURS.format(checks=True))
        if args.dlt:
            folder, text = fresh(cache / "dlt"), DLT.format(files=str(files), size=200)
            urls["dagster-dlt"] = made(servers, args.dlt, folder, HOME, text)
        for day in range(2, args.rounds + 3):
            for side, url in urls.items():
                if side in folders:
                    add_day(folders[side] / "files", day)
                took.setdefault(side, []).append(launched(url))
    for side, (_, *counted) in took.items():
        for what, seconds in zip(("first step", "end"), zip(*counted, strict=True), strict=True):
            print(f"{side:<12} {what:<10} {median(seconds):6.2f} s, of {', '.join(f'{one:.2f}' for one in seconds)}")
            title = f"From launch to the {what}"
            save_figures(title, [Figure(side, args.datasets, median(seconds), 0.0)])
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, medians of {args.rounds}.")


def made(servers: ExitStack, python: Path, folder: Path, home: str, definitions: str) -> str:
    """Make a project, show it by `dagster dev`, and return the address of its GraphQL."""
    (folder / "home" / "dagster.yaml").write_text(home, encoding="utf-8")
    (folder / "jobs" / "many.yaml").write_text(JOB.format(files=folder / "files"), encoding="utf-8")
    (folder / "definitions.py").write_text(definitions, encoding="utf-8")
    return servers.enter_context(pages(python, folder))


def add_day(files: Path, day: int) -> None:
    """Give each dataset a file of one more day."""
    for folder in files.iterdir():
        shutil.copy(folder / "2026-01-01.csv", folder / f"2026-01-{day:02}.csv")


@contextmanager
def pages(python: Path, folder: Path) -> Iterator[str]:
    """Show a project with `dagster dev` and yield the address of its GraphQL; end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "DAGSTER_HOME": str(folder / "home")}
    command = [str(python), "-m", "dagster", "dev", "-f", "definitions.py", "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "dev.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}/graphql"
    try:
        for _ in range(600):
            if server.poll() is not None:
                sys.exit((folder / "dev.log").read_text(encoding="utf-8"))
            with suppress(OSError):
                if asked(url, LOCATIONS)["repositoriesOrError"].get("nodes"):
                    break
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def launched(url: str) -> tuple[float, float]:
    """Launch the job, wait for the end of the run; return the seconds until its first step, and until its end."""
    (repository,) = asked(url, LOCATIONS)["repositoriesOrError"]["nodes"]
    selector = {
        "repositoryName": repository["name"],
        "repositoryLocationName": repository["location"]["name"],
        "jobName": "many_job",
    }
    begun = time.time()
    answer = asked(url, LAUNCH, params={"selector": selector, "mode": "default", "runConfigData": {}})["launchRun"]
    if "run" not in answer:
        sys.exit(f"not launched: {answer}")
    while True:
        run = asked(url, EVENTS, run=answer["run"]["runId"])["runOrError"]
        if run["status"] in ("SUCCESS", "FAILURE", "CANCELED"):
            break
        time.sleep(0.5)
    steps = [float(event["timestamp"]) / 1000 for event in run["eventConnection"]["events"] if "timestamp" in event]
    if run["status"] != "SUCCESS" or not steps:
        sys.exit(f"the run ended as {run['status']}")
    return min(steps) - begun, run["endTime"] - begun


def asked(url: str, query: str, **variables: Any) -> dict[str, Any]:
    """Ask GraphQL and return its data."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:  # a query with a fault
        sys.exit(f"GraphQL: {error.read().decode()}")
    if answer.get("errors"):
        sys.exit(f"GraphQL: {answer['errors']}")
    data: dict[str, Any] = answer["data"]
    return data


if __name__ == "__main__":
    main()
