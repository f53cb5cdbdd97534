"""DatasetFiles: the folder of one dataset in a plain-file state store.

    log/<version>.json          the head; only its newest version counts
    parts/<hash>                long texts that heads and bodies of sequences have in common, named by them; after
                                sequences were pruned in the folder that the head names, as `parts-<version>`
    snapshots/<n>-<hash>.json   files of snapshots; the head names the newest of these parts
    unreported/<id>.json        archived sequences that are committed but not reported yet
    closed/<id>.json            all other archived sequences; if a sequence is in both folders, this file counts

All files that a head names are written before the head and never change. A crash in between leaves a file that no head
names, which does no harm.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
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
from gobblin_dagster.state.store import damaged_files

log = logging.getLogger(__name__)

_TRIES = 50
"""How often a change is tried if other writers are faster each time."""
_ARCHIVES = ("unreported", "closed")
_PARTS = re.compile(r"parts(-\d{20})?")
_LONGEST_PART = 1024
"""The most snapshots in one part."""
HeadChange: TypeAlias = Callable[[DatasetHead, int], DatasetHead | None]
"""Returns the next head, given the newest one and the next version number; None if nothing has to be written."""
HeadOfDamage: TypeAlias = Callable[[CorruptRecordError], DatasetHead]
"""Returns what is taken for a head that cannot be read."""
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

    def pruned_below(self) -> int:
        """Return `DatasetHead.pruned_below` of the newest head; 0 if that is damaged."""
        with suppress(CorruptRecordError):
            return self.head().pruned_below
        return 0

    def _numbered_head(self, if_damaged: HeadOfDamage | None = None) -> tuple[int, DatasetHead]:
        number, content = self._log.read_newest()
        if number == 0:
            return 0, DatasetHead(self.job, self.dataset_urn)
        try:
            return number, self._own_head(content, self._log.path(number))
        except CorruptRecordError as error:
            if if_damaged is None:
                raise
            return number, if_damaged(error)

    def _own_head(self, content: bytes, path: str) -> DatasetHead:
        head = self._decoded(content, path)
        if (head.job, head.dataset_urn) != (self.job, self.dataset_urn):
            problem = f"it belongs to dataset {head.dataset_urn!r} of job {head.job!r}"
            if (head.job.casefold(), head.dataset_urn.casefold()) == (self.job.casefold(), self.dataset_urn.casefold()):
                problem += (
                    ", because names that differ in case only are one in this folder: rename one of them, or keep the "
                    "state in SQLite or PostgreSQL"
                )
            raise CorruptRecordError(what=f"The record {path}", problem=problem)
        return head

    def stranger(self) -> tuple[str, str, CorruptRecordError] | None:
        """Return job and dataset.urn of the newest head if they are not ours, and an error that says so."""
        number, content = self._log.read_newest()
        if number == 0:
            return None
        path = self._log.path(number)
        try:
            head = self._decoded(content, path)
        except CorruptRecordError:
            return None
        if (head.job, head.dataset_urn) == (self.job, self.dataset_urn):
            return None
        problem = (
            f"it belongs to dataset {head.dataset_urn!r} of job {head.job!r}: another program moved it, and rows of "
            "that dataset may be published. Move its folder back, or restore the state store"
        )
        return head.job, head.dataset_urn, CorruptRecordError(what=f"The record {path}", problem=problem)

    def change(self, apply: HeadChange, if_damaged: HeadOfDamage | None = None) -> DatasetHead:
        """Write the head that `apply` returns for the newest head; this is one transaction.

        If another writer is faster, `apply` is called again with the new head. It may write files that its head names.

        Args:
            apply: see `HeadChange`.
            if_damaged: returns what is taken for the newest head where that cannot be read; by default it is an error.

        Returns:
            The head that was written; the newest head if `apply` returned None.

        Raises:
            AnswerLostError: it is not known whether the head was written.
            TransientError: other writers were faster each time.
        """
        for _ in range(_TRIES):
            number, head = self._numbered_head(if_damaged)
            changed = apply(head, number + 1)
            if changed is None:
                return head
            content = self._encoded(changed)
            try:
                is_done = self._log.append(number + 1, content)
            except OSError as error:
                raise AnswerLostError(error.errno, error.strerror, error.filename) from error
            if is_done:
                return changed
        raise TransientError(problem=f"Dataset {self.dataset_urn!r} of job {self.job!r}: {_TRIES} writers were faster.")

    # -- parts of heads and of bodies
    def _decoded(self, content: bytes, path: str) -> DatasetHead:
        return decode(DatasetHead, content, path, self._load_parts, DatasetHead.older_formats)

    def _encoded(self, head: DatasetHead) -> bytes:
        return encode(head, partial(self._store_parts, head.parts_folder))

    def store_apart(self, head: DatasetHead, body: str) -> str:
        """Store the parts of a sequence's body that are not there yet, and return the body with their names."""
        stored, parts = take_apart(body)
        self._store_parts(head.parts_folder, parts)
        return stored

    def whole_body(self, stored: str) -> str:
        """Return a stored body with its parts; if a part is missing, it stays as it is, and its digest tells."""
        with suppress(CorruptRecordError):
            return put_together(stored, self._load_parts(part_names([stored])), "Its body")
        return stored

    def _parts_folders(self) -> list[str]:
        """Return the names of all folders with parts, the newest first."""
        return sorted((n for n in self.storage.list_names(self.folder) if _PARTS.fullmatch(n)), reverse=True)

    def _part_of_body(self, folder: str, name: str) -> str:
        return posixpath.join(self.folder, folder, name)

    def _store_parts(self, folder: str, parts: Mapping[str, str]) -> None:
        for name, part in parts.items():
            path = self._part_of_body(folder, name)
            # Asked first, because a part may be large and is mostly there.
            if self.storage.size(path) is None:
                try:
                    self.storage.put_if_absent(path, part.encode())
                except FileNotFoundError:
                    # Pruning deletes the folder, because the newest head names another one: the writer will be refused
                    # and try again with that.
                    self.storage.put_if_absent(path, part.encode())

    def _load_parts(self, names: Collection[str]) -> dict[str, str]:
        parts: dict[str, str] = {}
        # Twice, because pruning may copy them to another folder and delete the folder that was listed.
        for _ in range(2):
            missing = sorted({*names} - parts.keys())
            for folder in self._parts_folders() if missing else ():
                for name in missing:
                    with suppress(FileNotFoundError):
                        parts[name] = self.storage.read(self._part_of_body(folder, name)).decode(errors="replace")
        return parts

    def _all_parts(self) -> dict[str, str]:
        folders = [posixpath.join(self.folder, name) for name in self._parts_folders()]
        return self._load_parts({name for folder in folders for name in self.storage.list_names(folder)})

    def _mend_parts(self) -> bool:
        """Store parts that were deleted or changed again, from their second copies; tell if any were."""
        found = self._all_parts()
        mended = mend(found)
        if mended == found:
            return False
        # In each folder, because the head that names one of them may be damaged too.
        for folder in self._parts_folders():
            for name, part in found.items():
                if mended.get(name) != part:
                    self.storage.delete(self._part_of_body(folder, name))
            self._store_parts(folder, mended)
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

    def archived(self, head: DatasetHead, sequence_id: str) -> SequenceEntry | None:
        """Return a sequence of the archive; None if it is not there, or was pruned."""
        entry = self._in_archive(sequence_id)
        return None if entry is None or _is_pruned(entry, head) else entry

    def _in_archive(self, sequence_id: str) -> SequenceEntry | None:
        # Read "unreported" first: a file is deleted there only after it was written to "closed".
        paths = [self._archive_path(kind, sequence_id) for kind in _ARCHIVES]
        entries = [self._read(SequenceEntry, path) for path in paths]
        for path, entry in zip(paths, entries, strict=True):
            one = None if entry is None else entry.sequence
            if one is not None and (one.id, one.job, one.dataset_urn) != (sequence_id, self.job, self.dataset_urn):
                problem = f"it belongs to dataset {one.dataset_urn!r} of job {one.job!r}, as {one.id}"
                raise CorruptRecordError(what=f"The record {path}", problem=problem)
        return entries[1] or entries[0]

    def entries(self, is_ended_too: bool) -> list[SequenceEntry]:
        """Return the newest sequence, and if `is_ended_too` all archived ones."""
        return self._entries(*_ARCHIVES) if is_ended_too else self._entries()

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
                    # In a new folder, because the one that an older head names may be about to be deleted.
                    folder = _parts_folder(newest + 1)
                    self._store_parts(folder, self._all_parts())
                    grown = replace(head, epoch=head.epoch + newest - number, lease=None, parts_folder=folder)
                    if not self._log.append(newest + 1, self._encoded(grown)):
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
            head = self.head()
        except CorruptRecordError:
            # Loading the state reports the damage; other datasets must not fail because of it.
            head = DatasetHead(self.job, self.dataset_urn)
        return self._entries_of(head, *kinds)

    def _entries_of(self, head: DatasetHead, *kinds: str) -> list[SequenceEntry]:
        found = (entry for entry in self._archived(*kinds) if not _is_pruned(entry, head))
        entries = {entry.sequence.id: entry for entry in found}
        if head.entry is not None:
            entries[head.entry.sequence.id] = head.entry
        return list(entries.values())

    def _archived(self, *kinds: str) -> list[SequenceEntry]:
        entries = []
        for sequence_id in self._archived_ids(*kinds):
            try:
                entries.append(self._in_archive(sequence_id))
            except CorruptRecordError as error:
                # Its commit has ended. Whoever needs it misses it, for this dataset alone.
                log.warning("An ended commit sequence is left out: %s", error)
        return [entry for entry in entries if entry is not None]

    def _archived_ids(self, *kinds: str) -> list[str]:
        names = {name for kind in kinds for name in self.storage.list_names(posixpath.join(self.folder, kind))}
        return [DatasetUrn.from_key(name.removesuffix(".json")).value for name in sorted(names)]

    # -- pruning -------------------------------------------------------------------------------------------------------
    def prune(self, below: int, stored_body: Callable[[str], str]) -> DatasetHead:
        """Make archived sequences before the newest commit and before `below` vanish; return the head without them.

        The parts of what stays are copied to a new folder before the head names it. So no writer can begin to use a
        part of the old folder, which is deleted afterwards.

        Args:
            below: archived sequences with a lower `version_read` vanish.
            stored_body: returns the body of a sequence as it is stored, by id.
        """

        def pruned(head: DatasetHead, number: int) -> DatasetHead | None:
            limit = min(below, head.version - 1)
            if limit <= head.pruned_below:
                return None
            after = replace(head, pruned_below=limit)
            if not self._parts_folders():
                return after
            ended = {entry.sequence.id for entry in self._archived(*_ARCHIVES) if _is_pruned(entry, after)}
            ours = {head.entry.sequence.id} if head.entry is not None else set()
            # Of damaged entries too, which a backup may bring back.
            kept = [stored_body(one) for one in {*self._archived_ids(*_ARCHIVES), *ours} - ended]
            # `restore` may have to go back to any head that is still there.
            heads = (content.decode(errors="replace") for content in self._log.read_all())
            folder = _parts_folder(number)
            self._store_parts(folder, self._load_parts(part_names([*kept, *heads])))
            return replace(after, parts_folder=folder)

        return self.change(pruned)

    def vanished(self, head: DatasetHead) -> list[str]:
        """Return the ids of sequences that were pruned, and still have files."""
        return [e.sequence.id for e in self._archived(*_ARCHIVES) if _is_pruned(e, head)]

    def forget(self, sequence_id: str) -> None:
        """Delete a sequence from the archive."""
        for kind in _ARCHIVES:
            self.storage.delete(self._archive_path(kind, sequence_id))

    def forget_parts(self, head: DatasetHead) -> None:
        """Delete the folders of parts that came before that of the head.

        A run that read an older head may be writing to one of them still; its change is in vain, and the next call
        deletes the folder.
        """
        for name in self._parts_folders():
            if name < head.parts_folder:
                try:
                    self.storage.delete_tree(posixpath.join(self.folder, name))
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise

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
        return self._with_part(head, SnapshotPart(snapshot, tuple(added), previous, tuple(removals)))

    def add_base(self, head: DatasetHead, snapshot: int, history: Sequence[FileHistory]) -> DatasetHead:
        """Write the files of all snapshots up to this number as the first part, and return a head that names it."""
        if not history:
            return head
        removed = tuple(Removal(one.file.path, number) for one in history for number in one.removed)
        return self._with_part(head, SnapshotPart(snapshot, tuple(one.file for one in history), removed=removed))

    def _with_part(self, head: DatasetHead, part: SnapshotPart) -> DatasetHead:
        content = encode(_with_paths(part, self.places.to_stored))
        # The name depends on the content: a repeated commit finds its own part, never the part of a failed attempt.
        name = _part_name(content, part.snapshot)
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
        path = self._part_path(name)
        try:
            content = self.storage.read(path)
            if _part_name(content, int(name[:20])) != name:
                raise CorruptRecordError(what=f"The record {path}", problem="its content does not match its name")
            return _with_paths(decode(SnapshotPart, content, path), self.places.from_stored)
        except FileNotFoundError as error:
            raise damaged_files(f"The record {path}", "the file is missing") from error
        except CorruptRecordError as error:
            raise damaged_files(f"The record {path}", error.problem) from error

    def _read(self, cls: type[T], path: str) -> T | None:
        try:
            return decode(cls, self.storage.read(path), path)
        except FileNotFoundError:
            return None


def _is_pruned(entry: SequenceEntry, head: DatasetHead) -> bool:
    return entry.sequence.version_read < head.pruned_below


def _part_name(content: bytes, snapshot: int) -> str:
    return f"{snapshot:020d}-{hashlib.sha256(content).hexdigest()[:32]}.json"


def _parts_folder(number: int) -> str:
    """Return the name of the folder that the head with this number begins to use."""
    return f"parts-{number:020d}"


def _with_paths(part: SnapshotPart, convert: Callable[[str], str]) -> SnapshotPart:
    return replace(
        part,
        files=tuple(replace(file, path=convert(file.path)) for file in part.files),
        removed=tuple(replace(removal, path=convert(removal.path)) for removal in part.removed),
    )


def _is_on(chain: Sequence[tuple[int, int]], snapshot: int) -> bool:
    return any(after < snapshot <= upto for after, upto in chain)
