"""FlowsAround: what an order says of the flows of the service, for workers that do not reach the service's database.

Such a worker knows from its state store which other jobs published to a place. It must learn whether these are jobs of
flows that still are to publish there, beside the job of the order, or its former names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gobblin_dagster.service.store.job_rows import flow_changed_at
from gobblin_dagster.service.store.place_rows import jobs_beside
from gobblin_dagster.service.store.store import Transaction

_KEY = "service"
"""Beside the keys of a job file; no job file may have such a key of its own."""
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class FlowsAround:
    """The flows as they were when the order was sent."""

    jobs: frozenset[str]
    """Digests of the jobs that publish to a place of the order's job, itself with them. Thousands may share a table."""
    changed_at: datetime | None
    """When the flow of the job was changed last."""
    twins: frozenset[str] = frozenset()
    """Those of `jobs`, as digests too, that publish the same rows as the order's job."""

    @classmethod
    def of(cls, transaction: Transaction, job: str) -> FlowsAround:
        """Return the flows around a job, as they are now."""
        beside = jobs_beside(transaction, job)
        twins = [name for name, is_twin in beside.items() if is_twin]
        return cls(_digests(beside), flow_changed_at(transaction, job), _digests(twins))

    @classmethod
    def read(cls, text: str) -> FlowsAround:
        """Read what `write` returned; raises ValueError."""
        try:
            return cls._of(json.loads(text))
        except (KeyError, TypeError, ValueError, RecursionError) as error:  # the last: too deep
            raise ValueError(f"no flows around a job: {text[:200]!r}") from error

    @classmethod
    def _of(cls, fields: Any) -> FlowsAround:
        jobs, changed_at = fields["jobs"], fields["changed_at"]
        twins = fields.get("twins", [])  # services before revision 0014 tell none
        instant = None if changed_at is None else datetime.fromisoformat(changed_at)
        if not (isinstance(jobs, list) and isinstance(twins, list)) or (instant is not None and instant.tzinfo is None):
            raise TypeError
        return cls(frozenset(map(str, jobs)), instant, frozenset(map(str, twins)))

    def write(self) -> str:
        """Return them as JSON."""
        changed_at = None if self.changed_at is None else self.changed_at.isoformat()
        fields = {"jobs": sorted(self.jobs), "changed_at": changed_at, "twins": sorted(self.twins)}
        return json.dumps(fields, separators=(",", ":"))

    def has(self, job: str) -> bool:
        """Tell whether a flow has the job, and it publishes to a place of the order's job."""
        return _digest(job) in self.jobs

    def has_twin(self, job: str) -> bool:
        """Tell whether such a job publishes the same rows as the order's job."""
        return _digest(job) in self.twins


def with_flows_around(body: str, around: FlowsAround) -> str:
    """Return the body of a job that says what is around it."""
    document = json.loads(body)
    document[_KEY] = json.loads(around.write())
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def split_body(body: str) -> tuple[str, FlowsAround | None]:
    """Return the job that a body holds, and what is around it; None: nobody said it, as in orders of older services."""
    if f'"{_KEY}"' not in body:
        return body, None
    try:
        document = json.loads(body)
        around = FlowsAround._of(document.pop(_KEY))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # the last: too deep
        return body, None  # who reads the job names the key
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")), around


def _digests(jobs: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_digest, jobs))


def _digest(job: str) -> str:
    return hashlib.sha256(job.encode()).hexdigest()[:_DIGITS]
