"""Takes the pictures of Dagster's pages that the README shows, in a real browser.

Makes the demo in a temporary folder, runs it twice (a day arrives in between), opens `gobblin dev` and drives Chromium.
Needs `pip install playwright`, and Chromium on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, ViewportSize, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DATASETS = ("9E-JFK", "B6-JFK", "EV-EWR", "HA-JFK", "UA-EWR", "WN-LGA")
SHOWN = "EV-EWR"
PARTITION = "dagster/partition"
VIEWPORT = ViewportSize(width=1600, height=1000)
"""Pictures are nine tenths of it: 1440 x 900."""

LAUNCH = """mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
MATERIALIZED = """{ assetNodeOrError(assetKey: {path: ["nyc", "flights", "all"]}) {
  ... on AssetNode { partitionStats { numMaterialized } } } }"""


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gobblin-") as made:
        demo = Path(made) / "demo"
        gobblin("init", str(demo))
        gobblin("-C", str(demo), "run")
        subprocess.run([sys.executable, "-m", "gobblin_dagster.demo", "add-day", str(demo)], check=True)
        with dagster_dev(demo) as url:
            # The first run's commits are reported by the sweep sensor; the new day is read by a run of Dagster.
            wait_for(lambda: ask(url, MATERIALIZED)["assetNodeOrError"]["partitionStats"]["numMaterialized"] == 6)
            wait_for_success(url, [launch(url, "flights_job", [])])
            delays = [
                launch(url, "__ASSET_JOB", ["nyc", "flight_delays"], {PARTITION: dataset}) for dataset in DATASETS
            ]
            wait_for_success(url, delays)
            with sync_playwright() as playwright:
                program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
                browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
                page = browser.new_page(viewport=VIEWPORT, device_scale_factor=0.9, color_scheme="light")
                take_partitions(page, url)
                take_lineage(page, url)
                take_asset(page, url)
                take_checks(page, url)
                browser.close()


def take_partitions(page: Page, url: str) -> None:
    """Show the partitions of a branch, with the metadata of one dataset."""
    page.goto(f"{url}/assets/nyc/flights/all?view=partitions&partition={SHOWN}")
    page.get_by_text("gobblin/actual_high").first.wait_for()
    settle(page)
    page.screenshot(path=IMAGES / "ui-partitions.png")


def take_lineage(page: Page, url: str) -> None:
    """Show the branches of the job and the asset below."""
    page.goto(f"{url}/asset-groups")
    page.get_by_text("flight_delays").first.wait_for()
    settle(page)
    page.screenshot(path=IMAGES / "ui-lineage.png")


def take_asset(page: Page, url: str) -> None:
    """Show what a branch is: columns, table, the line in its job file."""
    page.goto(f"{url}/assets/nyc/flights/all?view=overview")
    page.get_by_text("Open flights.yaml").first.wait_for()
    settle(page)
    page.screenshot(path=IMAGES / "ui-asset.png")


def take_checks(page: Page, url: str) -> None:
    """Show what a check said of each partition."""
    page.goto(f"{url}/assets/nyc/flights/all?view=checks")
    page.get_by_text("Latest execution").first.wait_for()
    page.get_by_role("tab", name="Partitions").last.click()
    settle(page)
    page.screenshot(path=IMAGES / "ui-checks.png")


def settle(page: Page) -> None:
    """Wait until nothing moves any more."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)


@contextmanager
def dagster_dev(demo: Path) -> Iterator[str]:
    """Run `gobblin dev` over a project; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    command = [sys.executable, "-m", "gobblin_dagster", "-C", str(demo), "dev", "--port", str(port)]
    with (demo / "dev.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: bool(ask(url, "{ version }")))
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def gobblin(*arguments: str) -> None:
    """Run a command of gobblin."""
    subprocess.run([sys.executable, "-m", "gobblin_dagster", *arguments], check=True)


def launch(url: str, job: str, asset: list[str], tags: dict[str, str] | None = None) -> str:
    """Launch a run and return its id."""
    selector = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "gobblin",
        "pipelineName": job,
        "assetSelection": [{"path": asset}] if asset else None,
    }
    marks = [{"key": key, "value": value} for key, value in (tags or {}).items()]
    params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": marks}}
    launched = ask(url, LAUNCH, params=params)["launchRun"]
    return str(launched["run"]["runId"])


def wait_for_success(url: str, run_ids: list[str]) -> None:
    """Wait until all runs have succeeded; raises RuntimeError if one fails."""

    def have_succeeded() -> bool:
        found = {ask(url, STATUS, id=run_id)["runOrError"]["status"] for run_id in run_ids}
        if found & {"FAILURE", "CANCELED"}:
            raise RuntimeError("a run failed; look into it with `gobblin dev`")
        return found == {"SUCCESS"}

    wait_for(have_succeeded, 240)


def ask(url: str, query: str, **variables: Any) -> Any:
    """Return the data of a GraphQL query."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["data"]


def wait_for(is_so: Callable[[], bool], seconds: float = 120) -> None:
    """Look until it is so; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except (urllib.error.URLError, ConnectionError):
            pass  # not up yet
        time.sleep(0.5)
    raise TimeoutError(f"not so within {seconds} s")


if __name__ == "__main__":
    main()
