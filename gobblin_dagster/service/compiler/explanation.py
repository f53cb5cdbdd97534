"""What a compiler tells of a flow without running it: the ways that were taken, and the edges that were refused."""

from __future__ import annotations

from dataclasses import dataclass

from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.model import Dag, FlowId

MOST_USEFUL = 3
"""Refused edges that an error names."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One edge of a way."""

    edge: str
    source: str
    destination: str
    executor: str
    """The executor that runs the hop's job, by the name that the job has it: `embedded` for those of this type."""
    cost: float
    job: str
    """Name of the job; ways that begin with the same hops share their jobs."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a flow's data come to one of its destinations."""

    destination: str
    hops: tuple[Hop, ...]
    sub_path: str = ""
    """The part of the dataset that goes this way; empty: all of it."""

    @property
    def cost(self) -> float:
        """Sum over the hops."""
        return sum(hop.cost for hop in self.hops)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An edge that could not be taken."""

    edge: str
    source: str
    destination: str
    reason: str

    def __str__(self) -> str:
        return f"edge {self.edge!r} ({self.source} -> {self.destination}): {self.reason}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of a flow."""

    dag: Dag | None
    """The jobs; None if the flow cannot be compiled."""
    reasons: tuple[str, ...] = ()
    """Why it cannot."""
    ways: tuple[Way, ...] = ()
    """By destination; none for a flow that names its templates itself."""
    refused: tuple[Refusal, ...] = ()
    """Edges that begin at a node which the data reach and that could not be taken: the most useful first."""
    is_without_way: bool = False
    """Whether the flow itself is right, and another topology may have a way for it."""

    def require_dag(self, flow: FlowId) -> Dag:
        """Return the jobs; raises FlowCompileError with the reasons if there are none."""
        if self.dag is None:
            raise FlowCompileError(flow=str(flow), reasons=self.reasons, is_without_way=self.is_without_way)
        return self.dag
