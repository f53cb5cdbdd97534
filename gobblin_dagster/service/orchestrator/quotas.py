"""Quotas: how many executions of one flow group, user or owning group run side by side.

What runs is counted in the database each time, so that a restart neither loses nor invents counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_dagster.core.errors import QuotaExceededError
from gobblin_dagster.service.model import FlowSpec
from gobblin_dagster.service.store.execution_rows import Execution, running_by_group, running_by_owner, running_by_user
from gobblin_dagster.service.store.store import Transaction

_Count = Callable[..., dict[str, int]]


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most executions of each; None: as many as there are.

    Source: gobblin-service `UserQuotaManager`. Differs: nothing is counted in memory.
    """

    per_group: int | None = None
    per_user: int | None = None
    per_owner: int | None = None

    def full(self, transaction: Transaction) -> tuple[set[str], set[str], set[str]]:
        """Return the flow groups, the users and the owning groups with as many executions as may run."""
        groups, users, owners = (
            set() if most is None else {name for name, number in count(transaction).items() if number >= most}
            for _, count, most in self._kinds()
        )
        return groups, users, owners

    def problem(self, transaction: Transaction, execution: Execution) -> str:
        """Return why an execution must wait, as `2 executions of the user anna run`; empty if there is room for it."""
        names = execution.id.flow.group, execution.user, execution.owner
        for name, (kind, count, most) in zip(names, self._kinds(), strict=True):
            if most is not None and count(transaction, name).get(name, 0) >= most:
                return f"{most} executions of the {kind.removeprefix('flow ')} {name} run"
        return ""

    def require_room(self, transaction: Transaction, spec: FlowSpec) -> None:
        """Raise QuotaExceededError if another execution of a flow would have to wait for others, of other flows too."""
        names = spec.id.group, spec.user, spec.config.owning_group or ""
        for name, (kind, count, most) in zip(names, self._kinds(), strict=True):
            there = 0 if most is None else count(transaction, name, waiting=True).get(name, 0)
            if most is not None and there >= most:
                raise QuotaExceededError(whose=f"{kind} {name}", executions=there, quota=most)

    def _kinds(self) -> tuple[tuple[str, _Count, int | None], ...]:
        return (
            ("flow group", running_by_group, self.per_group),
            ("user", running_by_user, self.per_user),
            ("owning group", running_by_owner, self.per_owner),
        )
