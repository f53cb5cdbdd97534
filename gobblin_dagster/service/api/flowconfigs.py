"""The resources `/flowconfigs` and `/flowconfigsV2`: one catalog, two wire formats.

Source: gobblin-restli `FlowConfigsResource`, `FlowConfigsV2Resource`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from gobblin_dagster.core.errors import FlowExistsError, UsageError
from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.errors import BadRequest, Conflict, Unauthenticated
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.messages import Answer, Request, collection, require_fields
from gobblin_dagster.service.api.records import (
    config_document,
    created_document,
    explained_document,
    flow_document,
    nested,
    version_document,
)
from gobblin_dagster.service.catalog.flow_config import REQUESTERS, parse_flow_config
from gobblin_dagster.service.compiler.children import has_children, read_children
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.manager import Checked, FlowManager, Stored, apply_patch
from gobblin_dagster.service.model import NO_EXECUTION, FlowConfig, FlowId, FlowSpec
from gobblin_dagster.service.scheduler.scheduler import epoch_ms
from gobblin_dagster.service.security.access import Action
from gobblin_dagster.service.store.flow_rows import FlowFilter, FlowPage, PropertyFilter
from gobblin_dagster.service.store.store import ServiceStore, Transaction, serialize_changes
from gobblin_dagster.service.store.tables import requests

KEEP_REQUESTS = timedelta(hours=24)
"""How long an `Idempotency-Key` is remembered."""

_PROPERTY_FILTERS = {
    "userToProxy": "user.to.proxy",
    "sourceIdentifier": "gobblin.flow.sourceIdentifier",
    "destinationIdentifier": "gobblin.flow.destinationIdentifier",
}
_FILTERS = (
    "flowGroup",
    "flowName",
    "templateUri",
    "schedule",
    "isRunImmediately",
    "owningGroup",
    "managedBy",
    "propertyFilter",
    "search",
)


class FlowConfigsResource:
    """Answers requests about flows.

    Args:
        store: the service's store.
        manager: changes flows.
        guard: decides who may.
        explain: tells what becomes of a flow.
    """

    def __init__(
        self, store: ServiceStore, manager: FlowManager, guard: Guard, explain: Callable[[FlowConfig], Explanation]
    ) -> None:
        self._store = store
        self._manager = manager
        self._guard = guard
        self._explain_flow = explain

    def create(self, request: Request) -> Answer:
        """POST a new flow."""
        is_v1 = request.segments[0] == "flowconfigs"
        document = nested(request.document()) if is_v1 else request.document()
        config = parse_flow_config(document)
        if is_v1:
            _require_v1(config)
        self._guard.require(request, Action.CREATE, config.id)
        self._require_children(request, config)
        if config.explain:
            return self._explain(request, config, document)
        checked = self._manager.check(config)  # takes longer than the rest: nobody is to wait for it
        with self._store.write() as transaction:
            key = request.headers.get("idempotency-key")
            if key is not None:
                serialize_changes(transaction)  # the first request with this key may be on its way still
                if (known := self._answered(transaction, request, key)) is not None:
                    return known
            if is_v1 and self._manager.exists(transaction, config.id):
                answer = self._create_again(transaction, request, checked)
            else:
                managed_by = request.headers.get("x-gobblin-managed-by", "")[:200]
                stored = self._manager.create(transaction, checked, request.principal.name, managed_by=managed_by)
                self._note(transaction, request, Action.CREATE, stored.spec)
                told = None if is_v1 else created_document(document, stored.execution)
                answer = Answer(201, told, _created_headers(request, config.id, stored.execution))
            if key is not None and answer.status == 201:
                self._remember(transaction, request, key, answer)
        return answer

    def get(self, request: Request) -> Answer:
        """GET one flow."""
        flow = _flow_of(request)
        self._guard.require(request, Action.READ, flow)
        spec = self._manager.get(flow)
        return Answer(200, flow_document(spec), {"ETag": f'"{spec.version}"'})

    def get_all(self, request: Request) -> Answer:
        """GET all flows, or a page of them."""
        self._guard.require(request, Action.READ, None)
        return self._page(request, FlowFilter())

    def update(self, request: Request) -> Answer:
        """PUT a whole flow in the place of one that exists."""
        flow = _flow_of(request)
        document = request.document()
        is_v1 = request.segments[0] == "flowconfigs"
        config = parse_flow_config(nested(document) if is_v1 else document)
        if is_v1 and REQUESTERS in config.properties:
            raise Unauthenticated(f"{REQUESTERS} property may not be modified by user.")
        self._guard.require(request, Action.UPDATE, flow)
        self._require_children(request, config)
        checked = self._manager.check(config)
        with self._store.write() as transaction:
            self._manager.require_unchanged(transaction, flow)
            return self._update(transaction, request, flow, checked)

    def partial_update(self, request: Request) -> Answer:
        """POST a patch."""
        flow = _flow_of(request)
        document = request.document()
        if not isinstance(document, dict) or "patch" not in document:
            raise BadRequest('The body of a partial update is {"patch": {...}}.')
        self._guard.require(request, Action.UPDATE, flow)
        old = self._manager.get(flow)
        while True:
            patched = apply_patch(config_document(old.config), document["patch"])
            self._require_children(request, patched)
            checked = self._manager.check(patched)
            with self._store.write() as transaction:
                newest = self._manager.require_unchanged(transaction, flow)
                if newest.config == old.config:
                    return self._update(transaction, request, flow, checked)
            old = newest  # somebody changed it meanwhile: the patch is for what they left

    def delete(self, request: Request) -> Answer:
        """DELETE a flow."""
        flow = _flow_of(request)
        self._guard.require(request, Action.DELETE, flow)
        with self._store.write() as transaction:
            gone = self._manager.delete(transaction, flow, request.principal.name, version=request.expected_version())
            self._note(transaction, request, Action.DELETE, gone)
        return Answer()

    def action(self, request: Request, name: str) -> Answer:
        """POST an action on one flow: runImmediately, pause, unpause, rollback, explain."""
        flow = _flow_of(request)
        if name == "explain":
            self._guard.require(request, Action.READ, flow)
            config = self._manager.get(flow).config
            return Answer(200, {"value": explained_document(config_document(config), self._explain_flow(config))})
        if name == "runImmediately":
            self._guard.require(request, Action.RUN, flow)
            with self._store.write() as transaction:
                number = self._manager.run_now(transaction, flow, version=request.expected_version())
                self._guard.note(transaction, request, Action.RUN, flow, f"execution {number}")
            told = f"Successfully triggered flow {{flowGroup={flow.group}, flowName={flow.name}}}"
            return Answer(200, {"value": told}, {"Location": _location("flowconfigsV2", flow, number)})
        self._guard.require(request, Action.UPDATE, flow)
        if name not in ("pause", "unpause", "rollback"):
            known = "runImmediately, pause, unpause, rollback, explain"
            raise BadRequest(f"There is no action {name[:40]!r}; actions: {known}.")
        by, version = request.principal.name, request.expected_version()
        older = None
        if name == "rollback":
            wanted = self._manager.in_version(flow, _wanted_version(request.document()))
            self._require_children(request, wanted)
            older = self._manager.check(wanted)
        with self._store.write() as transaction:
            if older is None:
                spec = self._manager.pause(transaction, flow, by, paused=name == "pause", version=version)
            else:
                spec = self._manager.roll_back(transaction, older, by, version=version)
            self._note(transaction, request, Action.UPDATE, spec, f"{name}: ")
        return Answer(200, {"value": version_document(spec)})

    def find(self, request: Request, name: str) -> Answer:
        """GET what a finder finds: filterFlows, history."""
        if name == "history":
            flow = request.flow_parameter()
            self._guard.require(request, Action.READ, flow)
            pages = self._manager.history(flow)
            first = next(pages)
            answer = collection(_version_documents(first), request.path, request.query, 0, None, more=False)
            return answer if first.is_last else replace(answer, more=map(_version_documents, pages))
        if name != "filterFlows":
            raise BadRequest(f"There is no finder {name[:40]!r}; finders: filterFlows, history.")
        self._guard.require(request, Action.READ, None)
        return self._page(request, _filter_of(request))

    def _require_children(self, request: Request, config: FlowConfig) -> None:
        """Refuse a flow that has the jobs of flows that its author may not run."""
        for child in read_children(config.properties)[0] if has_children(config.properties) else ():
            self._guard.require(request, Action.RUN, child)

    def _update(self, transaction: Transaction, request: Request, flow: FlowId, checked: Checked) -> Answer:
        if checked.config.id != flow:
            raise BadRequest("flowName and flowGroup cannot be changed in update")
        by, version = request.principal.name, request.expected_version()
        managed_by = request.headers.get("x-gobblin-managed-by")
        stored = self._manager.update(transaction, checked, by, version=version, managed_by=managed_by)
        self._note(transaction, request, Action.UPDATE, stored.spec)
        return Answer(200, None, _update_headers(flow, stored))

    def _note(self, transaction: Transaction, request: Request, action: Action, spec: FlowSpec, what: str = "") -> None:
        """Leave the audit row of a new version, with the time that the version has."""
        self._guard.note(transaction, request, action, spec.id, f"{what}version {spec.version}", spec.changed_at)

    def _create_again(self, transaction: Transaction, request: Request, checked: Checked) -> Answer:
        """Answer a POST to the first resource for a flow that exists: one with a schedule becomes a new version."""
        config = checked.config
        headers = _created_headers(request, config.id, NO_EXECUTION)
        if config.schedule is None:
            return Answer(409, None, headers)
        self._guard.require(request, Action.UPDATE, config.id)
        stored = self._manager.update(transaction, checked, request.principal.name, version=request.expected_version())
        self._note(transaction, request, Action.UPDATE, stored.spec)
        return Answer(201, None, headers)

    def _explain(self, request: Request, config: FlowConfig, document: dict[str, Any]) -> Answer:
        with self._store.read() as transaction:
            if self._manager.exists(transaction, config.id):
                raise FlowExistsError(problem=f"Flow {config.id} already exists; explain takes a flow that does not.")
            # Gobblin's client reads an execution id from each answer to a POST; nothing has this one.
            number = NO_EXECUTION if config.schedule else epoch_ms(self._store.now(transaction))
        headers = _created_headers(request, config.id, number)
        return Answer(200, explained_document(document, self._explain_flow(config)), headers)

    def _page(self, request: Request, where: FlowFilter) -> Answer:
        is_paged = {"start", "count"} & set(request.parameters)
        start = restli.int_parameter(request.parameters, "start", 0)
        count = restli.int_parameter(request.parameters, "count", 10) if is_paged else None
        pages = self._manager.find(where, start, count)
        first = next(pages)
        more = count is not None and self._manager.has_more(where, start + count)
        answer = collection(_flow_documents(first), request.path, request.query, start, count, more=more)
        return answer if first.is_last else replace(answer, more=map(_flow_documents, pages))

    def _answered(self, transaction: Transaction, request: Request, key: str) -> Answer | None:
        """Return the answer that a request with this key got before."""
        if not 1 <= len(key) <= 200:
            raise BadRequest("An Idempotency-Key is 1 to 200 characters.")
        query = select(requests).where(
            requests.c.idempotency_key == key, requests.c.principal == request.principal.name
        )
        row = transaction.execute(query).one_or_none()
        if row is None:
            return None
        if row.digest != _request_digest(request):
            raise Conflict(f"The Idempotency-Key {key[:40]!r} was used for another request.")
        told = json.loads(row.answer)
        return Answer(told["status"], told["document"], told["headers"])

    def _remember(self, transaction: Transaction, request: Request, key: str, answer: Answer) -> None:
        now = self._store.now(transaction)
        told = {"status": answer.status, "document": answer.document, "headers": dict(answer.headers)}
        transaction.execute(delete(requests).where(requests.c.at < now - KEEP_REQUESTS))
        transaction.execute(
            insert(requests).values(
                idempotency_key=key,
                principal=request.principal.name,
                digest=_request_digest(request),
                answer=json.dumps(told),
                at=now,
            )
        )


def _flow_documents(page: FlowPage) -> list[dict[str, Any]]:
    return [flow_document(spec) for spec in page.specs]


def _version_documents(page: FlowPage) -> list[dict[str, Any]]:
    return [version_document(spec) for spec in page.specs]


def _location(resource: str, flow: FlowId, number: int) -> str:
    key = restli.encode_key({"flowGroup": flow.group, "flowName": flow.name})[1:]
    execution: dict[str, str | int] = {
        "flowGroup": flow.group,
        "flowName": flow.name,
        "flowExecutionId": number,
    }
    # Gobblin's client finds the execution's id inside of `$params`.
    params = "()" if resource == "flowconfigs" else restli.encode_key(execution)
    return f"/{resource}/($params:{params},{key}"


def _location_v1(resource: str, flow: FlowId, number: int) -> str:
    """Return the location as protocol 1.0.0 writes it."""
    key = {"flowGroup": flow.group, "flowName": flow.name}
    if resource == "flowconfigs":
        return f"/{resource}/{restli.encode_pairs(key)}"
    params = {f"$params.{name}": value for name, value in {"flowExecutionId": str(number), **key}.items()}
    return f"/{resource}/{restli.encode_pairs({**params, **key})}"


def _created_headers(request: Request, flow: FlowId, execution: int) -> dict[str, str]:
    resource = request.segments[0]
    if request.version == 1:
        key = restli.encode_pairs({"flowGroup": flow.group, "flowName": flow.name})
        return {"X-LinkedIn-Id": key, "Location": _location_v1(resource, flow, execution)}
    key = restli.encode_header_key({"flowGroup": flow.group, "flowName": flow.name})
    return {"X-RestLi-Id": key, "Location": _location(resource, flow, execution)}


def _require_v1(config: FlowConfig) -> None:
    """Refuse what Gobblin's first resource does not know, with the codes that it uses."""
    if config.explain:
        raise BadRequest("/flowconfigs knows no explain; use /flowconfigsV2.")
    if config.owning_group is not None:
        raise Unauthenticated("/flowconfigs knows no owningGroup; use /flowconfigsV2.")


