"""ArrowFiles: objects that pyarrow's own clients read; what S3 and Google Cloud Storage share as sources of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from gobblin_dagster.storage.file_facts import FileFacts, RemoteEntry


@dataclass(frozen=True)
class ArrowFiles:
    """An object store that pyarrow can read; such stores have no real folders."""

    scheme: str
    files: Any
    tick_us: ClassVar[int] = 1_000_000
    """Times of change are rounded down to this: some S3 stores list milliseconds, but give seconds for a single
    object."""

    def _inside(self, url: str) -> str:
        return url.removeprefix(self.scheme).rstrip("/")

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415  # slow to load

        for info in self.files.get_file_info(FileSelector(self._inside(url))):
            yield RemoteEntry(info.base_name, f"{url}/{info.base_name}", self._facts(info), not info.is_file)

    def look(self, url: str) -> FileFacts:
        facts = self._facts(self.files.get_file_info(self._inside(url)))
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return facts

    def open(self, url: str) -> pa.NativeFile:
        return self.files.open_input_file(self._inside(url))

    def _facts(self, info: Any) -> FileFacts | None:
        modified_us = (info.mtime_ns or 0) // 1000
        return FileFacts(info.size, modified_us - modified_us % self.tick_us) if info.is_file else None
