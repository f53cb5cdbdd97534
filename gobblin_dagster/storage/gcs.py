"""Google Cloud Storage as a source of files; nothing is published to it."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import urlsplit

from gobblin_dagster.storage.file_facts import RemoteEntry, RemoteFiles
from gobblin_dagster.storage.object_files import ArrowFiles
from gobblin_dagster.storage.scheme import Scheme

_GIVE_UP = timedelta(seconds=60)


@dataclass(frozen=True)
class GcsFiles(ArrowFiles):
    """Objects of Google Cloud Storage. The first `scan` lists everything below its folder, for all later ones.

    pyarrow can list a single folder of GCS only if an object marks this folder, and such objects are rare.
    """

    _folders: dict[str, dict[str, RemoteEntry]] = field(default_factory=dict)
    tick_us: ClassVar[int] = 1

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        if url not in self._folders:
            self._list(url.rstrip("/"))
        yield from self._folders.get(url, {}).values()

    def _list(self, url: str) -> None:
        from pyarrow.fs import FileSelector  # noqa: PLC0415  # slow to load

        try:
            found = self.files.get_file_info(FileSelector(self._inside(url), recursive=True))
        except OSError as error:
            if "No such file" not in str(error):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        self._folders.setdefault(url, {})
        for info in found:
            path = self.scheme + info.path.rstrip("/")
            self._add(RemoteEntry(info.base_name, path, self._facts(info), not info.is_file), url)

    def _add(self, entry: RemoteEntry, root: str) -> None:
        """Add an entry to its folder, and the folder to its parent folder."""
        folder = entry.path.rpartition("/")[0]
        is_new = folder not in self._folders
        self._folders.setdefault(folder, {})[entry.name] = entry
        if is_new and folder != root:
            self._add(RemoteEntry(folder.rpartition("/")[2], folder, None, is_folder=True), root)


class GcsScheme(Scheme):
    """`gs://bucket/key` and `gcs://bucket/key`."""

    def connect(self, authority: str) -> Any:
        import pyarrow.fs as pafs  # noqa: PLC0415  # slow to load

        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if not emulator:
            return pafs.GcsFileSystem(retry_time_limit=_GIVE_UP)
        where = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
        return pafs.GcsFileSystem(
            anonymous=True, scheme=where.scheme, endpoint_override=where.netloc, retry_time_limit=_GIVE_UP
        )

    def files(self, authority: str) -> RemoteFiles:
        return GcsFiles(f"{self.name}://", self.client(""))

    def stored_checksum(self, url: str) -> str:
        files = self.client("")
        with files.open_input_stream(url.partition("://")[2]) as file:
            told = {name: value.decode() for name, value in file.metadata().items()}
        if told.get("md5Hash"):
            return f"md5={base64.b64decode(told['md5Hash']).hex()}"
        return f"crc32c={told['crc32c']}" if told.get("crc32c") else ""
