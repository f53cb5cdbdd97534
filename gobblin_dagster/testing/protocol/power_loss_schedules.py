"""A local storage that records unsynced changes, and disk images with any subset of them undone."""

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
    """A change that a power loss may undo. `kind`: `create`, `content`, `rename`, `delete` or `mkdir`."""

    kind: str
    path: str
    """The path changed; the target of a rename."""
    source: str = ""
    content: bytes = b""
    """Content of a deleted file."""
    taken_to: str = ""
    """Target of a later rename of the file with this content."""

    def undo(self, moved: Callable[[str], Path]) -> None:
        """Undo the change on a copy of the disk; `moved` maps a path to its place in the copy."""
        path = moved(self.path)
        if self.taken_to and not path.exists():
            path = moved(self.taken_to)
        if self.kind == "delete":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.content)
        elif not path.exists():
            return  # a later change moved the file elsewhere and was not undone
        elif self.kind == "rename":
            moved(self.source).parent.mkdir(parents=True, exist_ok=True)
            path.rename(moved(self.source))
        elif self.kind == "create":
            path.unlink()
        elif self.kind == "mkdir":
            shutil.rmtree(path)
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
    """A local storage that records all changes that are not durable yet.

    It models a journaling file system: a rename is undone completely or not at all, and is durable after the folder of
    its target was synced. The content of a file is durable after the file was synced, its name after its folder was. A
    folder is durable after the folder above it was synced; until then all in it may be lost, also synced files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: list[Unsynced] = []
        """Unsynced changes, in their order."""
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

    def _mkdir(self, folder: Path) -> None:
        if not folder.exists():
            self.unsynced.append(Unsynced("mkdir", str(folder)))
        super()._mkdir(folder)

    def delete(self, path: str) -> None:
        if Path(path).exists():
            self.unsynced.append(Unsynced("delete", path, content=Path(path).read_bytes()))
        super().delete(path)

    def delete_tree(self, path: str) -> None:
        for file in self.walk_files(path):
            self.unsynced.append(Unsynced("delete", file, content=Path(file).read_bytes()))
        super().delete_tree(path)


def losses(unsynced: Sequence[Unsynced], rng: random.Random, limit: int = 256) -> Iterator[tuple[Unsynced, ...]]:
    """Yield the sets of changes that a power loss may undo: all, or `limit` random ones if there are more."""
    if 2 ** len(unsynced) <= limit:
        for size in range(len(unsynced) + 1):
            for lost in itertools.combinations(unsynced, size):
                yield with_contents(lost, unsynced)
        return
    yield tuple(unsynced)
    for _ in range(limit - 1):
        yield with_contents([change for change in unsynced if rng.random() < 0.5], unsynced)


def with_contents(lost: Sequence[Unsynced], unsynced: Sequence[Unsynced]) -> tuple[Unsynced, ...]:
    """Return the lost changes, and the unsynced changes in lost folders, which a journal cannot keep without them."""
    folders = tuple(f"{change.path}/" for change in lost if change.kind == "mkdir")
    if not folders:
        return tuple(lost)
    return tuple(change for change in unsynced if change in lost or change.path.startswith(folders))


def save_image(root: Path, image: Path, lost: Sequence[Unsynced]) -> None:
    """Copy a disk and undo the lost changes, the newest first."""
    shutil.copytree(root, image)
    for change in reversed(lost):
        change.undo(lambda path: image / Path(path).relative_to(root))
