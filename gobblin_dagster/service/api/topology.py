"""The resource `/topology`: topology files in the service's database. Gobblin has no such resource."""

from __future__ import annotations

from functools import partial
from typing import Any

from gobblin_dagster.core.errors import FlowNotFoundError, InvalidSpecError, UsageError
from gobblin_dagster.service.api.errors import BadRequest, Invalid
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.messages import Answer, Request, collection, require_fields
from gobblin_dagster.service.security.access import Action
from gobblin_dagster.service.store.node_rows import load_workers
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.store.topology_rows import StoredFile
from gobblin_dagster.service.topology.capabilities import worker_document
from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.service.topology.stored import StoredTopology


class TopologyResource:
    """Answers requests about the topology.

    Args:
        catalog: what compilers search.
        stored: the files.
        guard: decides who may.
        store: knows the workers of executors.
    """

    def __init__(self, catalog: TopologyCatalog, stored: StoredTopology, guard: Guard, store: ServiceStore) -> None:
        self._catalog = catalog
        self._stored = stored
        self._guard = guard
        self._store = store

    def get_all(self, request: Request) -> Answer:
        """GET the files that the service keeps, what compilers search now, and the workers that are alive."""
        self._guard.require_of(request.principal, Action.READ, None, "topology")
        elements = [_document(one) for one in self._stored.files()]
        page = collection(elements, request.path, request.query, 0, None, more=False)
        graph = self._catalog.graph
        told = {
            "version": graph.version,
            "nodes": len(graph.nodes),
            "edges": len(graph.edges),
            "executors": len(graph.executors),
            "lost": sorted(graph.lost),
            "problem": self._catalog.problem,
            "lacking": {name: dict(found) for name, found in sorted(graph.lacking.items())},
            "workers": self._workers(),
        }
        return Answer(200, {**told, **page.document})

    def _workers(self) -> list[dict[str, Any]]:
        with self._store.read() as transaction:
            now = self._store.now(transaction)
            return [worker_document(one) for one in load_workers(transaction) if one.is_alive(now)]

    def get(self, request: Request) -> Answer:
        """GET one file."""
        name = _name_of(request)
        self._guard.require_of(request.principal, Action.READ, None, "topology")
        found = next((one for one in self._stored.files() if one.name == name), None)
        if found is None:
            raise FlowNotFoundError(problem=f"The service keeps no topology file {name[:80]!r}.")
        return Answer(200, _document(found))

    def update(self, request: Request) -> Answer:
        """PUT a file, new or in the place of one."""
        name, body = _name_of(request), _body_of(request)
        self._guard.require_of(request.principal, Action.OPERATE, None, "topology")
        note = partial(self._note, request, f"file {name}")
        try:
            version = self._stored.put(name, body, request.principal.name, note)
        except InvalidSpecError as error:
            raise Invalid(str(error)) from error
        self._catalog.refresh()
        return Answer(200, {"version": version})

    def delete(self, request: Request) -> Answer:
        """DELETE a file."""
        name = _name_of(request)
        self._guard.require_of(request.principal, Action.OPERATE, None, "topology")
        try:
            self._stored.delete(name, request.principal.name, partial(self._note, request, f"without file {name}"))
        except InvalidSpecError as error:
            raise Invalid(str(error)) from error
        self._catalog.refresh()
        return Answer(200)

    def find(self, request: Request, name: str) -> Answer:
        """Refuse finders."""
        raise BadRequest(f"There is no finder {name[:40]!r}; GET /topology.")

    def action(self, request: Request, name: str) -> Answer:
        """Refuse actions."""
        raise BadRequest(f"There is no action {name[:40]!r}; PUT or DELETE /topology/(name:N).")

    def _note(self, request: Request, detail: str, transaction: Transaction) -> None:
        self._guard.note_of(transaction, request.principal, Action.OPERATE, "topology", detail)


def _document(file: StoredFile) -> dict[str, Any]:
    changed_at = file.changed_at.isoformat()
    return {
        "name": file.name,
        "body": file.body,
        "version": file.version,
        "changedAt": changed_at,
        "changedBy": file.changed_by,
    }


def _name_of(request: Request) -> str:
    [name] = require_fields(request.key(), ("name",), "/topology")
    return name


def _body_of(request: Request) -> str:
    document = request.document()
    body = document.get("body") if isinstance(document, dict) else None
    if not isinstance(body, str) or len(document) > 1:
        raise UsageError(problem='The body is {"body": "..."}, with the text of a topology file.')
    return body
