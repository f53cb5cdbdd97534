"""List the files that match a path pattern; visit only folders that can contain a match.

Listing is the whole cost of an idle run over thousands of datasets, so each folder is scanned once, and only files that
match are looked at.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.storage.checksums import scan_with_checksums
from gobblin_dagster.storage.file_facts import RemoteEntry, local_facts
from gobblin_dagster.storage.remote import remote_files

MAX_EXAMPLES = 5
_MARKS = ("_SUCCESS", "_temporary", "_gobblin")  # the last one holds manifests and staged files of an output
_STAGING = (".spark-staging", ".hive-staging")


def _is_of_writers(name: str) -> bool:
    """Return True for names that Hadoop, Spark, Hive or this package give to unfinished files and markers."""
    is_checksum = name.startswith(".") and name.endswith(".crc")  # Hadoop's own, of a file beside it
    return name in _MARKS or name.startswith(_STAGING) or name.endswith("._COPYING_") or is_checksum


class FoundFile(NamedTuple):
    """A file that matches the pattern, with the date in its path."""

    start: datetime
    """Beginning of its date; NO_DATE if the pattern has none."""
    path: str
    """Absolute path, or a URL."""
    size_bytes: int
    changed_at: float
    """When it changed last or came here, whichever is later, in seconds since the epoch, by its file system's clock."""
    modified_us: int = 0
    """When it changed last, here or at its origin, in microseconds since the epoch."""
    checksum: str = ""
    """As `storage.checksums` writes them; empty if none was computed."""


def printable(text: str) -> str:
    """Return a name in a form that terminals and stores can hold."""
    return text if text.isprintable() else ascii(text)[1:-1]


@dataclass(slots=True)
class Examples:
    """A count, with the first few names that were counted."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more name."""
        self.count += 1
        if len(self.first) < MAX_EXAMPLES:
            self.first.append(printable(name))

    def __str__(self) -> str:
        left = self.count - len(self.first)
        return ", ".join(self.first) + (f" and {left:,} more" if left else "")


@dataclass(slots=True)
class Listing:
    """Result of a walk, by dataset urn; the key None holds what belongs to no dataset."""

    files: dict[str, list[FoundFile]] = field(default_factory=lambda: defaultdict(list))
    """In order of their dates."""
    undated: dict[str | None, Examples] = field(default_factory=lambda: defaultdict(Examples))
    """Paths that match the pattern except for their date."""
    skipped: dict[str | None, Examples] = field(default_factory=lambda: defaultdict(Examples))
    """Links that are broken or not followed, and entries that are no regular files."""
    problems: dict[str | None, str] = field(default_factory=dict)
    """Why a dataset's folders could not be listed."""
    others: Examples = field(default_factory=Examples)
    """Files that do not match."""
    strange: dict[str, str] = field(default_factory=dict)
    """A path in a dataset's folder that does not match, for each dataset that has one."""
    has_unselected: bool = False
    """Whether datasets were found that are not selected."""


class Entry(Protocol):
    """A name in a folder; `os.DirEntry` implements it."""

    @property
    def name(self) -> str:
        """Its last name."""

    @property
    def path(self) -> str:
        """Its path, beginning with the path of the scanned folder."""

    def is_dir(self) -> bool:
        """Return True for a folder or a link to one."""

    def is_symlink(self) -> bool:
        """Return True for a link."""


Facts: TypeAlias = tuple[int, float, int, str]
"""Size, `changed_at`, `modified_us` and checksum, as in `FoundFile`."""


class Folders(Protocol):
    """The part of a file system that listing needs."""

    def scan(self, path: str) -> Iterable[Entry]:
        """Return the names in a folder; raises OSError."""

    def facts(self, entry: Any) -> Facts | None:
        """Return size, times and checksum of a file; None if it is no regular file; raises OSError."""


class LocalFolders:
    """Folders of this machine."""

    def scan(self, path: str) -> Iterable[Entry]:
        with os.scandir(path) as entries:
            return list(entries)

    def facts(self, entry: Any) -> Facts | None:
        found = entry.stat()
        facts = local_facts(found)
        # A file moved or copied here keeps its mtime, old or in the future; its ctime is when it came or changed.
        return (facts.size_bytes, found.st_ctime, facts.modified_us, "") if facts else None


