"""Scheme: access to the files of one scheme of URLs (such as `s3://`). `schemes.py` finds the class by its name."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from gobblin_dagster.core.storage import Storage

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from gobblin_dagster.storage.file_facts import RemoteEntry, RemoteFiles


class Scheme:
    """Access to the files of one scheme of URLs: a storage to publish to, input files to read, or both.

    This base class serves schemes that only fsspec knows: their files can be read, but nothing can be published there.

    Args:
        name: the scheme, e.g. `s3`.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    """Modules of optional packages that it imports (`core.utils.optional_packages`)."""
    example: ClassVar[str] = ""
    """Example of a URL to publish to, for messages; empty if nothing can be published there."""
    renames: ClassVar[bool] = True
    """Whether its storage moves a file by a rename; False if a move copies the file and deletes the first one."""
    decodes_paths: ClassVar[bool] = False
    """Whether percent signs in a URL to publish to are decoded. False if the system's own tools do not decode them."""
    takes_user: ClassVar[bool] = False
    """Whether a URL to read from may hold a user name, without a password."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._clients: dict[tuple[str, int], Any] = {}
        self._connecting: defaultdict[tuple[str, int], Lock] = defaultdict(Lock)

    # -- publishing ----------------------------------------------------------------------------------------------------
    def url_problem(self, host: str, path: str) -> str:
        """Return the problem of a URL to publish to, for example `names no bucket`; empty if there is none."""
        return ""

    def storage(self, host: str, *, durable: bool) -> Storage:
        """Return the storage of a URL without a problem; do not connect yet. Called only if `example` is set.

        The methods of the storage must accept whole URLs, which they return unchanged, and absolute paths inside it.

        Args:
            host: the part of the URL between `://` and the next `/`.
            durable: whether files must survive a power loss (`commit.durability: full`) or only a killed process.
        """
        raise NotImplementedError

    def arrow(self, host: str, paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        """Return a pyarrow file system to read published files, and the paths of these files in it.

        The default reads each file as a whole, through the storage.

        Raises:
            EnvironmentFaultError: the storage's package is not installed.
        """
        # Imported here because it imports pyarrow's file systems, which is slow and not needed by most runs.
        from gobblin_dagster.storage.whole_files import read_whole  # noqa: PLC0415

        return read_whole(self.storage(host, durable=True)), list(paths)

    # -- reading input files -------------------------------------------------------------------------------------------
    def connect(self, authority: str) -> Any:
        """Return a new client of a file system; `client` keeps it by process and authority.

        Raises:
            UsageError: the scheme is unknown.
            EnvironmentFaultError: the package for the scheme is not installed.
        """
        from gobblin_dagster.storage.fsspec_files import known_to_fsspec  # noqa: PLC0415  # slow to load

        return known_to_fsspec(self.name)

    def is_lost(self, client: Any) -> bool:
        """Return whether a client from `connect` lost its connection for good, so that another one must be opened."""
        return False

    def client(self, authority: str) -> Any:
        """Return the connection of this process; a forked process must not use the connection of its parent.

        A lost connection is opened again: processes that stay would never read from that server again.

        Raises:
            UsageError, EnvironmentFaultError: as `connect`.
            OSError: a connection cannot be opened.
        """
        key = (authority, os.getpid())
        with self._connecting[key]:
            if key not in self._clients or self.is_lost(self._clients[key]):
                self._clients[key] = self.connect(authority)
            return self._clients[key]

    def files(self, authority: str) -> RemoteFiles:
        """Return the file system of a URL's authority; raises like `connect`."""
        from gobblin_dagster.storage.fsspec_files import FsspecFiles  # noqa: PLC0415  # slow to load

        return FsspecFiles("", self.client(""))

    def stored_checksum(self, url: str) -> str:
        """Return the checksum that the store keeps of a file, without reading it; empty if none. Raises OSError."""
        return ""

    def scan_with_checksums(self, url: str) -> Iterable[RemoteEntry]:
        """Return the entries of a folder, with checksums if the store lists them; raises OSError."""
        return self.files(urlsplit(url).netloc).scan(url)
