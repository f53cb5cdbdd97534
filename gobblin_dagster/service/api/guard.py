"""The one place through which every request passes: who may do what, and the audit trail of changes and refusals."""

from __future__ import annotations

import logging

from gobblin_dagster.service.api.errors import Forbidden
from gobblin_dagster.service.api.messages import Request
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.access import Access, Action
from gobblin_dagster.service.security.audit import ALLOWED, DENIED, add_audit_row
from gobblin_dagster.service.store.store import ServiceStore, Transaction

log = logging.getLogger(__name__)


class Guard:
    """Lets an action through if a rule allows it, and keeps the audit trail."""

    def __init__(self, store: ServiceStore, access: Access) -> None:
        self._store = store
        self._access = access

    def require(self, request: Request, action: Action, flow: FlowId | None) -> None:
        """Refuse what no rule allows.

        Raises:
            Forbidden: and a row of the audit trail says so.
        """
        if self._access.allows(request.principal, action, flow):
            return
        resource = "all flows" if flow is None else str(flow)
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            add_audit_row(transaction, now, request.principal, action, resource, DENIED)
        log.warning("%s may not %s %s", request.principal.name, action, resource)
        raise Forbidden(f"{request.principal.name} may not {action} {resource}.")

    def note(self, transaction: Transaction, request: Request, action: Action, flow: FlowId, detail: str = "") -> None:
        """Leave a row for a change, in the transaction of the change."""
        with about(flow):
            log.info("%s: %s %s%s", request.principal.name, action, flow, f", {detail}" if detail else "")
        now = self._store.now(transaction)
        add_audit_row(transaction, now, request.principal, action, str(flow), ALLOWED, detail)
