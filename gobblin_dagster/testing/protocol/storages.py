"""The storages on which an example runs, some with faults: moves by copying, late listings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import LocalStorage, MemoryStorage, open_storage

StorageKind: TypeAlias = Literal["local", "memory", "copies", "s3", "hdfs"]
"""`copies` moves as an object store does, in memory."""


def _as_it_is(storage: Storage) -> Storage:
    return storage


@dataclass(frozen=True)
class StorageSetup:
    """A storage and the folder in it that an example may fill and delete."""

    root: str
    """Absolute path, or a URL for `storage`."""
    kind: StorageKind = "local"
    storage: Storage = field(default_factory=LocalStorage)
    over: Callable[[Storage], Storage] = _as_it_is
    """Wraps the storage and its fault points: adds moves by copying, or late listings."""

    @property
    def outlives_processes(self) -> bool:
        """True if runs may be killed child processes: the files stay for the next one, and no client is shared."""
        return self.kind == "local"


def make_storage(kind: StorageKind, root: str) -> StorageSetup:
    """Return a storage of one kind, with its folder.

    Args:
        kind: the kind.
        root: an absolute folder; a URL for `s3` and `hdfs`.
    """
    match kind:
        case "local":
            return StorageSetup(root)
        case "memory":
            return StorageSetup("/lake", kind, MemoryStorage())
        case "copies":
            return StorageSetup("/lake", kind, MemoryStorage(), copying)
        case _:
            return StorageSetup(root, kind, open_storage(root))


def copying(storage: Storage) -> Storage:
    """Return a storage that moves by copying and deleting, as a store of objects does."""
    return cast("Storage", _Copying(storage))


def late_listing(storage: Storage) -> Storage:
    """Return a storage whose listings show the state at the listing before."""
    return cast("Storage", _LateListing(storage))


class _Over:
    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Copying(_Over):
    """Copies of a run that was frozen may arrive late, and a crash may happen between copy and deletion."""

    is_move_atomic = False

    def move(self, source: str, target: str) -> None:
        if not self._inner.put_if_absent(target, self._inner.read(source)):
            raise FileExistsError(target)
        self._inner.delete(source)


class _LateListing(_Over):
    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._listed: dict[str, list[str]] = {}

    def list_names(self, path: str) -> list[str]:
        names = self._inner.list_names(path)
        before = self._listed.get(path, [])
        self._listed[path] = names
        return before
