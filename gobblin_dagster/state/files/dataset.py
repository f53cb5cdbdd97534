"""DatasetFiles: the folder of one dataset in a plain-file state store.

    log/<version>.json          the head; its newest version is the truth, the only file that decides anything
    snapshots/<n>-<hash>.json   files of snapshots, named by the head
    unreported/<id>.json        sequences that have ended and left the head, committed but not reported yet
    closed/<id>.json            the others that have ended; where a sequence is in both, this one counts

Everything that a head names is written before it and never changes, so a crash between the two leaves a file that nobody
names.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from gobblin_dagster.core.commit import CommitEffect, FileHistory, PublishedFile
from gobblin_dagster.core.errors import CorruptRecordError, TransientError
from gobblin_dagster.core.serialization import Document
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.state.files.log import VersionLog
from gobblin_dagster.state.files.records import DatasetHead, Removal, SequenceEntry, SnapshotPart, decode, encode

_TRIES = 50
"""Lost races in a row before a change is given up; each means that another writer got on."""
_LONGEST_PART = 1024
"""Snapshots that one part spans at most."""
HeadChange: TypeAlias = Callable[[DatasetHead, int], DatasetHead | None]
"""Makes the next head from the newest one and its own number; None where nothing is to be done."""
T = TypeVar("T", bound=Document)


class AnswerLostError(OSError):
    """Putting a head failed in a way that does not tell whether it took place."""


@dataclass(frozen=True, slots=True)
class DatasetFiles:
    """Reads and changes one dataset; methods raise OSError as the storage does."""

    storage: Storage
    folder: str
    job: str
    dataset_urn: str

    @property
    def _log(self) -> VersionLog:
        return VersionLog(self.storage, posixpath.join(self.folder, "log"))

    def head(self) -> DatasetHead:
        """Return the newest head; an empty one where there is none."""
        return self._numbered_head()[1]

    def _numbered_head(self) -> tuple[int, DatasetHead]:
        number, content = self._log.read_newest()
        if number == 0:
            return 0, DatasetHead(self.job, self.dataset_urn)
        head = decode(DatasetHead, content, self._log.path(number))
        if (head.job, head.dataset_urn) != (self.job, self.dataset_urn):
            problem = f"it belongs to dataset {head.dataset_urn!r} of job {head.job!r}"
            raise CorruptRecordError(what=f"The record {self._log.path(number)}", problem=problem)
        return number, head

    def change(self, apply: HeadChange) -> DatasetHead:
        """Put the head that `apply` makes of the newest one and of the number to come; the transaction.

        `apply` runs again on the new head where another writer was faster. It may write what the next head names.

        Returns:
            The head that was put; the newest one where `apply` returned None, which means that nothing is to be done.

        Raises:
            AnswerLostError: whether the head was put is not known.
            TransientError: others were faster each time.
        """
        for _ in range(_TRIES):
            number, head = self._numbered_head()
            changed = apply(head, number + 1)
            if changed is None:
                return head
            try:
                is_done = self._log.append(number + 1, encode(changed))
            except OSError as error:
                raise AnswerLostError(error.errno, error.strerror, error.filename) from error
            if is_done:
                return changed
        raise TransientError(problem=f"Dataset {self.dataset_urn!r} of job {self.job!r}: {_TRIES} writers were faster.")

    # -- sequences that left the head ----------------------------------------------------------------------------------
    def _archive_path(self, kind: str, sequence_id: str) -> str:
        return posixpath.join(self.folder, kind, f"{DatasetUrn(sequence_id).path_segment}.json")

    def archive(self, entry: SequenceEntry) -> None:
        """Keep a sequence that has ended; fine where it is kept already."""
        unreported = self._archive_path("unreported", entry.sequence.id)
        if entry.is_closed:
            self.storage.put_if_absent(self._archive_path("closed", entry.sequence.id), encode(entry))
            self.storage.delete(unreported)
        else:
            self.storage.put_if_absent(unreported, encode(entry))

    def archived(self, sequence_id: str) -> SequenceEntry | None:
        """Return a sequence of the archive."""
        # In this order: what is deleted from the first was put into the second before.
        entries = [self._read(SequenceEntry, self._archive_path(k, sequence_id)) for k in ("unreported", "closed")]
        return entries[1] or entries[0]

    def entries(self, is_ended_too: bool) -> list[SequenceEntry]:
        """Return the newest sequence, and all older ones where asked."""
        return self._entries("unreported", "closed") if is_ended_too else self._entries()

    def restore(self) -> None:
        """Put the newest head that can be read in the place of a damaged one, as if the changes since had not come about.

        Each change may be interrupted before it takes place, so whatever follows such a head is made good as after a crash.
        """
        try:
            self.head()
        except CorruptRecordError as damage:
            newest = self._log.read_newest()[0]
            for number in range(newest - 1, 0, -1):
                head = self._older_head(number)
                if head is not None:
                    # The epoch grows by all that may have been granted since: whoever held it then is fenced off.
                    grown = replace(head, epoch=head.epoch + newest - number, lease=None)
                    if not self._log.append(newest + 1, encode(grown)):
                        raise TransientError(problem=f"{self.folder} was changed meanwhile.") from damage
                    return
            raise

    def _older_head(self, number: int) -> DatasetHead | None:
        try:
            return decode(DatasetHead, self.storage.read(self._log.path(number)), self._log.path(number))
        except (CorruptRecordError, FileNotFoundError):
            return None

    def unreported(self) -> list[SequenceEntry]:
        """Return all sequences that are not closed."""
        return [entry for entry in self._entries("unreported") if not entry.is_closed]

    def _entries(self, *kinds: str) -> list[SequenceEntry]:
        # The head first: what leaves it meanwhile is then seen twice, where the other way round it is never seen. And
        # the head counts: what was archived for a change that failed is still in it.
        try:
            newest = self.head().entry
        except CorruptRecordError:
            newest = None  # it is told with the state; no other dataset must wait for it
        entries = {entry.sequence.id: entry for entry in self._archived(*kinds)}
        return list(entries.values() if newest is None else {**entries, newest.sequence.id: newest}.values())

    def _archived(self, *kinds: str) -> list[SequenceEntry]:
        names = {name for kind in kinds for name in self.storage.list_names(posixpath.join(self.folder, kind))}
        ids = [DatasetUrn.from_key(name.removesuffix(".json")).value for name in sorted(names)]
        return [entry for entry in map(self.archived, ids) if entry is not None]

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def add_part(self, head: DatasetHead, effect: CommitEffect) -> DatasetHead:
        """Write what a commit's snapshot adds and removes, and return a head that names it.

        Snapshot n is written together with as many before it as the lowest set bit of n says (6 with 5; 8 with 1 to 7),
        so that any snapshot is read from about log2(n) parts and each file is written about log2(n) times in all.
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
        content = encode(SnapshotPart(snapshot, tuple(added), previous, tuple(removals)))
        # Named by its content: a repeated commit finds its own file, never that of an attempt that came to nothing.
        name = f"{snapshot:020d}-{hashlib.sha256(content).hexdigest()[:32]}.json"
        self.storage.put_if_absent(self._part_path(name), content)
        return replace(head, snapshot_part=name)

    def files(self, snapshot: int | None) -> list[PublishedFile]:
        """Return the files of a snapshot, or of the newest, in any order."""
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
        return part

    def _read(self, cls: type[T], path: str) -> T | None:
        try:
            return decode(cls, self.storage.read(path), path)
        except FileNotFoundError:
            return None


def _is_on(chain: Sequence[tuple[int, int]], snapshot: int) -> bool:
    return any(after < snapshot <= upto for after, upto in chain)
