"""FlowDatasets: what is known of the datasets that a flow's jobs read, and where their next runs begin.

Reads and writes the project's state store, in which each job keeps its state under a name that no other flow's job has.
It asks no source: what a source has that was not read yet is known to runs only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gobblin_dagster.core.commit import WAITING, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import FlowNotFoundError, UsageError
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.core.startpoint import OnRewind, Specific, Startpoint, StartpointKey, parse_startpoint_position
from gobblin_dagster.core.watermark import (
    CompositeWatermark,
    LongWatermark,
)
from gobblin_dagster.core.watermark.text import parse_watermark
from gobblin_dagster.core.watermark.types import seconds_to
from gobblin_dagster.service.flow_jobs import flow_jobs
from gobblin_dagster.service.model import Dag, FlowConfig, FlowId
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore

RUNS = 20
"""Newest runs of a job in which a dataset's lag is looked for."""


@dataclass(frozen=True, slots=True)
class FlowDataset:
    """One dataset of one job of a flow."""

    job: str
    urn: str
    state: DatasetState | None = None
    """None: nothing of it is published."""
    startpoint: Startpoint | None = None
    sequences: tuple[StoredSequence, ...] = ()
    """Commit sequences that are unfinished or wait for a person, newest first."""
    problem: str = ""
    """Why its state cannot be read."""
    lag_positions: int | None = None
    """Positions that the job's last run was to read and did not publish; None if its watermark is no number, or if it
    is not known."""


def lag_s(state: DatasetState, now: datetime) -> int | None:
    """Return the seconds from a dataset's watermark to an instant, at least 0.

    None if nothing was committed, or the watermark is no time: see `lag_positions`.
    """
    return seconds_to(state.watermark, now)


def lag_positions(state: DatasetState, runs: Sequence[RunRecord]) -> int | None:
    """Return how many positions the last run that looked at a dataset did not publish.

    None if its watermark is no number, or no run of these is known to have looked at it.

    Args:
        state: the dataset's state.
        runs: of its job, newest first.
    """
    if not _is_counted(state):
        return None
    for run in runs:
        if state.dataset_urn in run.datasets:
            return run.datasets[state.dataset_urn].left
        if run.status in (RunStatus.SUCCEEDED, RunStatus.PARTIAL):
            return 0  # a flow's job looks at all datasets, and records those that have something new
    return None


