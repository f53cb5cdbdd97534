"""VersionLog: one record that changes, kept as numbered files of which the newest is true.

Each change puts the whole record under the next number, which succeeds for one writer only: a compare-and-swap made of
put-if-absent. Old numbers are deleted now and then, which needs care: a writer that slept since it read version 5 finds
number 6 free again once it was deleted. So a put counts only if no number between its base and the newest is missing.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.storage import Storage

KEPT_VERSIONS = 64
"""Newest versions that are never deleted: the history for people, and the distance that a slow writer may fall behind."""
_NAME = re.compile(r"\d{20}\.json")
_TRIES = 50
"""Lost races in a row before giving up; each means that another writer got on."""


@dataclass(frozen=True, slots=True)
class VersionLog:
    """Numbered versions of one record in a folder; methods raise OSError as the storage does."""

    storage: Storage
    folder: str

    def path(self, version: int) -> str:
        """Return the file of a version."""
        return posixpath.join(self.folder, f"{version:020d}.json")

    def read_newest(self) -> tuple[int, bytes]:
        """Return the newest version and its content; version 0 and nothing if there is none."""
        for _ in range(_TRIES):
            versions = self._versions()
            if not versions:
                return 0, b""
            try:
                return versions[-1], self.storage.read(self.path(versions[-1]))
            except FileNotFoundError:
                continue  # listed, then overtaken by many others and deleted: list again
        raise TransientError(problem=f"{self.folder} changes faster than it can be read.")

    def append(self, version: int, content: bytes) -> bool:
        """Put the next version; False where another writer was first.

        True is certain. Where False comes after the put took place (a writer that fell behind by `KEPT_VERSIONS`), the
        caller reads the newest version as after any lost race and finds out what became of it.
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
        """Put content as the newest version whatever stands there: the last to write wins."""
        for _ in range(_TRIES):
            if self.append(self.read_newest()[0] + 1, content):
                return
        raise TransientError(problem=f"{self.folder} changes faster than it can be written.")

    def _versions(self) -> list[int]:
        return [int(name[:20]) for name in self.storage.list_names(self.folder) if _NAME.fullmatch(name)]

    def _forget(self, versions: list[int]) -> None:
        """Delete old versions, many at a time and oldest first, so that what is left has no gaps."""
        if len(versions) < 2 * KEPT_VERSIONS:
            return
        for version in versions[:-KEPT_VERSIONS]:
            self.storage.delete(self.path(version))
