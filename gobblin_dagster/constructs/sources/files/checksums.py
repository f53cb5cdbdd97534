"""Whether files hold what was read of them: told by checksums, where size and time of change leave it open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import NamedTuple, TypeVar

from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.core.watermark.file_set import FileVersion
from gobblin_dagster.storage.checksums import has_content, take_checksum
from gobblin_dagster.storage.remote import as_os_error, look_at

_AT_ONCE = 4
"""Files that are read at a time, each a few megabytes in memory."""
_PORTION = 1_000
_T = TypeVar("_T")
_R = TypeVar("_R")


class Compare(StrEnum):
    """What tells whether a file changed after it was read."""

    MODIFIED = "modified"
    """Its size and its time of change."""
    CHECKSUM = "checksum"
    """Its content, looked at where size or time of change differ."""
    CHECKSUM_ALWAYS = "checksum_always"
    """Its content, looked at in every plan."""


class Verdict(Enum):
    """What became of a file of the size that was read."""

    SAME = auto()
    TOUCHED = auto()
    """Its time of change is another, its content the same."""
    ADDED = auto()
    """Its checksum was taken for the first time; that it is the same is what its time of change says."""
    CHANGED = auto()
    UNTOLD = auto()
    """Its time of change is another, and no checksum of what was read is known."""
    UNSETTLED = auto()
    """It was written to, or went, while it was looked at."""
    UNREADABLE = auto()


class Finding(NamedTuple):
    """A file and what became of it."""

    file: FoundFile
    """With its checksum, where one was taken."""
    verdict: Verdict
    problem: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True)
class Checksums:
    """Takes checksums of files, a few at a time, and compares them with those that are known."""

    always: bool = False
    """Whether files are looked at whose size and time of change are as they were."""

    def is_unclear(self, file: FoundFile, known: FileVersion) -> bool:
        """Tell whether a file of a known size has to be looked at."""
        if self.always or not known.checksum or known.modified_us != file.modified_us:
            return True
        # Where lists hold checksums, a file that was replaced within the tick of the store's clock shows all the same.
        return bool(file.checksum) and file.checksum != known.checksum and _kind(file.checksum) == _kind(known.checksum)

    def look(self, unclear: Sequence[tuple[FoundFile, FileVersion]]) -> list[Finding]:
        """Return what became of files whose size is the known one."""
        return _at_once(lambda pair: _finding(*pair), unclear)

    def taken(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Return files with their checksums.

        One that cannot be read stays without; reading it will fail its work unit, or else the next plan takes it.
        """
        return _at_once(_with_checksum, files)

    def to_verify(self, file: FoundFile) -> FoundFile:
        """Return a file with the checksum that is to be compared again once it was read; without where time tells enough."""
        return file if self.always or _kind(file.checksum) != "sha256" else file._replace(checksum="")


def _finding(file: FoundFile, known: FileVersion) -> Finding:
    try:
        return _compared(file, known)
    except Exception as error:
        # Clients of far file systems have errors of their own; what is no fault of a file system is a bug, and passes.
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
    """Tell whether a checksum is that of the file that was listed, not of one that took its place meanwhile."""
    now = look_at(file.path)
    return (now.size_bytes, now.modified_us) == (file.size_bytes, file.modified_us)


def _with_checksum(file: FoundFile) -> FoundFile:
    if file.checksum:
        return file
    try:
        return file._replace(checksum=take_checksum(file.path))
    except Exception as error:
        # As above.
        if as_os_error(error) is None:
            raise
        return file


def _kind(checksum: str) -> str:
    return checksum.partition("=")[0]


def _at_once(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    done: list[_R] = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # In portions: `map` begins by making a task of each, and there may be 100,000.
        for begin in range(0, len(items), _PORTION):
            done += pool.map(work, items[begin : begin + _PORTION])
    return done
