"""The board: one started and one done file per work unit (or group of small ones) on staging storage, and a stop sign.

The done file *is* the TaskState row. It feeds the progress bars while Spark works, saves finished units when Spark runs a
pack again, and together with the started file names the suspect when a worker died.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import TaskState

_GROUP = "group-"


class TaskCheckpoints:
    """Reads and writes the board of one run; the first writer of a file wins."""

    def __init__(self, storage: Storage, staging_root: str) -> None:
        self._storage = storage
        self._folder = f"{staging_root}/_tasks"
        self._stop = f"{self._folder}/stop"
        self._seen: set[str] = set()

    def start(self, work_unit_id: str) -> bool:
        """Note that a work unit begins; False where it was begun before (a worker died, or Spark speculates)."""
        return self._storage.put_if_absent(f"{self._folder}/{work_unit_id}.started", b"")

    def was_started(self, work_unit_id: str) -> bool:
        """Tell whether a work unit began."""
        return self._storage.size(f"{self._folder}/{work_unit_id}.started") is not None

    def finish(self, state: TaskState) -> TaskState:
        """Keep a result and return the one that counts: that of the first attempt to finish."""
        path = self._done_path(state.work_unit_id)
        if self._storage.put_if_absent(path, to_json(state).encode()):
            return state
        return from_json(TaskState, self._storage.read(path).decode())

    def result(self, work_unit_id: str) -> TaskState | None:
        """Return a finished work unit's result."""
        path = self._done_path(work_unit_id)
        if self._storage.size(path) is None:
            return None
        return from_json(TaskState, self._storage.read(path).decode())

    def start_group(self, first_id: str) -> bool:
        """Note that a group of work units begins; False where it was begun before."""
        return self._storage.put_if_absent(f"{self._folder}/{_GROUP}{first_id}.started", b"")

    def finish_group(self, states: Sequence[TaskState]) -> None:
        """Keep the results of a group, all in one file: its units share their files, so none counts without the others."""
        path = self._group_path(states[0].work_unit_id)
        self._storage.put_if_absent(path, "\n".join(map(to_json, states)).encode())

    def group_results(self, first_id: str) -> list[TaskState]:
        """Return what a finished group came to; empty where it was not finished."""
        path = self._group_path(first_id)
        return self._load(path) if self._storage.size(path) is not None else []

    def all_results(self) -> dict[str, TaskState]:
        """Return every result by work unit; where a unit was also run alone, that of its group counts."""
        names = [name for name in self._storage.list_names(self._folder) if name.endswith(".done")]
        names.sort(key=lambda name: name.startswith(_GROUP))
        return {state.work_unit_id: state for name in names for state in self._load(f"{self._folder}/{name}")}

    def new_results(self) -> Iterator[TaskState]:
        """Yield results that this object has not yielded before; one listing."""
        for name in self._storage.list_names(self._folder):
            if name.endswith(".done") and name not in self._seen:
                self._seen.add(name)
                yield from self._load(f"{self._folder}/{name}")

    def request_stop(self) -> None:
        """Ask tasks to begin no further work unit."""
        self._storage.put_if_absent(self._stop, b"")

    def is_stop_requested(self) -> bool:
        """Tell whether no further work unit should begin."""
        return self._storage.size(self._stop) is not None

    def _load(self, path: str) -> list[TaskState]:
        return [from_json(TaskState, line) for line in self._storage.read(path).decode().splitlines()]

    def _group_path(self, first_id: str) -> str:
        return self._done_path(_GROUP + first_id)

    def _done_path(self, work_unit_id: str) -> str:
        return f"{self._folder}/{work_unit_id}.done"
