"""The resource `/flowdatasets`: how far flows are, dataset by dataset. Gobblin has no such resource."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args

from gobblin_dagster.core.errors import FlowNotFoundError, UsageError
from gobblin_dagster.core.startpoint import DEFAULT_EXPIRY, OnRewind
from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.errors import BadRequest
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.messages import Answer, Request, collection, require_fields
from gobblin_dagster.service.api.records import dataset_document, key_document, startpoint_document
from gobblin_dagster.service.datasets import FlowDatasets
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.access import Action
from gobblin_dagster.service.store.store import ServiceStore

ACTIONS = ("setStartpoint", "removeStartpoint")
_FIELDS = {"position", "reason", "expiresInDays", "onRewind"}
_MAX_DAYS = 36_500
_MAX_TEXT = 1_000


class FlowDatasetsResource:
    """Answers requests about datasets of flows.

    Args:
        store: the service's store.
        datasets: reads and changes the project's state store.
        guard: decides who may.
    """

    def __init__(self, store: ServiceStore, datasets: FlowDatasets, guard: Guard) -> None:
        self._store = store
        self._datasets = datasets
        self._guard = guard

    def get(self, request: Request) -> Answer:
        """GET the datasets of a flow, or one of them."""
        flow, urn, job = _key_of(request)
        self._guard.require(request, Action.READ, flow)
        found = self._datasets.find(flow, urn, job)
        with self._store.read() as transaction:
            now = self._store.now(transaction)
        if urn is not None:
            if not found:
                raise FlowNotFoundError(problem=f"Nothing is known of dataset {urn!r} of flow {flow}.")
            if len(found) > 1:
                jobs = ", ".join(one.job for one in found)
                raise BadRequest(f"Several jobs have dataset {urn!r}: {jobs}; add jobName to the key.")
            return Answer(200, dataset_document(flow, found[0], now))
        is_paged = {"start", "count"} & set(request.parameters)
        start = restli.int_parameter(request.parameters, "start", 0)
        count = restli.int_parameter(request.parameters, "count", 10) if is_paged else None
        end = None if count is None else start + count
        elements = [dataset_document(flow, one, now) for one in found[start:end]]
        more = end is not None and len(found) > end
        page = collection(elements, request.path, request.query, start, count, more=more)
        told = {"id": key_document(flow), "jobNames": self._datasets.jobs(flow), "total": len(found)}
        return Answer(200, {**told, **page.document})

    def find(self, request: Request, name: str) -> Answer:
        """Refuse finders."""
        raise BadRequest(f"There is no finder {name[:40]!r}; GET /flowdatasets/(flowGroup:G,flowName:N).")

    def action(self, request: Request, name: str) -> Answer:
        """POST an action on one dataset: setStartpoint, removeStartpoint."""
        if name not in ACTIONS:
            raise BadRequest(f"There is no action {name[:40]!r}; actions: {', '.join(ACTIONS)}.")
        flow, urn, job = _key_of(request)
        if urn is None:
            raise BadRequest("A startpoint is one dataset's: add datasetUrn to the key.")
        self._guard.require(request, Action.UPDATE, flow)
        asked = _body_of(request)
        reason = _text(asked, "reason")
        position = _text(asked, "position") if name == "setStartpoint" else ""
        expires, on_rewind = timedelta(days=_days(asked)), _on_rewind(asked)
        told = f"startpoint of {urn!r} " + (f"set to {position}" if position else "removed")
        # The audit trail is in another database than the state: its row is there first, so that no change lacks one.
        with self._store.write() as transaction:
            self._guard.note(transaction, request, Action.UPDATE, flow, f"{told}: {reason}")
        if name == "setStartpoint":
            changed = self._datasets.set_startpoint(
                flow,
                urn,
                position,
                job=job,
                who=request.principal.name,
                why=reason,
                expires=expires,
                on_rewind=on_rewind,
            )
        else:
            changed = self._datasets.remove_startpoint(flow, urn, job=job, who=request.principal.name)
        return Answer(200, {"value": startpoint_document(changed)})


def _key_of(request: Request) -> tuple[FlowId, str | None, str | None]:
    key = request.key()
    group, name = require_fields(key, ("flowGroup", "flowName"), "/flowdatasets")
    if unknown := sorted({*key} - {"flowGroup", "flowName", "datasetUrn", "jobName"}):
        raise BadRequest(f"The key of /flowdatasets has no field {unknown[0][:40]!r}.")
    return FlowId(group, name), key.get("datasetUrn"), key.get("jobName")


def _body_of(request: Request) -> Mapping[str, Any]:
    document = request.document()
    if not isinstance(document, dict):
        raise UsageError(problem='The body is {"position": "...", "reason": "..."}; only the reason to remove one.')
    if unknown := sorted({*document} - _FIELDS):
        raise UsageError(problem=f"The body has no field {unknown[0][:40]!r}; fields: {', '.join(sorted(_FIELDS))}.")
    return document


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT or not value.isprintable():
        expected = f"a text of 1 to {_MAX_TEXT} printable characters"
        raise UsageError(problem=f"The field {name!r} takes {expected}, got {str(value)[:80]!r}.")
    return value


def _on_rewind(asked: Mapping[str, Any]) -> OnRewind:
    wanted = asked.get("onRewind", "refuse")
    for known in get_args(OnRewind):
        if wanted == known:
            return known  # type: ignore[no-any-return]  # one of the literal's texts
    expected = ", ".join(get_args(OnRewind))
    raise UsageError(problem=f"The field 'onRewind' takes {expected}, got {str(wanted)[:40]!r}.")


def _days(asked: Mapping[str, Any]) -> int:
    days = asked.get("expiresInDays", DEFAULT_EXPIRY.days)
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= _MAX_DAYS:
        raise UsageError(problem=f"The field 'expiresInDays' takes 1 to {_MAX_DAYS}, got {str(days)[:40]!r}.")
    return days
