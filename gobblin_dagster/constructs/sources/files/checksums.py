"""Compare the content of files with what was read before, by checksums, if size and time of change do not decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.core.watermark.file_set import FileVersion
from gobblin_dagster.storage.checksums import has_content, take_checksum
from gobblin_dagster.storage.os_errors import as_os_error
from gobblin_dagster.storage.remote import look_at

_AT_ONCE = 4
"""Number of files that are read at a time, each with a few megabytes in memory."""


class Compare(StrEnum):
    """How a changed file is detected."""

    MODIFIED = "modified"
    """By size and time of change."""
    CHECKSUM = "checksum"
    """By content too, if the time of change differs."""
    CHECKSUM_ALWAYS = "checksum_always"
    """By content, in every plan."""


class Verdict(Enum):
    """Result of comparing a file with the version that was read; both have the same size."""

    SAME = auto()
    TOUCHED = auto()
    """Another time of change, the same content."""
    ADDED = auto()
    """The same time of change; its checksum was computed for the first time."""
    CHANGED = auto()
    UNTOLD = auto()
    """Another time of change, and no stored checksum to compare with."""
    UNSETTLED = auto()
    """The file was written to, or deleted, during the comparison."""
    UNREADABLE = auto()


class Finding(NamedTuple):
    """A file with the result of its comparison."""

    file: FoundFile
    """With its checksum if one was computed."""
    verdict: Verdict
    problem: str = ""
    """Why the file cannot be read; empty if it can."""


@dataclass(frozen=True, slots=True)
class Checksums:
    """Compute checksums of files, a few at a time, and compare them with the stored ones."""

    always: bool = False
    """True: also compare files whose size and time of change are unchanged."""

    def is_unclear(self, file: FoundFile, known: FileVersion) -> bool:
        """Return True if the content of a file of unchanged size must be compared."""
        if self.always or not known.checksum or known.modified_us != file.modified_us:
            return True
        # If listings have checksums, they also show a file that was replaced within one tick of the store's clock.
        return bool(file.checksum) and file.checksum != known.checksum and _kind(file.checksum) == _kind(known.checksum)

    def look(self, unclear: Sequence[tuple[FoundFile, FileVersion]]) -> list[Finding]:
        """Compare files with their known versions, which have the same size."""
        return in_parallel(lambda pair: _finding(*pair), unclear, _AT_ONCE)

    def taken(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Return files with their checksums.

        A file that cannot be read gets none: reading it fails its work unit, or a later plan computes the checksum.
        """
        return in_parallel(_with_checksum, files, _AT_ONCE)

    def to_verify(self, file: FoundFile) -> FoundFile:
        """Return the file, with its checksum only if it must be compared again after reading."""
        return file if self.always or _kind(file.checksum) != "sha256" else file._replace(checksum="")


def _finding(file: FoundFile, known: FileVersion) -> Finding:
    try:
        return _compared(file, known)
    except Exception as error:
        # Clients of remote file systems raise errors of their own. An error of no file system is a bug: pass it on.
        fault = as_os_error(error)
        if fault is None:
            raise
        if isinstance(fault, FileNotFoundError):
            return Finding(file, Verdict.UNSETTLED)
        return Finding(file, Verdict.UNREADABLE, fault.strerror or str(fault))


def _compared(file: FoundFile, known: FileVersion) -> Finding:
    is_timely = known.modified_us == file.modified_us
    if not known.checksum and not is_timely:
        return Finding(file, Verdict.UNTOLD)
    if file.checksum and file.checksum == known.checksum:
        return Finding(file, Verdict.SAME if is_timely else Verdict.TOUCHED)
    if file.checksum and not known.checksum:
        return Finding(file, Verdict.ADDED)
    if not known.checksum:
        found = Finding(file._replace(checksum=take_checksum(file.path)), Verdict.ADDED)
    elif has_content(file.path, known.checksum, file.checksum):
        verdict = Verdict.SAME if is_timely else Verdict.TOUCHED
        found = Finding(file._replace(checksum=file.checksum or known.checksum), verdict)
    else:
        found = Finding(file, Verdict.CHANGED)
    return found if _is_as_listed(file) else Finding(file, Verdict.UNSETTLED)


def _is_as_listed(file: FoundFile) -> bool:
    """Return True if the file still has its listed size and time of change, so that the checksum is its own."""
    now = look_at(file.path)
    return (now.size_bytes, now.modified_us) == (file.size_bytes, file.modified_us)


def _with_checksum(file: FoundFile) -> FoundFile:
    if file.checksum:
        return file
    try:
        return file._replace(checksum=take_checksum(file.path))
    except Exception as error:
        # As in `_finding`.
        if as_os_error(error) is None:
            raise
        return file


def _kind(checksum: str) -> str:
    return checksum.partition("=")[0]
