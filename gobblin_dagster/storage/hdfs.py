"""HdfsStorage: files of an HDFS cluster through hdfs-native, a client without a JVM (extra `hdfs`).

Guarantees of HDFS: a rename is one entry in the NameNode's journal and never overwrites. Entries of the journal
survive a crash of the NameNode, so folders need no sync. A block is written to the disks of its DataNodes only on
request: the sink requests it at the end of each block and of the file, before closing (closing alone leaves blocks in
memory).
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gobblin_dagster.core.storage import FileDigest
from gobblin_dagster.storage._hdfs_client import hdfs_client, hdfs_errors, open_whole
from gobblin_dagster.storage.local import TEMP_PREFIX
from gobblin_dagster.storage.scheme import Scheme

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from hdfs_native import Client, FileStatus, FileWriter

    from gobblin_dagster.storage.file_facts import RemoteFiles


class HdfsSink:
    """A new file; other clients can see the bytes synced so far, under the staging name."""

    def __init__(self, client: Client, name: str, path: str, durable: bool) -> None:
        with hdfs_errors(path):
            self._file: FileWriter = client.create(name)
            self._block_bytes = client.get_file_info(name).blocksize or 0
        self._client = client
        self._name = name
        self._path = path
        self._durable = durable and self._block_bytes > 0
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        with hdfs_errors(self._path):
            for piece in self._pieces(view):
                self._file.write(piece)
                self._size_bytes += piece.nbytes
                if self._durable and self._size_bytes % self._block_bytes == 0:
                    # The next byte closes this block, and closing does not sync.
                    self._file.hsync()
        return view.nbytes

    def _pieces(self, view: memoryview) -> Iterator[memoryview]:
        """Cut data at the ends of blocks."""
        while view.nbytes:
            room = self._block_bytes - self._size_bytes % self._block_bytes if self._durable else view.nbytes
            yield view[:room]
            view = view[room:]

    def finish(self) -> FileDigest:
        # If the folder was deleted meanwhile, the file is gone too and stays so, like a local file.
        with suppress(FileNotFoundError), hdfs_errors(self._path):
            if self._durable and self._size_bytes % self._block_bytes:
                self._file.hsync()
            self._file.close()
        return FileDigest(self._size_bytes, self._hash.hexdigest())

    def abort(self) -> None:
        with suppress(OSError), hdfs_errors(self._path):
            self._client.delete(self._name)
        # Close after the delete, so that a half-written file is never closed. Closing ends the renewal of its HDFS
        # lease.
        with suppress(OSError), hdfs_errors(self._path):
            self._file.close()


@dataclass
class HdfsStorage:
    """Files of one HDFS cluster, by `hdfs://authority/path` or by absolute path.

    The user comes from the places that Hadoop's own clients use: `HADOOP_CONF_DIR`, `HADOOP_USER_NAME`, a Kerberos
    ticket.

    Args:
        authority: `host:port` of the NameNode, or the name of a service in the cluster's configuration; empty means
            `fs.defaultFS`.
        durable: True writes a finished file to the disks of its DataNodes (`commit.durability: full`), False only to
            their memory (`fast`). Renames and folders are in the NameNode's journal in both cases.

    Raises:
        EnvironmentFaultError: hdfs-native is not installed; raised on first use.

    Source: gobblin-api and gobblin-core work on Hadoop's `FileSystem`. Differs: a rename never overwrites and never
    moves into a folder, and files are synced before they count as staged.
    """

    authority: str
    durable: bool = True
    is_move_atomic: bool = field(default=True, init=False, repr=False)

    def connect(self) -> Client:
        """Return the connection of this process; raises EnvironmentFaultError if hdfs-native is not installed."""
        return hdfs_client(self.authority, os.getpid())

    def _name(self, path: str) -> str:
        """Return the path inside the cluster; percent signs in URLs are not decoded, as in Hadoop."""
        name = path.removeprefix(f"hdfs://{self.authority}")
        if not name.startswith("/"):
            raise OSError(errno.EINVAL, f"not an absolute path of hdfs://{self.authority}", path)
        return name.rstrip("/") or "/"

    def _status(self, path: str) -> FileStatus | None:
        try:
            with hdfs_errors(path):
                return self.connect().get_file_info(self._name(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_new(self, path: str) -> HdfsSink:
        return HdfsSink(self.connect(), self._name(path), path, self.durable)

    def size(self, path: str) -> int | None:
        status = self._status(path)
        return None if status is None or status.isdir else status.length

    def sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        with hdfs_errors(path):
            file = open_whole(self.connect(), self._name(path), path)
            for piece in file.read_range_stream(0, len(file)):
                digest.update(piece)
        return digest.hexdigest()

    def read(self, path: str) -> bytes:
        with hdfs_errors(path):
            return open_whole(self.connect(), self._name(path), path).read()

    def move(self, source: str, target: str) -> None:
        with hdfs_errors(source, target):
            self.connect().rename(self._name(source), self._name(target))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        temp = posixpath.join(posixpath.dirname(path), TEMP_PREFIX + secrets.token_hex(16))
        sink = self.open_new(temp)
        try:
            sink.write(data)
            sink.finish()
            self.move(temp, path)
        except FileExistsError:
            sink.abort()
            return False
        except FileNotFoundError:
            # If the answer to the rename was lost, the client tried again and found no source: the first try succeeded.
            if self.size(path) is None:
                raise
        except BaseException:
            sink.abort()
            raise
        return True

    def make_dirs(self, path: str) -> None:
        try:
            with hdfs_errors(path):
                self.connect().mkdirs(self._name(path), create_parent=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from error

    def sync_dir(self, path: str) -> None:
        """Do nothing: the NameNode confirms a change of a folder only after writing it to its journal."""

    def list_names(self, path: str) -> list[str]:
        return [posixpath.basename(status.path) for status in self._list(path)]

    def walk_files(self, path: str) -> Iterator[str]:
        for status in self._list(path):
            child = posixpath.join(path, posixpath.basename(status.path))
            if status.isdir:
                yield from self.walk_files(child)
            else:
                yield child

    def _list(self, path: str) -> list[FileStatus]:
        name = self._name(path)
        try:
            with hdfs_errors(path):
                found = list(self.connect().list_status(name))
        except FileNotFoundError:
            return []
        if len(found) == 1 and found[0].path == name and not found[0].isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        visible = (one for one in found if not posixpath.basename(one.path).startswith(TEMP_PREFIX))
        return sorted(visible, key=lambda one: posixpath.basename(one.path))

    def has_permissions(self, path: str, mode: int | None, group: str | None) -> bool:
        status = self._status(path)
        return status is not None and mode in (None, status.permission) and group in (None, status.group)

    def set_permissions(self, path: str, mode: int | None, group: str | None) -> None:
        with hdfs_errors(path):
            if group is not None:
                self.connect().set_owner(self._name(path), group=group)
            if mode is not None:
                self.connect().set_permission(self._name(path), mode)

    def delete(self, path: str) -> None:
        status = self._status(path)
        if status is None:
            return
        if status.isdir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with hdfs_errors(path):
            self.connect().delete(self._name(path))

    def delete_tree(self, path: str) -> None:
        self._delete_folder(path, recursive=True)

    def delete_empty(self, path: str) -> None:
        try:
            self._delete_folder(path, recursive=False)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise

    def _delete_folder(self, path: str, *, recursive: bool) -> None:
        status = self._status(path)
        if status is None:
            return
        if not status.isdir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        with hdfs_errors(path):
            self.connect().delete(self._name(path), recursive=recursive)


class HdfsScheme(Scheme):
    """`hdfs://host:port/path`."""

    packages = ("hdfs_native",)
    example = "hdfs://host:port/path"

    def storage(self, host: str, *, durable: bool) -> HdfsStorage:
        return HdfsStorage(host, durable)

    def arrow(self, host: str, paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        from gobblin_dagster.storage.hdfs_files import arrow_hdfs  # noqa: PLC0415  # slow to load

        return arrow_hdfs(host), list(paths)

    def files(self, authority: str) -> RemoteFiles:
        from gobblin_dagster.storage.hdfs_files import HdfsFiles  # noqa: PLC0415  # slow to load

        return HdfsFiles(authority)
