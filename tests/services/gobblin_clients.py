"""Gobblin's four Java clients, byte for byte as they speak on the wire, without Java.

Each method sends what the method of the same name sends in gobblin-rest (`FlowConfigClient`, `FlowConfigV2Client`,
`FlowExecutionClient`, `FlowStatusClient`), over Rest.li's client of version 27: the same targets, headers and bodies,
keys with an empty `$params:()`, and single values as `List(...)`. What comes back is checked for what holds for all
answers; the caller checks the rest.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import quote

_PATH_SAFE = "-._~!$&*+=@"
_QUERY_SAFE = "-._~!$*;/?@"


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """What Gobblin's clients show of an error."""
        document = self.json
        assert document["status"] == self.status, document
        assert self.headers.get("x-restli-error-response") == "true" or "x-linkedin-error-response" in self.headers
        message: str = document["message"]
        return message


@dataclass
class Wire:
    """Sends requests over a socket, one connection for each, and nothing that is not given.

    Args:
        port: of the service, on 127.0.0.1.
        token: sent as `Authorization: Bearer`; Gobblin's own clients send none.
        version: of Rest.li's protocol; "" sends no header, which means 1.0.0.
        timeout_s: how long one answer may take.
    """

    port: int
    token: str = ""
    version: str = "2.0.0"
    timeout_s: float = 30
    sent: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, target and status of each request."""

    def __call__(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Told:
        lines = [f"{method} {target} HTTP/1.1", f"Host: localhost:{self.port}", "X-LI-R2-W-MsgType: REST"]
        if self.version:
            lines.append(f"X-RestLi-Protocol-Version: {self.version}")
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        # The Java client sends a length with requests that have no body too.
        lines += [f"content-length: {len(body or b'')}", "connection: close", "", ""]
        with socket.create_connection(("127.0.0.1", self.port), self.timeout_s) as connection:
            connection.sendall("\r\n".join(lines).encode("latin-1") + (body or b""))
            told = _read(connection, method)
        self.sent.append((method, target, told.status))
        if not target.startswith(("/health", "/version", "/openapi")):
            version = self.version or "1.0.0"
            assert told.headers["x-restli-protocol-version"] == version, "it is echoed, in errors too"
        assert ("content-type" in told.headers) == bool(told.body), "an empty body has no type"
        if told.body:
            assert told.headers["content-type"] == "application/json"
            assert "null" not in _scalars(told.json), "no null anywhere"
        return told


def _read(connection: socket.socket, method: str) -> Told:
    with HTTPResponse(connection, method=method) as answer:
        answer.begin()
        try:
            body = answer.read()
        except IncompleteRead as error:
            raise ConnectionError("the service ended the connection in the middle of an answer") from error
        return Told(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def _scalars(document: Any) -> set[str]:
    if isinstance(document, dict):
        return {kind for value in document.values() for kind in _scalars(value)}
    if isinstance(document, list):
        return {kind for value in document for kind in _scalars(value)}
    return {"null" if document is None else "value"}


@dataclass
class RestliClient:
    """What the four clients have in common.

    Args:
        wire: carries the requests.
    """

    wire: Wire

    resource = ""

    def _path(self, **key: str | int) -> str:
        """Return a resource's path with a key, in the wire's version of the protocol."""
        if self.wire.version in ("", "1.0.0"):
            return f"/{self.resource}/" + "&".join(f"{name}={_pair(value)}" for name, value in sorted(key.items()))
        fields = ",".join(f"{name}:{_path(value) or _EMPTY}" for name, value in sorted(key.items()))
        return f"/{self.resource}/($params:(),{fields})"

    def _find(self, finder: str, parameters: Mapping[str, str], flow: tuple[str, str] | None = None) -> Told:
        """Send a finder; parameters are written as they are given."""
        pairs = dict(parameters)
        if flow is not None and self.wire.version in ("", "1.0.0"):
            pairs |= {"flowId.flowGroup": _query(flow[0]), "flowId.flowName": _query(flow[1])}
        elif flow is not None:
            pairs["flowId"] = f"(flowGroup:{_query(flow[0]) or _EMPTY},flowName:{_query(flow[1]) or _EMPTY})"
        query = "&".join(f"{name}={value}" for name, value in sorted({**pairs, "q": finder}.items()))
        return self.wire("GET", f"/{self.resource}?{query}")

    def _post(self, target: str, method: str, body: Any = None) -> Told:
        data = b"" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {"X-RestLi-Method": method}
        return self.wire("POST", target, data, headers | ({"Content-Type": "application/json"} if data else {}))

    def _put(self, target: str, body: Any) -> Told:
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return self.wire("PUT", target, data, {"Content-Type": "application/json"})

    def _list(self, value: str) -> str:
        """Return a single value as Gobblin's clients of statuses send it."""
        return value if self.wire.version in ("", "1.0.0") else f"List({value})"


