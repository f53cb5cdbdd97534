"""Storage: the few file operations that the commit protocol stands on, with what each promises after a crash.

Implementations are in `gobblin_dagster.storage`; tests wrap them to count, fail and undo operations. Nothing else in the
way of published data touches files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and content of a finished file."""

    size_bytes: int
    sha256: str


class Sink(Protocol):
    """A new file being written; exists for readers of the folder only under its staging name."""

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes and return how many; raises OSError (no space, no permission)."""

    def finish(self) -> FileDigest:
        """Flush, sync and close; the content survives power loss once `sync_dir` of its folder returned."""

    def abort(self) -> None:
        """Close and delete what was written; never raises."""


class Storage(Protocol):
    """Files by absolute path. All methods raise OSError subclasses; none retries.

    Called on the driver by the commit and in Spark tasks by writers, so it must be cheap to make and picklable.
    """

    is_move_atomic: bool
    """Whether `move` is one step for every reader (local, HDFS) or a copy (S3)."""

    def open_new(self, path: str) -> Sink:
        """Create a file that must not exist, with its parents; raises FileExistsError."""

    def size(self, path: str) -> int | None:
        """Return the size in bytes; None where there is no such file."""

    def sha256(self, path: str) -> str:
        """Return the hex digest of the content; raises FileNotFoundError."""

    def read(self, path: str) -> bytes:
        """Return the content; raises FileNotFoundError."""

    def move(self, source: str, target: str) -> None:
        """Rename without overwriting; raises FileNotFoundError (source) or FileExistsError (target).

        Durable once `sync_dir` of both folders returned.
        """

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a whole file at once, durable on return; False (and no change) where the path exists."""

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents, each durable in its parent on return; fine where they exist."""

    def sync_dir(self, path: str) -> None:
        """Make creations and renames inside a folder durable."""

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names inside a folder; empty where there is none."""

    def walk_files(self, path: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, in order."""

    def delete(self, path: str) -> None:
        """Delete a file; fine where it is gone."""

    def delete_tree(self, path: str) -> None:
        """Delete a folder and all below it; fine where it is gone."""


@runtime_checkable
class LinkStorage(Protocol):
    """A storage whose folders may be links to others."""

    def real_path(self, path: str) -> str:
        """Return where a path leads once all links are followed; what is not there yet is taken as it is."""


@runtime_checkable
class FoldingStorage(Protocol):
    """A storage in which names that differ in case only may be one."""

    def folds_case(self, path: str) -> bool:
        """Tell whether they are in a folder, which need not be there yet."""


@runtime_checkable
class UploadStorage(Protocol):
    """A storage where a move that was killed leaves something behind, which nobody sees and somebody pays for."""

    def end_uploads(self, paths: Collection[str]) -> None:
        """End unfinished moves to these very paths; a run that still works on one gets FileNotFoundError."""
