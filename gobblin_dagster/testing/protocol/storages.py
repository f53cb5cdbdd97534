"""Grounds: the storages on which an example is played, and what they do besides moving files as they should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import LocalStorage, MemoryStorage, open_storage

GroundKind: TypeAlias = Literal["local", "memory", "copies", "s3", "hdfs"]
"""`copies` moves as an object store does, in memory."""


def _as_it_is(storage: Storage) -> Storage:
    return storage


@dataclass(frozen=True)
class Ground:
    """A storage and the folder in it that an example may fill and delete."""

    root: str
    """Absolute, or a URL that `storage` takes."""
    kind: GroundKind = "local"
    storage: Storage = field(default_factory=LocalStorage)
    over: Callable[[Storage], Storage] = _as_it_is
    """Wraps the storage, fault points included, in what makes moves of other calls or lets listings lie."""

    @property
    def outlives_processes(self) -> bool:
        """Whether runs may be child processes that are killed: the files are there for the next one, and no client is shared."""
        return self.kind == "local"


def make_ground(kind: GroundKind, root: str) -> Ground:
    """Return a ground.

    Args:
        kind: which one.
        root: an absolute folder; a URL for `s3` and `hdfs`.
    """
    match kind:
        case "local":
            return Ground(root)
        case "memory":
            return Ground("/lake", kind, MemoryStorage())
        case "copies":
            return Ground("/lake", kind, MemoryStorage(), copying)
        case _:
            return Ground(root, kind, open_storage(root))


def copying(storage: Storage) -> Storage:
    """Return a storage that moves by copying and deleting, as a store of objects does."""
    return cast("Storage", _Copying(storage))


def late_listing(storage: Storage) -> Storage:
    """Return a storage whose listings show what was there when they were last asked for."""
    return cast("Storage", _LateListing(storage))


class _Over:
    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Copying(_Over):
    """What is copied by a run that was frozen may arrive late, and a crash may come between copy and deletion."""

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
