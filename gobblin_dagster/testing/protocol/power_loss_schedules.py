"""Power loss: a local storage that remembers what was not yet synced, and disk images with any part of it undone."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gobblin_dagster.core.storage import FileDigest
from gobblin_dagster.storage.local import LocalSink, LocalStorage


@dataclass(frozen=True, slots=True)
class Unsynced:
    """A change that a power loss may undo. `kind`: `create`, `content`, `rename` or `delete`."""

    kind: str
    path: str
    """The path changed; the target of a rename."""
    source: str = ""
    content: bytes = b""
    """What a deleted file held."""
    taken_to: str = ""
    """Where a later rename took the file whose content this is."""

    def undo(self, moved: Callable[[str], Path]) -> None:
        """Undo the change on a copy of the disk; `moved` says where a path lies there."""
        path = moved(self.path)
        if self.taken_to and not path.exists():
            path = moved(self.taken_to)
        if self.kind == "delete":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.content)
        elif not path.exists():
            return  # a change that came later was not undone, and took the file elsewhere
        elif self.kind == "rename":
            moved(self.source).parent.mkdir(parents=True, exist_ok=True)
            path.rename(moved(self.source))
        elif self.kind == "create":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)


class _RecordedSink(LocalSink):
    def __init__(self, path: str, durable: bool, on_synced: Callable[[], None]) -> None:
        super().__init__(path, durable)
        self._on_synced = on_synced

    def finish(self) -> FileDigest:
        digest = super().finish()
        if self._durable:
            self._on_synced()
        return digest


class PowerLossStorage(LocalStorage):
    """A local storage that keeps a list of what is not durable yet.

    Its model of a disk is a journaling one: a rename is undone as a whole or not at all, and lasts once the folder of its
    target was synced; the content of a file lasts once the file was synced, its name once its folder was. Folders last:
    `LocalStorage.make_dirs` syncs each as it makes it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: list[Unsynced] = []
        """In the order of the changes."""
        rename = self.rename

        def recorded(source: str, target: str) -> None:
            rename(source, target)
            self.unsynced = [
                replace(c, taken_to=target) if c.kind == "content" and c.path == source else c for c in self.unsynced
            ]
            self.unsynced.append(Unsynced("rename", target, source))

        self.rename = recorded

    def open_new(self, path: str) -> LocalSink:
        if not Path(path).parent.exists():
            self.make_dirs(str(Path(path).parent))
        written = Unsynced("content", path)
        sink = _RecordedSink(path, self.durable, lambda: self.unsynced.remove(written))
        self.unsynced += [Unsynced("create", path), written]
        return sink

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        folder = str(Path(path))
        self.unsynced = [c for c in self.unsynced if c.kind == "content" or str(Path(c.path).parent) != folder]

    def delete(self, path: str) -> None:
        if Path(path).exists():
            self.unsynced.append(Unsynced("delete", path, content=Path(path).read_bytes()))
        super().delete(path)

    def delete_tree(self, path: str) -> None:
        for file in self.walk_files(path):
            self.unsynced.append(Unsynced("delete", file, content=Path(file).read_bytes()))
        super().delete_tree(path)


def losses(unsynced: Sequence[Unsynced], rng: random.Random, limit: int = 256) -> Iterator[tuple[Unsynced, ...]]:
    """Yield the sets of changes that a power loss may undo: all where there are at most `limit`, else so many random ones."""
    if 2 ** len(unsynced) <= limit:
        for size in range(len(unsynced) + 1):
            yield from itertools.combinations(unsynced, size)
        return
    yield tuple(unsynced)
    for _ in range(limit - 1):
        yield tuple(change for change in unsynced if rng.random() < 0.5)


def save_image(root: Path, image: Path, lost: Sequence[Unsynced]) -> None:
    """Copy a disk and undo what a power loss took from it, the newest change first."""
    shutil.copytree(root, image)
    for change in reversed(lost):
        change.undo(lambda path: image / Path(path).relative_to(root))
