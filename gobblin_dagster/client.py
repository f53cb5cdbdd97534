"""FlowClient: the service's REST API as Python methods; what `gobblin flow` uses, for programs of your own.

Documents are those of Gobblin's REST API, as JSON-ready dicts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import requests

from gobblin_dagster.core.errors import (
    FlowChangedError,
    FlowCompileError,
    FlowExistsError,
    FlowNotFoundError,
    GobblinDagsterError,
    TransientError,
    UsageError,
)
from gobblin_dagster.core.startpoint import OnRewind

_FLOWS = "/flowconfigsV2"
"""Path to which new flows are posted."""


class FlowClient:
    """Talks to a service.

    Args:
        url: where the service answers, e.g. `http://127.0.0.1:6956`.
        token: what the service printed at its first start; None if it allows anonymous requests.
        timeout_s: seconds to wait for an answer.

    Methods raise:
        FlowNotFoundError, FlowExistsError, FlowChangedError, FlowCompileError: as the service says.
        UsageError: the service refuses the request.
        TransientError: the service does not answer, or its store is away; trying again may help.

    Example:
        with FlowClient("http://127.0.0.1:6956", token) as client:
            client.create("shop", "orders", "FS:///shop/to-lake.template", {"dataset": "orders"})
    """

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 30) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the environment must not see the token
        self._session.headers["X-RestLi-Protocol-Version"] = "2.0.0"
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def create(
        self,
        group: str,
        name: str,
        template_uris: str,
        properties: Mapping[str, str],
        *,
        cron: str | None = None,
        run_immediately: bool = False,
        explain: bool = False,
        idempotency_key: str | None = None,
        managed_by: str | None = None,
    ) -> dict[str, Any]:
        """Create a flow, and return it as stored; `explain` only compiles it, and stores nothing.

        Args:
            group: the flow's group.
            name: its name in the group.
            template_uris: URIs of templates, with commas between them.
            properties: parameters of the templates, and settings of the flow.
            cron: Quartz cron; None: the flow runs once, now.
            run_immediately: whether it runs once now, in addition to its schedule.
            explain: whether it is only compiled.
            idempotency_key: a second request with the same key gets the first one's answer.
            managed_by: the folder of flow files that the flow comes from.
        """
        document = _config(group, name, template_uris, properties, cron, run_immediately=run_immediately)
        if explain:
            document["explain"] = True
        headers = _present({"Idempotency-Key": idempotency_key, "X-Gobblin-Managed-By": managed_by})
        return self._document("POST", _FLOWS, document, headers)

    def update(
        self,
        group: str,
        name: str,
        template_uris: str,
        properties: Mapping[str, str],
        *,
        cron: str | None = None,
        run_immediately: bool = False,
        version: int | None = None,
        managed_by: str | None = None,
    ) -> None:
        """Put a flow in the place of one that exists; `version` refuses it if another change came first."""
        document = _config(group, name, template_uris, properties, cron, run_immediately=run_immediately)
        expected = None if version is None else f'"{version}"'
        headers = _present({"If-Match": expected, "X-Gobblin-Managed-By": managed_by})
        self._call("PUT", f"/flowconfigsV2/{_key(group, name)}", document, headers)

    def templates(self) -> list[dict[str, Any]]:
        """Return the templates that flows can be made of, with their parameters."""
        return self._elements("/flowtemplates")

    def get(self, group: str, name: str) -> dict[str, Any]:
        """Return a flow."""
        return self._document("GET", f"/flowconfigsV2/{_key(group, name)}")

    def find(self, **filters: str) -> list[dict[str, Any]]:
        """Return all flows that filters find, by group and name; filters are those of `q=filterFlows`."""
        # One request: pages would leave flows out if others before them are deleted meanwhile.
        query = "&".join(f"{name}={_value(value)}" for name, value in {"q": "filterFlows", **filters}.items())
        return self._elements(f"/flowconfigsV2?{query}")

    def delete(self, group: str, name: str, *, version: int | None = None) -> None:
        """Take a flow out of the catalog; executions that run go on. `version` refuses it if a change came first."""
        headers = _present({"If-Match": None if version is None else f'"{version}"'})
        self._call("DELETE", f"/flowconfigsV2/{_key(group, name)}", headers=headers)

    def run(self, group: str, name: str) -> int:
        """Ask for an execution now, and return its id."""
        answer = self._call("POST", f"/flowconfigsV2/{_key(group, name)}?action=runImmediately", {})
        return _execution_in(answer.headers["Location"])

    def act(self, group: str, name: str, action: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Pause, unpause or roll back a flow, and return its newest version; or what another action returns."""
        answer = self._document("POST", f"/flowconfigsV2/{_key(group, name)}?action={action}", dict(body or {}))
        value: dict[str, Any] = answer["value"]
        return value

    def explain(self, group: str, name: str) -> dict[str, Any]:
        """Compile a flow that exists, as it stands, and return it with its jobs as `create(explain=True)` does."""
        return self.act(group, name, "explain")

    def unschedule(self, group: str, name: str) -> None:
        """End a flow's schedule, and keep the flow."""
        flow = self.get(group, name)
        flow["properties"]["flow.unschedule"] = "true"
        self._call("PUT", f"/flowconfigsV2/{_key(group, name)}", flow)

    def history(self, group: str, name: str) -> list[dict[str, Any]]:
        """Return all versions of a flow, oldest first."""
        return self._elements(f"/flowconfigsV2?q=history&flowId={_key(group, name)}")

    def executions(self, group: str, name: str, count: int = 10) -> list[dict[str, Any]]:
        """Return the newest executions of a flow, newest first."""
        found = f"/flowexecutions?q=latestFlowExecution&flowId={_key(group, name)}&count={count}&includeIssues=true"
        return self._elements(found)

    def execution(self, group: str, name: str, number: int) -> dict[str, Any]:
        """Return one execution."""
        return self._document("GET", f"/flowexecutions/{_execution_key(group, name, number)}")

    def events(self, group: str, name: str, number: int, after: int = 0) -> list[dict[str, Any]]:
        """Return what happened in an execution, after the event with a number."""
        query = f"q=events&flowId={_key(group, name)}&flowExecutionId={number}&after={after}"
        return self._elements(f"/flowexecutions?{query}")

    def datasets(self, group: str, name: str) -> list[dict[str, Any]]:
        """Return how far each dataset of a flow is: watermark, lag, rows, startpoint, open commit sequences."""
        return self._elements(f"/flowdatasets/{_key(group, name)}")

    def dataset(self, group: str, name: str, urn: str, job: str | None = None) -> dict[str, Any]:
        """Return how far one dataset of a flow is; `job` is needed if several jobs of the flow have it."""
        return self._document("GET", f"/flowdatasets/{_dataset_key(group, name, urn, job)}")

    def set_startpoint(
        self,
        group: str,
        name: str,
        urn: str,
        position: str,
        reason: str,
        *,
        job: str | None = None,
        expires_in_days: int = 7,
        on_rewind: OnRewind = "refuse",
    ) -> dict[str, Any]:
        """Let the next run of a dataset begin elsewhere, and return the startpoint.

        Args:
            group: the flow's group.
            name: its name in the group.
            urn: the dataset.
            position: a watermark, `timestamp:<instant>`, `oldest` or `upcoming`.
            reason: why; kept with the startpoint and in the audit trail.
            job: name of the job, if several jobs of the flow have the dataset.
            expires_in_days: days until it is forgotten if no run applies it.
            on_rewind: what a run does if the position goes back into published data: `refuse`, `append`, `replace` or
                `upsert`.
        """
        body = {"position": position, "reason": reason, "expiresInDays": expires_in_days, "onRewind": on_rewind}
        return self._startpoint(_dataset_key(group, name, urn, job), "setStartpoint", body)

    def remove_startpoint(
        self, group: str, name: str, urn: str, reason: str, *, job: str | None = None
    ) -> dict[str, Any]:
        """Remove a dataset's startpoint, and return it."""
        return self._startpoint(_dataset_key(group, name, urn, job), "removeStartpoint", {"reason": reason})

    def topology(self) -> list[dict[str, Any]]:
        """Return the topology files that the service keeps: `name`, `body`, `version`, `changedAt`, `changedBy`."""
        return self._elements("/topology")

    def put_topology(self, name: str, body: str) -> int:
        """Store a topology file in the place of one with its name, and return the number of the change.

        Args:
            name: of the file.
            body: its YAML; refused if the whole topology would have a fault with it.
        """
        version: int = self._document("PUT", f"/topology/(name:{_value(name)})", {"body": body})["version"]
        return version

    def delete_topology(self, name: str) -> None:
        """Delete a topology file that the service keeps."""
        self._call("DELETE", f"/topology/(name:{_value(name)})")

    def kill(self, group: str, name: str, number: int) -> None:
        """End an execution."""
        self._call("DELETE", f"/flowexecutions/{_execution_key(group, name, number)}")

    def kill_job(self, group: str, name: str, number: int, job: str) -> None:
        """End one job of an execution; jobs after it are not started, the others go on."""
        key = _execution_key(group, name, number)
        self._call("POST", f"/flowexecutions/{key}?action=killJob", {"jobName": job})

    def resume(self, group: str, name: str, number: int) -> None:
        """Run again what failed, was cancelled or did not run."""
        self._call("POST", f"/flowexecutions/{_execution_key(group, name, number)}?action=resume", {})

    def _startpoint(self, key: str, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        value: dict[str, Any] = self._document("POST", f"/flowdatasets/{key}?action={action}", dict(body))["value"]
        return value

    def _elements(self, path: str) -> list[dict[str, Any]]:
        elements: list[dict[str, Any]] = self._document("GET", path)["elements"]
        return elements

    def _document(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        document: dict[str, Any] = self._call(method, path, body, headers).json()
        return document

    def _call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        data = None if body is None else json.dumps(body).encode()
        # Prepared by hand: requests would decode what Rest.li's keys must keep encoded.
        prepared = self._session.prepare_request(
            requests.Request(
                method, self._url, data=data, headers={"Content-Type": "application/json", **(headers or {})}
            )
        )
        prepared.url = self._url + path
        try:
            answer = self._session.send(prepared, timeout=self._timeout_s)
        except requests.ConnectionError as error:
            raise TransientError(
                problem=f"No service answers at {self._url}; start it with `gobblin serve`."
            ) from error
        except requests.RequestException as error:
            raise TransientError(problem=f"The service at {self._url} does not answer: {error}.") from error
        if answer.ok:
            return answer
        raise _error(answer, path)


def _error(answer: requests.Response, path: str) -> GobblinDagsterError:
    """Return what the service refused at a path, as an error of ours."""
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The service answered {answer.status_code}: {answer.text[:200]}"
    if answer.status_code == 400 and message.startswith('{"singleHopErrors"'):
        return FlowCompileError(flow="as posted", reasons=tuple(json.loads(message)["singleHopErrors"]))
    kinds: dict[int, type[FlowNotFoundError | FlowExistsError | FlowChangedError | TransientError]] = {
        404: FlowNotFoundError,
        # A path with a key names what exists: an execution that is over, for one.
        409: FlowExistsError if path == _FLOWS else FlowChangedError,
        412: FlowChangedError,
        503: TransientError,
    }
    return kinds.get(answer.status_code, UsageError)(problem=message.strip())


def _config(
    group: str, name: str, template_uris: str, properties: Mapping[str, str], cron: str | None, *, run_immediately: bool
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": {"flowGroup": group, "flowName": name},
        "templateUris": template_uris,
        "properties": dict(properties),
    }
    if cron is not None:
        document["schedule"] = {"cronSchedule": cron, "runImmediately": run_immediately}
    return document


def _present(headers: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if value is not None}


def _value(text: str) -> str:
    return quote(text, safe="-._~!*@") if text else "''"


def _key(group: str, name: str) -> str:
    return f"(flowGroup:{_value(group)},flowName:{_value(name)})"


def _dataset_key(group: str, name: str, urn: str, job: str | None) -> str:
    of_job = "" if job is None else f",jobName:{_value(job)}"
    return f"(datasetUrn:{_value(urn)},flowGroup:{_value(group)},flowName:{_value(name)}{of_job})"


def _execution_key(group: str, name: str, number: int) -> str:
    return f"(flowExecutionId:{number},flowGroup:{_value(group)},flowName:{_value(name)})"


def _execution_in(location: str) -> int:
    return int(location.partition("flowExecutionId:")[2].partition(",")[0])