class RemoteFolders:
    """Folders of a remote file system, by URL; with the checksums of its listings if `checksums` is set."""

    def __init__(self, url: str, *, checksums: bool = False) -> None:
        self._scan = scan_with_checksums if checksums else remote_files(url).scan

    def scan(self, path: str) -> Iterable[Entry]:
        return self._scan(path)

    def facts(self, entry: RemoteEntry) -> Facts | None:
        if entry.facts is None:
            return None
        size_bytes, modified_us, checksum = entry.facts
        return size_bytes, modified_us / 1_000_000, modified_us, checksum


class _State(NamedTuple):
    """The part of the pattern that a path has matched."""

    level: int
    dataset: str | None
    """None until a level names the dataset; if the pattern has none, the job's only dataset from the start."""
    dates: tuple[str, ...]
    is_dated: bool
    """Whether each level so far that contains a part of the date has digits there."""


class Walk:
    """One walk through the folders of a pattern."""

    def __init__(
        self, pattern: PathPattern, root: str, folders: Folders, is_selected: Callable[[str], bool], default_urn: str
    ) -> None:
        self._pattern, self._root, self._folders, self._is_selected = pattern, root, folders, is_selected
        self._levels = pattern.below_root()
        self._selected: dict[str, bool] = {}
        self._last = len(self._levels) - 1
        self._default_urn = None if pattern.has_dataset else default_urn
        self._dates: dict[str, datetime | None] = {}
        self._found = Listing()

    def run(self) -> Listing:
        """List all matching files; raises OSError if the root itself cannot be listed."""
        if self._default_urn is not None and not self._is_selected(self._default_urn):
            self._found.has_unselected = True
            return self._found
        self._visit(self._folders.scan(self._root), self._with_none(_State(0, self._default_urn, (), True)))
        for files in self._found.files.values():
            files.sort()
        return self._found

    def _visit(self, entries: Iterable[Entry], states: list[_State]) -> None:
        for entry in entries:
            if _is_of_writers(entry.name):
                continue
            try:
                is_dir = entry.is_dir()
            except OSError:
                # A link to itself is no folder. If a file is expected there, `_take` reports it.
                is_dir = False
            inner: list[_State] = []
            for state in states:
                # If a file is expected here, a folder can still be part of a deeper urn; then another state follows it.
                is_out_of_place = (state.level == self._last) is is_dir
                following = [] if is_out_of_place else self._step(state, entry)
                if not following and state.dataset is not None and not entry.name.startswith("."):
                    self._found.strange.setdefault(state.dataset, entry.path)
                if is_out_of_place:
                    if not is_dir and entry.is_symlink():
                        self._note_lost(state, entry)
                    continue
                if is_dir:
                    inner += following
                elif following:
                    self._take(following[0], entry)
                else:
                    self._found.others.add(entry.path)
            if inner:
                self._enter(entry, inner)
            elif is_dir and "." in entry.name.strip("."):
                self._note_folder(states, entry)

    def _with_none(self, state: _State) -> list[_State]:
        """Return a state, and the one behind `**` if that comes next, as it matches no folder at all too."""
        is_deep = state.level <= self._last and self._levels[state.level].is_deep
        return [state, state._replace(level=state.level + 1)] if is_deep else [state]

    def _step(self, state: _State, entry: Entry) -> list[_State]:
        """Return the states after one more name; none if the name does not match."""
        level = self._levels[state.level]
        match = level.strict.fullmatch(entry.name)
        is_dated = state.is_dated and match is not None
        if match is None and level.loose is not None:
            match = level.loose.fullmatch(entry.name)
        if match is None:
            return []
        captured = match.groupdict()
        dates = (*state.dates, captured["date"]) if "date" in captured else state.dates
        if level.is_tree:
            dataset = entry.name if state.dataset is None else f"{state.dataset}/{entry.name}"
            # The urn may end here or continue in the next folder: one walk follows both.
            return [_State(state.level, dataset, dates, is_dated), _State(state.level + 1, dataset, dates, is_dated)]
        if level.is_deep:
            return self._with_none(state)
        if "dataset" not in captured:
            return self._with_none(_State(state.level + 1, state.dataset, dates, is_dated))
        if not self._wants(captured["dataset"]):
            self._found.has_unselected = True
            return []
        return self._with_none(_State(state.level + 1, captured["dataset"], dates, is_dated))

    def _enter(self, entry: Entry, states: list[_State]) -> None:
        owner = states[-1].dataset
        levels = [self._levels[state.level] for state in states]
        if entry.is_symlink() and any(level.is_tree or level.is_deep for level in levels):
            # Below them, a link to a folder may lead back into the tree, without end.
            mark = "{dataset:**}" if any(level.is_tree for level in levels) else "**"
            self._found.skipped[owner if mark == "**" else None].add(
                f"{entry.path} (a link to a folder, not followed below {mark})"
            )
            return
        dated = [state for state in states if state.is_dated]
        if not dated:
            self._found.undated[owner].add(entry.path)
            return
        try:
            self._visit(self._folders.scan(entry.path), dated)
        except FileNotFoundError:
            self._found.skipped[owner].add(f"{entry.path} (gone meanwhile)")
        except OSError as error:
            self._found.problems[owner] = f"cannot list {entry.path}: {error.strerror or error}"

    def _note_folder(self, states: Iterable[_State], entry: Entry) -> None:
        """Note a folder named as a file of the pattern: Spark writes `orders.csv/part-0.csv`."""
        at_files = (state for state in states if state.level == self._last)
        for state in (found for one in at_files for found in self._step(one, entry)):
            self._found.skipped[state.dataset].add(f"{entry.path} (a folder where `path` has a file)")

    def _note_lost(self, state: _State, entry: Entry) -> None:
        """Note a link to no folder where the pattern has one: files behind it would be read."""
        level = self._levels[state.level]
        if level.is_tree or level.is_deep or entry.name.startswith("."):
            return  # links are not followed there; Emacs marks a file that is being edited by such a link
        following = self._step(state, entry)
        if not following:
            return
        owner = following[0].dataset
        try:
            self._folders.facts(entry)
        except FileNotFoundError:
            self._found.skipped[owner].add(f"{entry.path} (a link that leads nowhere, or gone meanwhile)")
        except OSError as error:
            self._found.problems[owner] = f"cannot list {entry.path}: {error.strerror or error}"

    def _take(self, state: _State, entry: Entry) -> None:
        """Add a file whose whole path matches to the result."""
        dataset = state.dataset
        if dataset is None or not self._wants(dataset):
            self._found.has_unselected = True
            return
        start = self._date("/".join(state.dates)) if state.is_dated else None
        if start is None:
            self._found.undated[dataset].add(entry.path)
            return
        try:
            entry.path.encode()
            facts = self._folders.facts(entry)
        except UnicodeEncodeError:
            self._found.problems[dataset] = f"the file name {entry.path!a} is no valid UTF-8; rename the file"
        except FileNotFoundError:
            self._found.skipped[dataset].add(f"{entry.path} (a link that leads nowhere, or gone meanwhile)")
        except OSError as error:
            self._found.problems[dataset] = f"cannot read the size and time of {entry.path}: {error.strerror or error}"
        else:
            if facts is None:
                self._found.skipped[dataset].add(f"{entry.path} (no regular file)")
            else:
                self._found.files[dataset].append(FoundFile(start, entry.path, *facts))

    def _wants(self, dataset: str) -> bool:
        """Return True if a dataset is selected; the answer is kept, because each file of the dataset needs it."""
        if dataset not in self._selected:
            self._selected[dataset] = self._is_selected(dataset)
        return self._selected[dataset]

    def _date(self, text: str) -> datetime | None:
        """Return the beginning of a date; it is kept, because datasets share dates."""
        if text not in self._dates:
            try:
                self._dates[text] = self._pattern.start_of(text)
            except ValueError:
                self._dates[text] = None
        return self._dates[text]
