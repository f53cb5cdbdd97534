"""ReloadDagster: a listener of the service that has Dagster load its definitions again when flows change."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import requests

from gobblin_dagster.launcher.run_launcher import LOCATION
from gobblin_dagster.service.catalog.flow_config import ExecutorName, FlowSettings
from gobblin_dagster.service.model import FlowId, FlowSpec

log = logging.getLogger(__name__)

_MUTATION = """
mutation ($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) { __typename ... on PythonError { message } }
}
"""
_TIMEOUT_S = 300
"""Seconds that Dagster may take to load the definitions."""


class ReloadDagster:
    """Asks Dagster's web server to load a code location again after flows of the executor `dagster` changed.

    `service: {listeners: [{type: "gobblin_dagster.orchestration.flow_reload:ReloadDagster"}]}` in `gobblin.yaml` names
    it. Changes that follow each other are loaded together. If Dagster does not answer, it is asked until it does.

    Args:
        url: where Dagster's pages are.
        location: name of the code location.
        wait_s: seconds to wait for further changes, and between two tries.
        unix_socket: where the pages are reached in place of the host and port of `url`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:3000",
        location: str = LOCATION,
        wait_s: float = 2.0,
        unix_socket: str | None = None,
    ) -> None:
        self._unix_socket = unix_socket
        self._graphql = f"{url.rstrip('/')}/graphql"
        self._location = location
        self._wait_s = wait_s
        self._known: set[FlowId] = set()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def flow_changed(self, spec: FlowSpec) -> None:
        """Note that definitions are out of date, if the flow runs in Dagster or did."""
        is_ours = FlowSettings.stored(spec.config.properties).executor is ExecutorName.DAGSTER
        if not is_ours and spec.id not in self._known:
            return
        self._known = self._known | {spec.id} if is_ours and spec.is_in_catalog else self._known - {spec.id}
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="reload-dagster", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        is_told = False
        while True:
            self._changed.wait()
            time.sleep(self._wait_s)
            self._changed.clear()
            try:
                self._reload()
                is_told = False
            except (requests.RequestException, http.client.HTTPException, OSError, ValueError) as error:
                if not is_told:
                    log.warning("Dagster does not load its definitions again and is asked on: %s", error)
                is_told = True
                self._changed.set()

    def _reload(self) -> None:
        body = {"query": _MUTATION, "variables": {"name": self._location}}
        told = self._asked(body)
        found = (told.get("data") or {}).get("reloadRepositoryLocation") or {}
        if told.get("errors") or found.get("__typename") != "WorkspaceLocationEntry":
            raise ValueError(str(found.get("message") or told.get("errors") or found)[:500])
        log.info("Dagster has loaded the definitions of %s again", self._location)

    def _asked(self, body: dict[str, Any]) -> dict[str, Any]:
        """POST a document, and return the answer's."""
        if self._unix_socket is not None:
            return _asked_on(self._unix_socket, urlsplit(self._graphql).path, body)
        with requests.Session() as session:
            session.trust_env = False
            answer = session.post(self._graphql, json=body, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told


def _asked_on(path: str, target: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("dagster")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(_TIMEOUT_S)
        connection.sock.connect(path)
        connection.request("POST", target, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    return told