_EMPTY = "''"


def _path(value: str | int) -> str:
    return quote(str(value), safe=_PATH_SAFE)


def _pair(value: str | int) -> str:
    """Return a value as protocol 1.0.0 writes it, where `&` and `=` part fields."""
    return quote(str(value), safe="-._~")


def _query(value: str) -> str:
    return quote(value, safe=_QUERY_SAFE)


@dataclass
class FlowConfigClient(RestliClient):
    """Gobblin's client of `/flowconfigs`."""

    resource = "flowconfigs"

    def create_flow_config(self, config: Mapping[str, Any]) -> Told:
        return self._post(f"/{self.resource}", "create", config)

    def update_flow_config(self, config: Mapping[str, Any]) -> Told:
        return self._put(self._path(**config["id"]), config)

    def get_flow_config(self, group: str, name: str) -> Told:
        return self.wire("GET", self._path(flowGroup=group, flowName=name))

    def delete_flow_config(self, group: str, name: str) -> Told:
        return self.wire("DELETE", self._path(flowGroup=group, flowName=name))

    def delete_flow_config_with_state_store(self, group: str, name: str) -> Told:
        return self.wire("DELETE", self._path(flowGroup=group, flowName=name), headers={"delete.state.store": "true"})


@dataclass
class FlowConfigV2Client(FlowConfigClient):
    """Gobblin's client of `/flowconfigsV2`."""

    resource = "flowconfigsV2"

    def create_flow_config_status_id(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Create a flow and return its FlowStatusId, which the client reads from the Location by this very pattern."""
        told = self.create_flow_config(config)
        assert told.status in (200, 201), told.body
        found = re.fullmatch(r".*params:\((..*?)\).*", told.headers["location"])
        assert found is not None, told.headers["location"]
        return dict(part.split(":", 1) for part in found[1].split(","))

    def partial_update_flow_config(self, group: str, name: str, patch: Mapping[str, Any]) -> Told:
        return self._post(self._path(flowGroup=group, flowName=name), "partial_update", {"patch": patch})

    def run_immediately(self, group: str, name: str) -> Told:
        path = self._path(flowGroup=group, flowName=name)
        return self._post(f"{path}?action=runImmediately", "action", {})

    def get_all_flow_configs(self, start: int | None = None, count: int | None = None) -> Told:
        page = [f"{name}={value}" for name, value in (("start", start), ("count", count)) if value is not None]
        return self.wire("GET", f"/{self.resource}" + (f"?{'&'.join(page)}" if page else ""))

    def get_flow_configs(self, **filters: str) -> Told:
        """Send the finder `filterFlows`; values are texts, encoded here."""
        return self._find("filterFlows", {name: _query(value) for name, value in filters.items()})

    def unschedule(self, config: Mapping[str, Any]) -> Told:
        """Stop a flow's schedule, as Gobblin's users do it: by a property of an update."""
        properties = {**config["properties"], "flow.unschedule": "true"}
        return self.update_flow_config({**config, "properties": properties})


@dataclass
class FlowExecutionClient(RestliClient):
    """Gobblin's client of `/flowexecutions`."""

    resource = "flowexecutions"

    def get_flow_execution(self, group: str, name: str, number: int) -> Told:
        return self.wire("GET", self._path(flowExecutionId=number, flowGroup=group, flowName=name))

    def get_latest_flow_execution(self, group: str, name: str, **parameters: str) -> Told:
        """Send the finder; `count`, `tag`, `executionStatus`, `includeIssues` are sent if they are given."""
        lists = {key: self._list(_query(value)) for key, value in parameters.items()}
        return self._find("latestFlowExecution", lists, (group, name))

    def get_latest_flow_group_executions(self, group: str, **parameters: str) -> Told:
        lists = {key: self._list(_query(value)) for key, value in parameters.items()}
        return self._find("latestFlowGroupExecutions", {**lists, "flowGroup": _query(group)})

    def delete_flow_execution(self, group: str, name: str, number: int) -> Told:
        return self.wire("DELETE", self._path(flowExecutionId=number, flowGroup=group, flowName=name))

    def resume_flow_execution(self, group: str, name: str, number: int) -> Told:
        path = self._path(flowExecutionId=number, flowGroup=group, flowName=name)
        return self._post(f"{path}?action=resume", "action", {})


@dataclass
class FlowStatusClient(RestliClient):
    """Gobblin's client of `/flowstatuses`."""

    resource = "flowstatuses"

    def get_flow_status(self, group: str, name: str, number: int) -> Told:
        return self.wire("GET", self._path(flowExecutionId=number, flowGroup=group, flowName=name))

    def get_latest_flow_status(self, group: str, name: str, **parameters: str) -> Told:
        lists = {key: self._list(_query(value)) for key, value in parameters.items()}
        return self._find("latestFlowStatus", lists, (group, name))
