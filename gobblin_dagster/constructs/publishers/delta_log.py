"""Look into the log of a Delta table for what its library passes over, or tells without the name of the file.

Readers take a version file without content for a version that changed nothing: its rows are gone, and a checkpoint
that is made afterwards makes that final.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from gobblin_dagster.core.constructs import HeldFile
from gobblin_dagster.core.utils.optional_packages import optional_package

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:.*\.)?(?:parquet|json)$")
_HINT = "_last_checkpoint"
_SHORTEST_BYTES = len('{"a":{}}')
"""A version file that is shorter holds no action."""
_READ_VERSIONS = 200
"""Version files that are read to find one that cannot be; writers make a checkpoint each 10 or 100 versions."""


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The files of a table's log as they were listed once."""

    location: str
    """The table's folder."""
    files: fs.FileSystem
    """Has the table's folder as root."""
    sizes: Mapping[str, int]
    """Bytes by file name."""

    @classmethod
    def listed(cls, location: str, options: Mapping[str, str]) -> Self:
        """List the log of a table; `options` hold its secrets too. Raises OSError, DeltaError."""
        with optional_package("deltalake"):
            from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415  # optional package

        files = fs.PyFileSystem(DeltaStorageHandler(location, dict(options) or None))
        found = files.get_file_info(fs.FileSelector("_delta_log"))
        sizes = {one.base_name: one.size or 0 for one in found if one.type == fs.FileType.File}
        return cls(location, files, sizes)

    def emptied(self) -> str:
        """Say which version file is empty, and what to do; empty if none is."""
        for name in sorted(self.sizes):
            if _VERSION.fullmatch(name) and self.sizes[name] < _SHORTEST_BYTES:
                newest = self._first_needed() - 1
                unless = f", unless checkpoint {newest} was made before that" if int(name[:20]) <= newest else ""
                return self._lost(name, f"has {self.sizes[name]} bytes: what it changed is lost{unless}")
        return ""

    def fault(self) -> str:
        """Say which file of a log that cannot be read is at fault, and what to do; empty if none is found."""
        return self.emptied() or self._unreadable_checkpoint() or self._gap() or self._unreadable_version()

    def data_files(self, table: Any) -> Iterator[HeldFile]:
        """Yield the data files of the newest state of a table; those of other tables (shallow clones) are left out.

        Raises OSError, DeltaError.
        """
        found = self.files.get_file_info(fs.FileSelector("", recursive=True))
        sizes = {one.path: one.size for one in found if one.type == fs.FileType.File}
        actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
        for action in actions:
            if "://" not in action["path"]:
                path = unquote(action["path"])
                yield HeldFile(f"{self.location}/{path}", action["size_bytes"], sizes.get(path))

    def applications(self) -> Iterator[str]:
        """Yield the ids of applications in the newest checkpoint, which may be several files. Raises OSError."""
        checkpoints = self._checkpoints()
        for name in checkpoints[max(checkpoints)] if checkpoints else ():
            if name.endswith(".json"):
                entries: Iterator[Any] = (one.get("txn") for one in self._entries(name))
            else:
                read = pq.read_table(f"_delta_log/{name}", columns=["txn"], filesystem=self.files)
                entries = iter(read["txn"].to_pylist())
            yield from (one["appId"] for one in entries if one is not None)

    def _checkpoints(self, without: Collection[str] = ()) -> dict[int, list[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        for name, size in self.sizes.items():
            if size and name not in without and (match := _CHECKPOINT.match(name)):
                found[int(match[1])].append(name)
        return found

    def _versions(self) -> list[int]:
        return sorted(int(match[1]) for match in map(_VERSION.fullmatch, self.sizes) if match)

    def _first_needed(self, without: Collection[str] = ()) -> int:
        """Return the oldest version that readers need, who begin at the newest checkpoint."""
        return max(self._checkpoints(without), default=-1) + 1

    def _gap(self, without: Collection[str] = ()) -> str:
        needed, there = self._first_needed(without), self._versions()
        steps = pairwise([needed - 1, *(one for one in there if one >= needed)])
        lacking = next((before + 1 for before, after in steps if after != before + 1), None)
        if lacking is None:
            return ""
        return f"{_name_of(lacking)} of its log is missing; bring it back from a copy of the table"

    def _unreadable_checkpoint(self) -> str:
        checkpoints = self._checkpoints()
        cut = [name for name in checkpoints[max(checkpoints)] if not self._opens(name)] if checkpoints else []
        if cut:
            return self._useless(cut, f"{cut[0]} of its log cannot be read")
        hinted = self._hinted()
        if hinted is not None and hinted > max(checkpoints, default=-1):
            return self._useless([], f"{_HINT} of its log names checkpoint {hinted}, which is not there")
        return ""

    def _useless(self, cut: Collection[str], problem: str) -> str:
        """Say of a checkpoint that readers cannot use whether the log is whole without it."""
        copy = "bring the checkpoint back from a copy of the table"
        if self._gap(cut):
            return f"{problem}; {copy}, because versions that it replaced are gone"
        return f"{problem}; {copy}, or delete {' and '.join([*cut, _HINT])}: the log is whole without"

    def _hinted(self) -> int | None:
        try:
            found = json.loads(self._content(_HINT)) if _HINT in self.sizes else None
        except ValueError:
            return None  # readers go on without it
        version = found.get("version") if isinstance(found, dict) else None
        return version if isinstance(version, int) else None

    def _opens(self, name: str) -> bool:
        try:
            if name.endswith(".json"):
                return all(isinstance(one, dict) for one in self._entries(name))
            with self.files.open_input_file(f"_delta_log/{name}") as file:
                pq.read_metadata(file)
        except (ValueError, OSError, pa.ArrowException):
            return False
        return True

    def _unreadable_version(self) -> str:
        needed = self._first_needed()
        for version in [one for one in self._versions() if one >= needed][-_READ_VERSIONS:]:
            try:
                found = [*self._entries(_name_of(version))]
            except (ValueError, OSError) as error:
                return self._lost(_name_of(version), f"cannot be read ({str(error)[:100]})")
            if not all(isinstance(one, dict) for one in found):
                return self._lost(_name_of(version), "cannot be read")
        return ""

    def _entries(self, name: str) -> Iterator[Any]:
        return (json.loads(line) for line in self._content(name).splitlines() if line.strip())

    def _content(self, name: str) -> bytes:
        with self.files.open_input_file(f"_delta_log/{name}") as file:
            content: bytes = file.read()
            return content

    def _lost(self, name: str, problem: str) -> str:
        found = f"{name} of its log {problem}; bring the file back from a copy of the table"
        if not int(name[:20]):
            return found  # no table is without its first version
        given_up = '`{"commitInfo":{}}` into it, which gives up what it changed'
        return (
            f"{found}. If there is none, write {given_up}, and let the rows be read again from a startpoint before them"
        )


def _name_of(version: int) -> str:
    return f"{version:020}.json"
