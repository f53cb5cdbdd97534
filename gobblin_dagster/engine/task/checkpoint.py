"""Checkpoints of a run on staging storage: a started and a done file per work unit or group, and a stop file.

The done file *is* the TaskState row. It feeds the progress bars while Spark works, and keeps the result of a finished
unit if Spark runs its pack again. A unit with a started file but no done file may have killed its worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import TaskState

_GROUP = "group-"


class TaskCheckpoints:
    """Reads and writes the checkpoints of one run; the first writer of a file wins."""

    def __init__(self, storage: Storage, staging_root: str) -> None:
        self._storage = storage
        self._folder = f"{staging_root}/_tasks"
        self._stop = f"{self._folder}/stop"
        self._seen: set[str] = set()

    def start(self, work_unit_id: str) -> bool:
        """Record that a work unit begins; False if it began before: its worker died, or Spark runs it twice."""
        return self._storage.put_if_absent(f"{self._folder}/{work_unit_id}.started", b"")

    def was_started(self, work_unit_id: str) -> bool:
        """True if the work unit has begun."""
        return self._storage.size(f"{self._folder}/{work_unit_id}.started") is not None

    def finish(self, state: TaskState) -> TaskState:
        """Store a result and return the one that counts: the result of the first attempt to finish."""
        path = self._done_path(state.work_unit_id)
        if self._storage.put_if_absent(path, to_json(state).encode()):
            return state
        return from_json(TaskState, self._storage.read(path).decode())

    def result(self, work_unit_id: str) -> TaskState | None:
        """Return the result of a work unit; None if it has not finished."""
        path = self._done_path(work_unit_id)
        if self._storage.size(path) is None:
            return None
        return from_json(TaskState, self._storage.read(path).decode())

    def start_group(self, first_id: str) -> bool:
        """Record that a group of work units begins; False if it was begun before."""
        return self._storage.put_if_absent(f"{self._folder}/{_GROUP}{first_id}.started", b"")

    def finish_group(self, states: Sequence[TaskState]) -> None:
        """Store the results of a group in one file: its units share their files, so only all of them together count."""
        path = self._group_path(states[0].work_unit_id)
        self._storage.put_if_absent(path, "\n".join(map(to_json, states)).encode())

    def group_results(self, first_id: str) -> list[TaskState]:
        """Return the results of a finished group; empty if it has not finished."""
        path = self._group_path(first_id)
        return self._load(path) if self._storage.size(path) is not None else []

    def all_results(self) -> dict[str, TaskState]:
        """Return every result by work unit; if a unit also ran alone, the result of its group counts."""
        names = [name for name in self._storage.list_names(self._folder) if name.endswith(".done")]
        names.sort(key=lambda name: name.startswith(_GROUP))
        return {state.work_unit_id: state for name in names for state in self._load(f"{self._folder}/{name}")}

    def new_results(self) -> Iterator[TaskState]:
        """Yield results that this object has not yielded before; costs one listing."""
        for name in self._storage.list_names(self._folder):
            if name.endswith(".done") and name not in self._seen:
                self._seen.add(name)
                yield from self._load(f"{self._folder}/{name}")

    def request_stop(self) -> None:
        """Ask tasks to begin no further work unit."""
        self._storage.put_if_absent(self._stop, b"")

    def is_stop_requested(self) -> bool:
        """True if no further work unit should begin."""
        return self._storage.size(self._stop) is not None

    def _load(self, path: str) -> list[TaskState]:
        return [from_json(TaskState, line) for line in self._storage.read(path).decode().splitlines()]

    def _group_path(self, first_id: str) -> str:
        return self._done_path(_GROUP + first_id)

    def _done_path(self, work_unit_id: str) -> str:
        return f"{self._folder}/{work_unit_id}.done"
