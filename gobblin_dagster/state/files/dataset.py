"""DatasetFiles: the folder of one dataset in a plain-file state store.

    log/<version>.json          the head; only its newest version counts
    parts/<hash>                long texts that heads and bodies of sequences have in common, named by them
    snapshots/<n>-<hash>.json   files of snapshots; the head names the newest of these parts
    unreported/<id>.json        archived sequences that are committed but not reported yet
    closed/<id>.json            all other archived sequences; if a sequence is in both folders, this file counts

All files that a head names are written before the head and never change. A crash in between leaves a file that no head
names, which does no harm.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from gobblin_dagster.core.commit import CommitEffect, FileHistory, PublishedFile
from gobblin_dagster.core.errors import CorruptRecordError, TransientError
from gobblin_dagster.core.places import AS_STORED, Places
from gobblin_dagster.core.serialization import Document
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.state.files.log import VersionLog
from gobblin_dagster.state.files.records import DatasetHead, Removal, SequenceEntry, SnapshotPart, decode, encode
from gobblin_dagster.state.parts import mend, part_names, put_together, take_apart

_TRIES = 50
"""How often a change is tried if other writers are faster each time."""
_LONGEST_PART = 1024
"""The most snapshots in one part."""
HeadChange: TypeAlias = Callable[[DatasetHead, int], DatasetHead | None]
"""Returns the next head, given the newest one and the next version number; None if nothing has to be written."""
T = TypeVar("T", bound=Document)


class AnswerLostError(OSError):
    """Writing a head failed, and it is not known whether the file was written."""


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """Reads and changes one dataset; methods raise OSErrors of the storage."""

    storage: Storage
    folder: str
    job: str
    dataset_urn: str
    places: Places = AS_STORED

    @property
    def _log(self) -> VersionLog:
        return VersionLog(self.storage, posixpath.join(self.folder, "log"))

    def head(self) -> DatasetHead:
        """Return the newest head; an empty one if there is none yet."""
        return self._numbered_head()[1]

    def _numbered_head(self) -> tuple[int, DatasetHead]:
        number, content = self._log.read_newest()
        if number == 0:
            return 0, DatasetHead(self.job, self.dataset_urn)
        head = self._decoded(content, self._log.path(number))
        if (head.job, head.dataset_urn) != (self.job, self.dataset_urn):
            problem = f"it belongs to dataset {head.dataset_urn!r} of job {head.job!r}"
            raise CorruptRecordError(what=f"The record {self._log.path(number)}", problem=problem)
        return number, head

    def change(self, apply: HeadChange) -> DatasetHead:
        """Write the head that `apply` returns for the newest head; this is one transaction.

        If another writer is faster, `apply` is called again with the new head. It may write files that its head names.

        Returns:
            The head that was written; the newest head if `apply` returned None.

        Raises:
            AnswerLostError: it is not known whether the head was written.
            TransientError: other writers were faster each time.
        """
        for _ in range(_TRIES):
            number, head = self._numbered_head()
            changed = apply(head, number + 1)
            if changed is None:
                return head
            try:
                is_done = self._log.append(number + 1, encode(changed, self._store_parts))
            except OSError as error:
                raise AnswerLostError(error.errno, error.strerror, error.filename) from error
            if is_done:
                return changed
        raise TransientError(problem=f"Dataset {self.dataset_urn!r} of job {self.job!r}: {_TRIES} writers were faster.")

    # -- parts of heads and of bodies
    def _decoded(self, content: bytes, path: str) -> DatasetHead:
        return decode(DatasetHead, content, path, self._load_parts)

    def store_apart(self, body: str) -> str:
        """Store the parts of a sequence's body that are not there yet, and return the body with their names."""
        stored, parts = take_apart(body)
        self._store_parts(parts)
        return stored

    def whole_body(self, stored: str) -> str:
        """Return a stored body with its parts; one of which a part is missing stays as it is, and its digest tells."""
        with suppress(CorruptRecordError):
            return put_together(stored, self._load_parts(part_names([stored])), "Its body")
        return stored

    def _part_of_body(self, name: str) -> str:
        return posixpath.join(self.folder, "parts", name)

    def _store_parts(self, parts: Mapping[str, str]) -> None:
        for name, part in parts.items():
            path = self._part_of_body(name)
            # Asked first, because a part may be large and is mostly there.
            if self.storage.size(path) is None:
                self.storage.put_if_absent(path, part.encode())

    def _load_parts(self, names: Collection[str]) -> dict[str, str]:
        parts = {}
        for name in sorted(names):
            with suppress(FileNotFoundError):
                parts[name] = self.storage.read(self._part_of_body(name)).decode(errors="replace")
        return parts

    def _mend_parts(self) -> bool:
        """Store parts that were deleted or changed again, from their second copies; tell if any were."""
        found = self._load_parts(self.storage.list_names(posixpath.join(self.folder, "parts")))
        mended = mend(found)
        if mended == found:
            return False
        for name, part in found.items():
            if mended.get(name) != part:
                self.storage.delete(self._part_of_body(name))
        self._store_parts(mended)
        return True

    # -- sequences that left the head ----------------------------------------------------------------------------------
    def _archive_path(self, kind: str, sequence_id: str) -> str:
        return posixpath.join(self.folder, kind, f"{DatasetUrn(sequence_id).path_segment}.json")

    def archive(self, entry: SequenceEntry) -> None:
        """Write a sequence that has ended to the archive; do nothing if it is there."""
        unreported = self._archive_path("unreported", entry.sequence.id)
        if entry.is_closed:
            self.storage.put_if_absent(self._archive_path("closed", entry.sequence.id), encode(entry))
            self.storage.delete(unreported)
        else:
            self.storage.put_if_absent(unreported, encode(entry))

    def archived(self, sequence_id: str) -> SequenceEntry | None:
        """Return a sequence of the archive; None if it is not there."""
        # Read "unreported" first: a file is deleted there only after it was written to "closed".
        entries = [self._read(SequenceEntry, self._archive_path(k, sequence_id)) for k in ("unreported", "closed")]
        return entries[1] or entries[0]

    def entries(self, is_ended_too: bool) -> list[SequenceEntry]:
        """Return the newest sequence, and if `is_ended_too` all archived ones."""
        return self._entries("unreported", "closed") if is_ended_too else self._entries()

    def restore(self) -> bool:
        """Write the newest readable head again if the newest head is damaged; the changes since then are undone.

        Damaged parts are written again in any case. Tells if anything was damaged.

        Every change may be interrupted by a crash before it is written, so recovery can go on from any older head.
        """
        is_mended = self._mend_parts()
        try:
            self.head()
        except CorruptRecordError as damage:
            newest = self._log.read_newest()[0]
            for number in range(newest - 1, 0, -1):
                head = self._older_head(number)
                if head is not None:
                    # Raise the epoch by as many grants as the damaged heads may have held, so that old holders are
                    # refused.
                    grown = replace(head, epoch=head.epoch + newest - number, lease=None)
                    if not self._log.append(newest + 1, encode(grown, self._store_parts)):
                        raise TransientError(problem=f"{self.folder} was changed meanwhile.") from damage
                    return True
            raise
        return is_mended

    def _older_head(self, number: int) -> DatasetHead | None:
        try:
            return self._decoded(self.storage.read(self._log.path(number)), self._log.path(number))
        except (CorruptRecordError, FileNotFoundError):
            return None

    def unreported(self) -> list[SequenceEntry]:
        """Return all sequences that are not closed."""
        return [entry for entry in self._entries("unreported") if not entry.is_closed]

    def _entries(self, *kinds: str) -> list[SequenceEntry]:
        # Read the head first: a sequence that is archived meanwhile is then found twice instead of never. And the head
        # counts: a sequence may have been archived for a change that failed.
        try:
            newest = self.head().entry
        except CorruptRecordError:
            newest = None  # loading the state reports the damage; other datasets must not fail because of it
        entries = {entry.sequence.id: entry for entry in self._archived(*kinds)}
        return list(entries.values() if newest is None else {**entries, newest.sequence.id: newest}.values())

    def _archived(self, *kinds: str) -> list[SequenceEntry]:
        names = {name for kind in kinds for name in self.storage.list_names(posixpath.join(self.folder, kind))}
        ids = [DatasetUrn.from_key(name.removesuffix(".json")).value for name in sorted(names)]
        return [entry for entry in map(self.archived, ids) if entry is not None]

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def add_part(self, head: DatasetHead, effect: CommitEffect) -> DatasetHead:
        """Write the files that a commit's snapshot adds and removes as a part, and return a head that names this part.

        The part of snapshot n also holds earlier snapshots, as many as the lowest set bit of n says (6 holds 5 and 6; 8
        holds 1 to 8). So any snapshot is read from about log2(n) parts, and each file is written about log2(n) times.
        """
        if not effect.files and not effect.removed:
            return head
        snapshot = effect.after.snapshot
        span = min(snapshot & -snapshot, _LONGEST_PART)
        added, previous = list(effect.files), head.snapshot_part
        removals = [Removal(path, snapshot) for path in dict.fromkeys(effect.removed)]
        while previous:
            part = self._part(previous)
            if part.snapshot <= snapshot - span:
                break
            added += part.files
            removals += part.removed
            previous = part.previous
        part_here = SnapshotPart(snapshot, tuple(added), previous, tuple(removals))
        content = encode(_with_paths(part_here, self.places.to_stored))
        # The name depends on the content: a repeated commit finds its own part, never the part of a failed attempt.
        name = f"{snapshot:020d}-{hashlib.sha256(content).hexdigest()[:32]}.json"
        self.storage.put_if_absent(self._part_path(name), content)
        return replace(head, snapshot_part=name)

    def files(self, snapshot: int | None) -> list[PublishedFile]:
        """Return the files of a snapshot, in any order; None means the newest snapshot."""
        head = self.head()
        chain = head.state.chain(snapshot) if head.state else ()
        added: list[PublishedFile] = []
        removed: set[str] = set()
        name = head.snapshot_part
        while name:
            part = self._part(name)
            added += [file for file in part.files if _is_on(chain, file.snapshot)]
            removed |= {removal.path for removal in part.removed if _is_on(chain, removal.snapshot)}
            name = part.previous
        return [file for file in added if file.path not in removed]

    def history(self) -> list[FileHistory]:
        """Return every file that any snapshot added, with the snapshots that removed it."""
        added: list[PublishedFile] = []
        removed: dict[str, list[int]] = {}
        name = self.head().snapshot_part
        while name:
            part = self._part(name)
            added += part.files
            for removal in part.removed:
                removed.setdefault(removal.path, []).append(removal.snapshot)
            name = part.previous
        return [FileHistory(file, tuple(sorted(removed.get(file.path, ())))) for file in added]

    def _part_path(self, name: str) -> str:
        return posixpath.join(self.folder, "snapshots", name)

    def _part(self, name: str) -> SnapshotPart:
        part = self._read(SnapshotPart, self._part_path(name))
        if part is None:
            raise CorruptRecordError(what=f"The record {self._part_path(name)}", problem="the file is missing")
        return _with_paths(part, self.places.from_stored)

    def _read(self, cls: type[T], path: str) -> T | None:
        try:
            return decode(cls, self.storage.read(path), path)
        except FileNotFoundError:
            return None


def _with_paths(part: SnapshotPart, convert: Callable[[str], str]) -> SnapshotPart:
    return replace(
        part,
        files=tuple(replace(file, path=convert(file.path)) for file in part.files),
        removed=tuple(replace(removal, path=convert(removal.path)) for removal in part.removed),
    )


def _is_on(chain: Sequence[tuple[int, int]], snapshot: int) -> bool:
    return any(after < snapshot <= upto for after, upto in chain)
