"""The records of the plain-file state store, and their form in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import ClassVar, TypeVar

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import PublishedFile, SequenceState, StoredSequence, body_digest
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.startpoint import Startpoint, StartpointEvent
from gobblin_dagster.state.parts import part_names, put_together, take_apart

T = TypeVar("T", bound=serialization.Document)


@dataclass(frozen=True, slots=True)
class SequenceEntry:
    """A stored sequence in its dataset's head or archive; its body is in a file of its own that never changes."""

    format_name: ClassVar[str] = "SequenceEntry/1"

    number: int
    """Version of the head that added it; orders sequences that were created at the same instant."""
    sequence: StoredSequence
    """The sequence with an empty body."""

    @property
    def is_closed(self) -> bool:
        """Whether it cannot change any more: it is aborted, or committed and reported."""
        return self.sequence.state is SequenceState.ABORTED or self.sequence.reported


@dataclass(frozen=True, slots=True)
class Removal:
    """A file of older snapshots that the snapshot with this number no longer holds."""

    path: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """The files that consecutive snapshots added or removed: from the one after the previous part up to `snapshot`."""

    format_name: ClassVar[str] = "SnapshotPart/1"

    snapshot: int
    """Number of the last snapshot in the part."""
    files: tuple[PublishedFile, ...]
    """Files that were added."""
    previous: str = ""
    """Name of the previous part; empty for the first one."""
    removed: tuple[Removal, ...] = ()
    """Files that were removed."""


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """A startpoint's event in the head that holds the change itself; a later head leaves it to a file."""

    number: int
    """Version of the head that added it; orders events of one instant."""
    index: int
    """Its place among the events that this head added, from 0."""
    event: StartpointEvent

    @property
    def file_name(self) -> str:
        """Name of its file, which begins with the time. There is one file, however often it is written."""
        return f"{self.event.at.astimezone(UTC):%Y%m%dT%H%M%S%f}-{self.number:09d}-{self.index}.json"


@dataclass(frozen=True, slots=True)
class DatasetHead:
    """Everything of a dataset that can change. Each version of it is one file, written by one transaction."""

    format_name: ClassVar[str] = "DatasetHead/2"
    older_formats: ClassVar[tuple[str, ...]] = ("DatasetHead/1",)
    """A program that knows only version 1 would drop the events of the head that it changes. So it refuses heads of
    version 2, also in a store that it opened before this version did."""

    job: str
    dataset_urn: str
    epoch: int = 0
    """Epoch of the last lease; it stays when the lease is released. 0 if there was no lease yet."""
    lease: Lease | None = None
    state: DatasetState | None = None
    entry: SequenceEntry | None = None
    """The newest sequence; older ones have ended and are in the archive."""
    snapshot_part: str = ""
    """Name of the newest part; empty before the first files were published."""
    startpoint: Startpoint | None = None
    """Of the whole dataset."""
    startpoints: tuple[Startpoint, ...] = ()
    """Of partitions, in their order."""
    startpoint_events: tuple[NotedEvent, ...] = ()
    """Events of the newest change of startpoints; those of older changes are in files."""

    @property
    def all_startpoints(self) -> tuple[Startpoint, ...]:
        """The startpoint of the whole dataset, if there is one, and those of partitions."""
        return (*([self.startpoint] if self.startpoint is not None else []), *self.startpoints)

    pruned_below: int = 0
    """Archived sequences with a lower `version_read` do not exist any more, although files of them may."""
    parts_folder: str = "parts"
    """Name of the folder that new parts are written to; a name that was left is never used again."""

    @property
    def version(self) -> int:
        """The dataset's version; 0 if it was never committed."""
        return self.state.version if self.state else 0


def encode(value: serialization.Document, store_parts: Callable[[Mapping[str, str]], None] | None = None) -> bytes:
    """Return a value as the content of its file: a line of JSON, and the digest of that line.

    With `store_parts`, long texts are given to it by name and the line holds their names; the digest is that of the
    whole line.
    """
    body = serialization.to_json(value)
    stored, parts = take_apart(body, is_state=True) if store_parts is not None else (body, {})
    if store_parts is not None:
        store_parts(parts)
    return f"{stored}\n{body_digest(body)}\n".encode()


def decode(
    cls: type[T],
    content: bytes,
    path: str,
    load_parts: Callable[[Collection[str]], Mapping[str, str]] | None = None,
    older_formats: Collection[str] = (),
) -> T:
    """Read what `encode` wrote, also without a digest by older versions; raises CorruptRecordError naming the path."""
    what = f"The record {path}"
    try:
        body, _, digest = content.decode().partition("\n")
        if load_parts is not None:
            body = put_together(body, load_parts(part_names([body])), what)
        if digest.strip() not in ("", body_digest(body)):
            problem = "it does not match its digest: another program changed it"
            raise CorruptRecordError(what=what, problem=problem)
        return serialization.from_json(cls, body, older_formats=older_formats)
    except UnicodeDecodeError as error:
        raise CorruptRecordError(what=what, problem=f"not UTF-8: {error}") from error
    except CorruptRecordError as error:
        raise CorruptRecordError(what=what, problem=error.problem) from error
