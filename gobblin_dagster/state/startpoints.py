"""StartpointManager: write, read, delete and fan out startpoints by their keys, in any state store.

The CLI, `project.startpoint` and runs use it. It decides which startpoints count (by time and key); where they lie in
the data, only sources know (`engine.plan.startpoints`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import who as person
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    CLOCK_TOLERANCE,
    DEFAULT_EXPIRY,
    OnRewind,
    Startpoint,
    StartpointEvent,
    StartpointKey,
    StartpointPosition,
)
from gobblin_dagster.state.store import StateStore


class StartpointManager:
    """The startpoints of a state store.

    A store holds at most one startpoint per `StartpointKey`. A run fans out what applies to its job: it stores one
    startpoint for its job per key, which then stays until the commit that applies it, even if it would expire.

    Closing it does not close the store.

    Source: samza-core `StartpointManager`. Differs: a fan-out copies one startpoint at a time and never replaces the
    record of a whole task, so a crash in the middle loses nothing and fan-outs of other partitions stay; the commit
    deletes what it applied in its own transaction, by id.

    Example:
        >>> from gobblin_dagster.core.startpoint import Oldest
        >>> from gobblin_dagster.state import open_store
        >>> with closing(open_store("sqlite://", Path())) as store, StartpointManager(store) as startpoints:
        ...     written = startpoints.write(StartpointKey("clicks", "clicks-0"), Oldest(), why="read again")
        ...     print(startpoints.read(written.key), startpoints.read(StartpointKey("clicks")))
        clicks-0 at oldest None
    """

    def __init__(self, store: StateStore) -> None:
        self._open_store: StateStore | None = store

    def __enter__(self) -> StartpointManager:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Refuse all further calls; the store stays open."""
        self._open_store = None

    @property
    def _store(self) -> StateStore:
        if self._open_store is None:
            raise UsageError(
                problem="This StartpointManager is closed.", hint="Make another one: `StartpointManager(store)`."
            )
        return self._open_store

    # -- by key --------------------------------------------------------------------------------------------------------
    def write(
        self,
        key: StartpointKey,
        position: StartpointPosition,
        *,
        why: str,
        who: str | None = None,
        source: str = "",
        created_at: datetime | None = None,
        expires_in: timedelta = DEFAULT_EXPIRY,
        until: StartpointPosition | None = None,
        on_rewind: OnRewind = "refuse",
    ) -> Startpoint:
        """Store a startpoint; it replaces the one of its key. Whether the source has the position, the next run finds.

        Args:
            key: what it is for.
            position: where to begin.
            why: the reason, for the history.
            who: the person; default: the one at the keyboard.
            source: for a key of all jobs, the source that it is for (`source_identity`); empty for any.
            created_at: when it was created; default: now, by the store's clock. The newest startpoint wins.
            expires_in: after this time it is not applied any more, unless a run has fanned it out.
            until: end of a bounded re-read, exclusive; None to read on to the end of the data.
            on_rewind: what a run does if it goes back into published data.

        Raises:
            UsageError: it would be created in the future, or expire before it is created.
        """
        now = self._store.now()
        startpoint = Startpoint(
            key.job,
            key.dataset_urn,
            position,
            created_at or now,
            (created_at or now) + expires_in,
            who or person(),
            why,
            partition=key.partition,
            source=source,
            until=until,
            on_rewind=on_rewind,
        )
        return self.save(startpoint)

    def save(self, startpoint: Startpoint) -> Startpoint:
        """Store a startpoint as it is, and return it; raises as `write`."""
        now = self._store.now()
        if startpoint.is_from_the_future(now):
            raise UsageError(
                problem=f"The startpoint for {startpoint.key} is created at {startpoint.created_at.isoformat()}, "
                f"{startpoint.created_at - now} ahead of the state store's clock ({now.isoformat()}).",
                hint=f"Set the clock of this machine: at most {CLOCK_TOLERANCE.seconds // 60} minutes are allowed, "
                "because the newest startpoint wins.",
            )
        if startpoint.expires_at <= startpoint.created_at:
            raise UsageError(
                problem=f"The startpoint for {startpoint.key} would expire at {startpoint.expires_at.isoformat()}, "
                f"before it is created ({startpoint.created_at.isoformat()}).",
                hint="Let it expire later.",
            )
        self._store.save_startpoint(startpoint)
        return startpoint

    def read(self, key: StartpointKey) -> Startpoint | None:
        """Return the startpoint of exactly this key; None if there is none or it has expired."""
        found = self._at(key)
        return None if found is None or found.is_expired(self._store.now()) else found

    def delete(self, key: StartpointKey, who: str | None = None) -> Startpoint | None:
        """Delete the startpoint of exactly this key, expired or not, and return it; None if there is none.

        Fan-outs of a startpoint for all jobs stay.
        """
        found = self._at(key)
        return found if found is not None and self.remove(found, who) else None

    def remove(self, startpoint: Startpoint, who: str | None = None) -> bool:
        """Delete this startpoint, unless its key has another one by now; return whether it was deleted."""
        return self._store.delete_startpoint(startpoint, who or person())

    def find(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        """Return the startpoints of a job (or of `ALL_JOBS`), expired ones too, by dataset and partition."""
        return self._store.list_startpoints(job, urns)

    def events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        """Return what happened to startpoints of a job (or of `ALL_JOBS`), oldest first.

        The commit that applied one is in the history of its dataset.
        """
        return self._store.load_startpoint_events(job, urns)

    def _at(self, key: StartpointKey) -> Startpoint | None:
        return next((one for one in self.find(key.job, [key.dataset_urn]) if one.key == key), None)

    # -- fan-out -------------------------------------------------------------------------------------------------------
    def applicable(
        self, job: str, source: str, states: Mapping[str, DatasetState], urns: Collection[str] | None = None
    ) -> tuple[dict[str, list[Startpoint]], frozenset[str]]:
        """Return what the next run of a job has to look at, by dataset.urn; changes nothing.

        The first value holds the job's own startpoints, and for each startpoint for all jobs that this job has not
        applied yet, the copy that a fan-out would store; expired ones too, so that a run can report them. The second
        value holds the ids of all startpoints for all jobs that are stored.

        Args:
            job: the job.
            source: its source (`source_identity`).
            states: the states of its datasets.
            urns: the datasets; None means all.
        """
        own = self.find(job, urns)
        known = {(one.dataset_urn, one.id) for one in own}
        wide = self.find(ALL_JOBS, urns)
        ours = [one for one in wide if one.source in ("", source) and (one.dataset_urn, one.id) not in known]
        copies = [replace(one, job=job, is_copy=True) for one in ours]
        found: dict[str, list[Startpoint]] = {}
        for one in (*own, *copies):
            state = states.get(one.dataset_urn)
            # A copy that a slow run stored after another run had applied it is not applied a second time.
            if not (one.is_copy and state is not None and one.id in state.applied_startpoints):
                found.setdefault(one.dataset_urn, []).append(one)
        return found, frozenset(one.id for one in wide)

    def fan_out(self, startpoints: Iterable[Startpoint], generation: int, run_id: str) -> None:
        """Store the startpoints that a run applies to one dataset, for its job alone.

        Each is one change of its own: after a crash, the next run stores the rest. A startpoint that a person replaced
        or removed meanwhile is left alone.

        Args:
            startpoints: as the plan resolved them.
            generation: the version that the dataset's state will have after the commit.
            run_id: the run, for the history.
        """
        for one in startpoints:
            store = self._store.fan_out_startpoint if one.is_copy else self._store.pin_startpoint
            store(replace(one, generation=generation), run_id)

    def fan_outs(self, job: str, urns: Collection[str] | None = None) -> dict[StartpointKey, Startpoint]:
        """Return the startpoints of a job that a run has fanned out and no commit has applied yet."""
        return {one.key: one for one in self.find(job, urns) if one.generation}

    def delete_fan_outs(
        self, job: str, urns: Collection[str] | None = None, who: str | None = None
    ) -> list[Startpoint]:
        """Delete the fan-outs of a job and return them. Startpoints for all jobs stay, and are fanned out again."""
        return [one for one in self.fan_outs(job, urns).values() if self.remove(one, who)]

    def expire(self, startpoint: Startpoint, who: str) -> bool:
        """Delete a startpoint that has expired; return False if a run has fanned it out or it was replaced meanwhile.

        The copy of a startpoint for all jobs, as `applicable` returns it, stands for the startpoint itself unless it
        was fanned out.
        """
        is_stored = not startpoint.is_copy or startpoint.generation > 0
        stored = startpoint if is_stored else replace(startpoint, job=ALL_JOBS, is_copy=False)
        return self._store.delete_startpoint(stored, who, "expired")
