"""The audit trail: a row for each change and each refusal, chained by digests, so that a row taken out is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select

from gobblin_dagster.service.security.access import Action, Principal
from gobblin_dagster.service.store.store import Transaction, serialize_changes
from gobblin_dagster.service.store.tables import audit

ALLOWED = "allowed"
DENIED = "denied"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what, or was refused."""

    at: datetime
    principal: str
    action: str
    resource: str
    outcome: str
    detail: str = ""


def add_audit_row(
    transaction: Transaction,
    at: datetime,
    principal: Principal,
    action: Action,
    resource: str,
    outcome: str,
    detail: str = "",
) -> None:
    """Store what somebody did, in the transaction of the change itself."""
    serialize_changes(transaction)  # the chain has one end
    row = AuditRow(at, principal.name, action.value, resource, outcome, detail)
    newest = select(audit.c.digest).order_by(audit.c.number.desc()).limit(1)
    before = transaction.execute(newest).scalar_one_or_none() or ""
    transaction.execute(
        insert(audit).values(
            at=row.at,
            principal=row.principal,
            action=row.action,
            resource=row.resource,
            outcome=row.outcome,
            detail=row.detail,
            digest=_digest(before, row),
        )
    )


def broken_rows(transaction: Transaction) -> Iterator[int]:
    """Yield the number of each row that does not follow from the one before it."""
    before = ""
    for row in transaction.execute(select(audit).order_by(audit.c.number)):
        told = AuditRow(row.at, row.principal, row.action, row.resource, row.outcome, row.detail)
        if row.digest != _digest(before, told):
            yield row.number
        before = row.digest


def _digest(before: str, row: AuditRow) -> str:
    # Microseconds: all that both databases keep.
    facts = [
        before,
        row.at.isoformat(timespec="microseconds"),
        row.principal,
        row.action,
        row.resource,
        row.outcome,
        row.detail,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