def _update_headers(flow: FlowId, stored: Stored) -> dict[str, str]:
    headers = {"ETag": f'"{stored.spec.version}"'}
    if stored.execution != NO_EXECUTION:
        headers["Location"] = _location("flowconfigsV2", flow, stored.execution)
    return headers


def _flow_of(request: Request) -> FlowId:
    group, name = require_fields(request.key(), ("flowGroup", "flowName"), f"/{request.segments[0]}")
    return FlowId(group, name)


MAX_PROPERTY_FILTERS = 20
MAX_FILTER_LENGTH = 4_000
"""Characters of one filter's text at most."""


def _filter_of(request: Request) -> FlowFilter:
    known = {*_FILTERS, *_PROPERTY_FILTERS, "q", "start", "count", "fields"}
    unknown = sorted(set(request.parameters) - known)
    if unknown:
        raise BadRequest(f"filterFlows knows no parameter {unknown[0][:40]!r}; it knows {', '.join(sorted(known))}.")
    for name in (*_FILTERS, *_PROPERTY_FILTERS):
        if len(request.text(name) or "") > MAX_FILTER_LENGTH:
            raise BadRequest(f"The parameter {name!r} has at most {MAX_FILTER_LENGTH} characters.")
    exact = [
        (property_name, value)
        for name, property_name in _PROPERTY_FILTERS.items()
        if (value := request.text(name)) is not None
    ]
    filters = [part.partition("=") for part in (request.text("propertyFilter") or "").split(",") if part]
    if len(filters) > MAX_PROPERTY_FILTERS:
        raise BadRequest(f"propertyFilter takes at most {MAX_PROPERTY_FILTERS} properties, got {len(filters)}.")
    return FlowFilter(
        request.text("flowGroup"),
        request.text("flowName"),
        request.text("templateUri"),
        request.text("schedule"),
        restli.bool_parameter(request.parameters, "isRunImmediately"),
        request.text("owningGroup"),
        request.text("managedBy"),
        tuple(PropertyFilter(name, text) for name, _, text in filters),
        tuple(exact),
        request.text("search"),
    )


def _wanted_version(document: Any) -> int:
    version = document.get("version") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or not 0 < version < 2**31:
        raise UsageError(problem='The body of a rollback is {"version": N}, a version that `q=history` lists.')
    return version


def _request_digest(request: Request) -> str:
    return hashlib.sha256(b"\0".join([request.method.encode(), request.path.encode(), request.body])).hexdigest()