class FlowDatasets:
    """Shows the datasets of flows, and sets and removes their startpoints.

    Args:
        store: the service's store.
        compile_flow: returns a flow's jobs; raises FlowCompileError.
        open_state: opens the project's state store; called once, when it is first needed.
    """

    def __init__(
        self, store: ServiceStore, compile_flow: Callable[[FlowConfig], Dag], open_state: Callable[[], StateStore]
    ) -> None:
        self._store = store
        self._compile = compile_flow
        self._open_state = open_state
        self._opened: StateStore | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the state store."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def jobs(self, flow: FlowId) -> list[str]:
        """Return the names of a flow's jobs, those of earlier versions too; raises FlowNotFoundError."""
        return [job.name for job in flow_jobs(self._store, self._compile, flow)]

    def find(self, flow: FlowId, urn: str | None = None, job: str | None = None) -> list[FlowDataset]:
        """Return the datasets of a flow that have a state, a startpoint or an open commit sequence.

        Args:
            flow: the flow.
            urn: only this dataset; None: all.
            job: only of this job; None: of all jobs of the flow.

        Returns:
            By job, in the order in which they run, then by dataset.urn.

        Raises:
            FlowNotFoundError: there never was such a flow.
            TransientError, StorageError: the state store cannot be used.
        """
        urns = None if urn is None else [urn]
        found = []
        for name in self.jobs(flow):
            if job in (None, name):
                found += _datasets(self._state(), name, urns)
        return found

    def set_startpoint(
        self,
        flow: FlowId,
        urn: str,
        position: str,
        *,
        job: str | None,
        who: str,
        why: str,
        expires: timedelta,
        on_rewind: OnRewind = "refuse",
    ) -> Startpoint:
        """Let the next run of a dataset begin at a position; it replaces a startpoint that waits.

        A dataset that was never published is taken as named: only its source knows whether there is such a one.

        Args:
            flow: the flow.
            urn: the dataset.
            position: as `gobblin startpoint set` takes it.
            job: name of the job; None: the only one that can be meant.
            who: who sets it.
            why: the reason.
            expires: how long it waits for a run, by the clock of the state store.
            on_rewind: what a run does if the position goes back into published data.

        Raises:
            FlowNotFoundError: there never was such a flow.
            UsageError: the position is none of the dataset's watermark, or the job is not clear.
        """
        known = self._one(flow, urn, job)
        parsed = parse_startpoint_position(position)
        if isinstance(parsed, Specific) and known.state is not None:
            parse_watermark(known.state.committed.watermark_type, parsed.watermark)
        with StartpointManager(self._state()) as startpoints:
            key = StartpointKey(urn, job=known.job)
            return startpoints.write(key, parsed, why=why, who=who, expires_in=expires, on_rewind=on_rewind)

    def remove_startpoint(self, flow: FlowId, urn: str, *, job: str | None, who: str) -> Startpoint:
        """Remove a dataset's startpoint, and return it; the history tells who removed it.

        Raises:
            FlowNotFoundError: there never was such a flow, or the dataset has no startpoint.
            UsageError: the job is not clear.
        """
        having = [one for one in self.find(flow, urn, job) if one.startpoint is not None]
        if len(having) > 1:
            raise UsageError(problem=_unclear(flow, urn, [one.job for one in having]))
        startpoint = having[0].startpoint if having else None
        if startpoint is None or not StartpointManager(self._state()).remove(startpoint, who):
            raise FlowNotFoundError(problem=f"Dataset {urn!r} of flow {flow} has no startpoint.")
        return startpoint

    def _one(self, flow: FlowId, urn: str, job: str | None) -> FlowDataset:
        """Return the dataset that is meant: of the job that is named, that has it, or that is the only one."""
        names = self.jobs(flow)
        if job is not None and job not in names:
            raise UsageError(problem=f"Flow {flow} has no job {job[:80]!r}; it has {', '.join(names) or 'none'}.")
        found = self.find(flow, urn, job)
        candidates = found or [FlowDataset(name, urn) for name in ([job] if job else names)]
        if len(candidates) != 1:
            raise UsageError(problem=_unclear(flow, urn, [one.job for one in candidates]))
        return candidates[0]

    def _state(self) -> StateStore:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_state()
            return self._opened


def _datasets(store: StateStore, job: str, urns: list[str] | None) -> list[FlowDataset]:
    states, damaged = store.load_readable_states(job, urns)
    startpoints = store.load_startpoints(job, urns)
    runs = store.load_runs(job, RUNS) if any(_is_counted(state) for state in states.values()) else []
    sequences: dict[str, list[StoredSequence]] = {}
    for sequence in store.load_sequences(job, WAITING, urns):
        sequences.setdefault(sequence.dataset_urn, []).append(sequence)
    return [
        FlowDataset(
            job,
            urn,
            states.get(urn),
            startpoints.get(urn),
            tuple(sequences.get(urn, ())),
            str(damaged[urn]) if urn in damaged else "",
            lag_positions(states[urn], runs) if urn in states else None,
        )
        for urn in sorted({*states, *damaged, *startpoints, *sequences})
    ]


def _is_counted(state: DatasetState) -> bool:
    return isinstance(state.watermark, LongWatermark | CompositeWatermark)


def _unclear(flow: FlowId, urn: str, jobs: list[str]) -> str:
    return f"Which job's dataset {urn!r} of flow {flow} is meant is not clear: {', '.join(jobs) or 'it has no job'}."
