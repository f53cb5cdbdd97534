"""What the plain-file state store writes: values, and how they become files and come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import PublishedFile, SequenceState, StoredSequence, body_digest
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.startpoint import Startpoint

T = TypeVar("T", bound=serialization.Document)


@dataclass(frozen=True, slots=True)
class SequenceEntry:
    """A stored sequence as its dataset's head or archive keeps it; the body lies in a file that never changes."""

    format_name: ClassVar[str] = "SequenceEntry/1"

    number: int
    """Version of the head that brought it: orders sequences that were created in one instant."""
    sequence: StoredSequence
    """With an empty body."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.sequence.state is SequenceState.ABORTED or self.sequence.reported


@dataclass(frozen=True, slots=True)
class Removal:
    """A file of an older snapshot that `snapshot` no longer holds."""

    path: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """The files that some snapshots in a row added or removed: those after the part before, up to `snapshot`."""

    format_name: ClassVar[str] = "SnapshotPart/1"

    snapshot: int
    files: tuple[PublishedFile, ...]
    previous: str = ""
    """Name of the part before; empty at the first."""
    removed: tuple[Removal, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetHead:
    """All that changes of one dataset; each of its versions is one file, put by one transaction."""

    format_name: ClassVar[str] = "DatasetHead/1"

    job: str
    dataset_urn: str
    epoch: int = 0
    """Kept when the lease is given back; 0 was never granted."""
    lease: Lease | None = None
    state: DatasetState | None = None
    entry: SequenceEntry | None = None
    """The newest sequence; older ones have ended and lie in the archive."""
    snapshot_part: str = ""
    """Name of the newest part; empty before the first files."""
    startpoint: Startpoint | None = None

    @property
    def version(self) -> int:
        """The dataset's version; 0 if it was never committed."""
        return self.state.version if self.state else 0


def encode(value: serialization.Document) -> bytes:
    """Return a value as the content of its file: a line of JSON, and the digest of that line."""
    body = serialization.to_json(value)
    return f"{body}\n{body_digest(body)}\n".encode()


def decode(cls: type[T], content: bytes, path: str) -> T:
    """Read what `encode` wrote, or programs that knew no digest; raises CorruptRecordError naming the path."""
    try:
        body, _, digest = content.decode().partition("\n")
        if digest.strip() not in ("", body_digest(body)):
            problem = "it does not match its digest: it was changed past this program"
            raise CorruptRecordError(what=f"The record {path}", problem=problem)
        return serialization.from_json(cls, body)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(what=f"The record {path}", problem=f"not UTF-8: {error}") from error
    except CorruptRecordError as error:
        raise CorruptRecordError(what=f"The record {path}", problem=error.problem) from error
