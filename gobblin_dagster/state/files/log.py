"""VersionLog: one record that changes, stored as numbered files; the newest file counts.

Each change writes the whole record under the next number. Only one writer succeeds with a number, so put-if-absent
works as compare-and-swap. Old files are deleted from time to time. This needs care: a writer that read version 5 and
then slept for long may find that number 6 has been deleted, and is free again. So a write counts only if no number
between the version that was read and the newest is missing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.storage import Storage

KEPT_VERSIONS = 64
"""Newest versions that are never deleted: a history for people, and how far a slow writer may fall behind."""
_NAME = re.compile(r"\d{20}\.json")
_TRIES = 50
"""How often a read or write is tried if other writers are faster each time."""


@dataclass(frozen=True, slots=True)
class VersionLog:
    """Numbered versions of one record in a folder; methods raise OSErrors of the storage."""

    storage: Storage
    folder: str

    def path(self, version: int) -> str:
        """Return the file of a version."""
        return posixpath.join(self.folder, f"{version:020d}.json")

    def read_newest(self) -> tuple[int, bytes]:
        """Return number and content of the newest version; 0 and empty content if there is none."""
        for _ in range(_TRIES):
            versions = self._versions()
            if not versions:
                return 0, b""
            try:
                return versions[-1], self.storage.read(self.path(versions[-1]))
            except FileNotFoundError:
                continue  # deleted after it was listed, because many newer versions were written: list again
        raise TransientError(problem=f"{self.folder} changes faster than it can be read.")

    def read_all(self) -> Iterator[bytes]:
        """Yield the content of each version that is still there, oldest first."""
        for version in self._versions():
            with suppress(FileNotFoundError):
                yield self.storage.read(self.path(version))

    def append(self, version: int, content: bytes) -> bool:
        """Write the next version and return True; return False if another writer was first.

        True is certain. After False the caller must read the newest version again: if it fell behind by
        `KEPT_VERSIONS`, its content was visible for a moment, and another writer may have built upon it.
        """
        if not self.storage.put_if_absent(self.path(version), content):
            return False
        versions = self._versions()
        since_base = [known for known in versions if known >= max(version - 1, 1)]
        if len(since_base) != versions[-1] - max(version - 1, 1) + 1:
            self.storage.delete(self.path(version))
            return False
        self._forget(versions)
        return True

    def write(self, content: bytes) -> None:
        """Write content as the newest version, whatever the present one is: the last writer wins."""
        for _ in range(_TRIES):
            if self.append(self.read_newest()[0] + 1, content):
                return
        raise TransientError(problem=f"{self.folder} changes faster than it can be written.")

    def _versions(self) -> list[int]:
        return [int(name[:20]) for name in self.storage.list_names(self.folder) if _NAME.fullmatch(name)]

    def _forget(self, versions: list[int]) -> None:
        """Delete old versions, many at a time and oldest first, so that the numbers left have no gaps."""
        if len(versions) < 2 * KEPT_VERSIONS:
            return
        for version in versions[:-KEPT_VERSIONS]:
            self.storage.delete(self.path(version))
