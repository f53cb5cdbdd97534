"""Seconds from "Launch run" to the first step of the run, for us and for dagster-dlt, measured the same way.

    python benchmarks/launch.py [--datasets 20] [--rounds 5] [--dlt PYTHON]

`--dlt` names a Python in which dagster-dlt, dagster-webserver and dlt are installed with `[filesystem,parquet]`. Each
side loads the same CSV files by one job, shown by `dagster dev` (SQLite, runs are not queued, one process a run). A
launch posts what the button posts; the run's first event STEP_START says when its first step began. Each run ends
before the next is launched.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    ... on Run { status eventConnection { events { ... on ExecutionStepStartEvent { timestamp } } } }
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
    sides = {"ours": (Path(sys.executable), OURS.format(checks=True))}
    if args.dlt:
        sides["dagster-dlt"] = (args.dlt, DLT.format(files=str(files), size=200))
    for side, (python, definitions) in sides.items():
        folder = fresh(cache)
        (folder / "home" / "dagster.yaml").write_text(HOME, encoding="utf-8")
        (folder / "jobs" / "many.yaml").write_text(JOB.format(files=files), encoding="utf-8")
        (folder / "definitions.py").write_text(definitions, encoding="utf-8")
        with pages(python, folder) as url:
            took = [launched(url) for _ in range(args.rounds)]
        print(f"{side:<12} {median(took):6.2f} s, of {', '.join(f'{one:.2f}' for one in took)}")
        save_figures("From launch to the first step", [Figure(side, args.datasets, median(took), 0.0)])
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, medians of {args.rounds}.")


@contextmanager
def pages(python: Path, folder: Path) -> Iterator[str]:
    """Show a project with `dagster dev` and yield the address of its GraphQL; end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "dagster", "dev", "-f", "definitions.py", "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "dev.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
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


def launched(url: str) -> float:
    """Launch the job, wait until the run has ended, and return the seconds until its first step began."""
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
    return min(steps) - begun


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
