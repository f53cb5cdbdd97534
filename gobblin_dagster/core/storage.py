"""Storage: the few file operations that the commit protocol needs, and what each guarantees after a crash.

Implementations are in `gobblin_dagster.storage`; tests wrap them to count, fail and undo operations. All changes to
staged and published files go through this protocol.
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
    """A new file that is being written. Call `write` any number of times, then `finish` or `abort` once."""

    def write(self, data: bytes | memoryview) -> int:
        """Append all bytes and return their number; raises OSError (no space, no permission)."""

    def finish(self) -> FileDigest:
        """Flush, sync and close the file, and return its size and SHA-256; raises OSError.

        The content survives a power loss after `sync_dir` of the file's folder has returned.
        """

    def abort(self) -> None:
        """Close the file and delete it; never raises."""


class Storage(Protocol):
    """File operations by absolute path.

    Called on the driver by the commit (from several threads) and in Spark tasks by writers: objects must be cheap to
    make and picklable. All methods may raise any OSError, for example if the server cannot be reached; none retries by
    itself.
    """

    is_move_atomic: bool
    """True if readers see a moved file at the old or the new path and never a part of it (local, HDFS); False if `move`
    copies (S3)."""

    def open_new(self, path: str) -> Sink:
        """Create a file, and its parent folders; raises FileExistsError if the path exists."""

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is no such file."""

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of the content in hex; raises FileNotFoundError."""

    def read(self, path: str) -> bytes:
        """Return the content; raises FileNotFoundError."""

    def move(self, source: str, target: str) -> None:
        """Rename a file without overwriting; raises FileNotFoundError (source) or FileExistsError (target).

        The move survives a power loss after `sync_dir` of both folders has returned.
        """

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with this content, whole or not at all, and return True; return False if the path exists.

        The file survives a power loss when the call returns.
        """

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents, which survive a power loss on return; do nothing if they exist."""

    def sync_dir(self, path: str) -> None:
        """Make the files that were created in a folder, or renamed into or out of it, survive a power loss."""

    def list_names(self, path: str) -> list[str]:
        """Return the sorted names inside a folder; empty if there is no such folder."""

    def walk_files(self, path: str) -> Iterator[str]:
        """Yield the absolute paths of all files below a folder, sorted; nothing if there is no such folder."""

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist."""

    def delete_tree(self, path: str) -> None:
        """Delete a folder and all below it; do nothing if it does not exist."""


@runtime_checkable
class LinkStorage(Protocol):
    """Optional addition to `Storage`: folders may be links to other folders."""

    def real_path(self, path: str) -> str:
        """Return a path with all links resolved; parts that do not exist yet stay as they are."""

    def confined(self, root: str) -> Storage:
        """Return this storage, in which changes of files below a folder raise OSError if a link leads outside of it.

        That also holds for a link that is put there while the change is made.
        """


@runtime_checkable
class FoldingStorage(Protocol):
    """A storage in which names that differ in case only may be one."""

    def folds_case(self, path: str) -> bool:
        """Return whether they are in a folder, which need not be there yet."""


@runtime_checkable
class FolderStorage(Protocol):
    """What a storage has too if each new folder costs a sync; the commit asks it for the folders of many datasets."""

    def make_all_dirs(self, paths: Collection[str]) -> dict[str, OSError | None]:
        """Call `make_dirs` for many paths, which share the syncs of common parents.

        Returns:
            By path: None if the folder is there and survives a power loss, else what `make_dirs` would have raised.
            After such an error do not try again: a second sync may report success although the first one lost data.
        """


@runtime_checkable
class SharedFolderStorage(Protocol):
    """Optional addition to `Storage`: deletes folders into which other programs may write at that moment."""

    def delete_empty(self, path: str) -> None:
        """Delete a folder if nothing is in it, not even a file that somebody is writing; otherwise do nothing."""


@runtime_checkable
class LeftoverStorage(Protocol):
    """Optional addition to `Storage`: tells the source that a killed `move` left from one that was written since."""

    def is_leftover(self, source: str, target: str) -> bool:
        """Return True if a source is what a move left whose target is complete, so that it can be deleted."""


@runtime_checkable
class UploadStorage(Protocol):
    """Optional addition to `Storage`: a killed `move` leaves an unfinished upload, invisible but paid for."""

    def end_uploads(self, paths: Collection[str]) -> None:
        """End unfinished uploads to exactly these paths; a run still working on one of them gets FileNotFoundError.

        Called on the driver by recovery.
        """
