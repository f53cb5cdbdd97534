"""A real Dagster webserver over a project in a folder, asked through GraphQL as its pages do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.ports import free_port

INSTANCE = """\
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""
WORKSPACE = "load_from: [{python_file: {relative_path: definitions.py, location_name: gobblin}}]\n"
FINISHED = {"SUCCESS", "FAILURE", "CANCELED"}

LAUNCH = """
mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } ... on InvalidSubsetError { message } } }
"""
RETRY = """
mutation ($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
STATUS = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
ASSET = """
query ($key: AssetKeyInput!, $keys: [String!]) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numFailed numPartitions }
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions failedPartitions } }
  latestMaterializationByPartition(partitions: $keys) { partition runId metadataEntries {
    label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
    ... on BoolMetadataEntry { boolValue } } }
  assetMaterializations(partitions: $keys) { partition runId }
  dependedByKeys { path } } } }
"""


@dataclass(frozen=True)
class Shown:
    """What the pages show of an asset."""

    materialized: set[str]
    failed: set[str]
    counts: tuple[int, int, int]
    """Materialized, failed, all."""
    latest: dict[str, dict[str, Any]]
    """Metadata of the newest materialization, by partition."""
    events: dict[str, list[str]]
    """Run ids of all materializations, newest first, by partition."""


class Webserver:
    """GraphQL at a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the data of a query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        url = f"http://127.0.0.1:{self.port}/graphql"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return found["data"]

    def launch(
        self,
        job: str,
        assets: Sequence[Sequence[str]] = (),
        tags: dict[str, str] | None = None,
        config: Any = None,
    ) -> str:
        """Launch a run and return its id."""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "gobblin",
            "pipelineName": job,
            "assetSelection": [{"path": list(path)} for path in assets] or None,
        }
        marks = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        params = {
            "selector": selector,
            "mode": "default",
            "runConfigData": config or {},
            "executionMetadata": {"tags": marks},
        }
        return _run_id(self.ask(LAUNCH, params=params)["launchRun"])

    def retry(self, run_id: str) -> str:
        """Re-execute a run from its failure and return the new run's id."""
        params = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return _run_id(self.ask(RETRY, params=params)["launchRunReexecution"])

    def wait(self, run_id: str) -> str:
        """Return the status of a run once it has ended."""
        return str(wait_for(lambda: self._status(run_id), FINISHED.__contains__, 180))

    def _status(self, run_id: str) -> Any:
        return self.ask(STATUS, id=run_id)["runOrError"]["status"]

    def shown(self, path: Sequence[str], keys: Sequence[str] = ()) -> Shown:
        """Return what the pages show of an asset."""
        node = self.ask(ASSET, key={"path": list(path)}, keys=list(keys))["assetNodeOrError"]
        latest = {
            one["partition"]: {
                entry["label"]: next((value for name, value in entry.items() if name != "label"), None)
                for entry in one["metadataEntries"]
            }
            for one in node["latestMaterializationByPartition"]
            if one
        }
        events: dict[str, list[str]] = {}
        for event in node["assetMaterializations"]:
            events.setdefault(event["partition"], []).append(event["runId"])
        stats, statuses = node["partitionStats"], node["assetPartitionStatuses"]
        return Shown(
            set(statuses["materializedPartitions"]),
            set(statuses["failedPartitions"]),
            (stats["numMaterialized"], stats["numFailed"], stats["numPartitions"]),
            latest,
            events,
        )


def wait_for(look: Callable[[], Any], is_good: Callable[[Any], bool], seconds: float) -> Any:
    """Look until what is seen is good; fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    seen = None
    while time.monotonic() < deadline:
        try:
            seen = look()
            if is_good(seen):
                return seen
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            seen = error
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s; last seen: {seen}")


@contextmanager
def running_webserver(folder: Path) -> Iterator[Webserver]:
    """Start a webserver over the `definitions.py` of a folder, with a Dagster home of its own."""
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    (folder / "workspace.yaml").write_text(WORKSPACE)
    server = Webserver(free_port())
    command = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-h",
        "127.0.0.1",
        "-p",
        str(server.port),
        "-w",
        "workspace.yaml",
    ]
    environment = os.environ | {"DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    with (folder / "webserver.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(lambda: server.ask("{ version }") if process.poll() is None else "ended", bool, 180)
            assert process.poll() is None, (folder / "webserver.log").read_text()
            yield server
        finally:
            process.terminate()
            process.wait(120)


def _run_id(launched: dict[str, Any]) -> str:
    assert launched["__typename"] == "LaunchRunSuccess", launched
    run_id: str = launched["run"]["runId"]
    return run_id
