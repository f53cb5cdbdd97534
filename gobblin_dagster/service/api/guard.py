"""The one place through which every request passes: who may do what, and the audit trail of changes and refusals."""

from __future__ import annotations

import logging
from datetime import datetime

from gobblin_dagster.service.api.errors import Forbidden
from gobblin_dagster.service.api.messages import Request
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import FlowId
from gobblin_dagster.service.security.access import Access, Action, Principal
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
        self.require_of(request.principal, action, flow, "all flows" if flow is None else str(flow))

    def require_of(self, principal: Principal, action: Action, flow: FlowId | None, resource: str) -> None:
        """Refuse as `require` does, where the request is not one of REST.

        Args:
            principal: who asks.
            action: what for.
            flow: that it is about; None: all of the service.
            resource: names it in the audit trail.
        """
        if self._access.allows(principal, action, flow):
            return
        with self._store.write() as transaction:
            add_audit_row(transaction, self._store.now(transaction), principal, action, resource, DENIED)
        log.warning("%s may not %s %s", principal.name, action, resource)
        raise Forbidden(f"{principal.name} may not {action} {resource}.")

    def note(
        self,
        transaction: Transaction,
        request: Request,
        action: Action,
        flow: FlowId,
        detail: str = "",
        at: datetime | None = None,
    ) -> None:
        """Leave a row for a change, in the transaction of the change.

        Args:
            transaction: of the change.
            request: asked for it.
            action: what was done.
            flow: that was changed.
            detail: for people.
            at: when; None: the store is asked.
        """
        with about(flow):
            self.note_of(transaction, request.principal, action, str(flow), detail, at)

    def note_of(
        self,
        transaction: Transaction,
        principal: Principal,
        action: Action,
        resource: str,
        detail: str = "",
        at: datetime | None = None,
    ) -> None:
        """Leave a row as `note` does, where the change is not one of a flow."""
        log.info("%s: %s %s%s", principal.name, action, resource, f", {detail}" if detail else "")
        add_audit_row(transaction, at or self._store.now(transaction), principal, action, resource, ALLOWED, detail)
