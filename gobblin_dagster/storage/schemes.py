"""Scheme: access to the files of one scheme of URLs (such as `s3://`); a registry finds the class by the scheme's name.

To add a storage, write a module and add a line to `_TARGETS`, or use the entry-point group `gobblin_dagster.storages`.
`open_storage`, `arrow_files`, `remote_files`, checksums and checks of job files use the registry, so they name no
scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.import_target import load_target

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from gobblin_dagster.storage.remote import RemoteEntry, RemoteFiles

ENTRY_POINT_GROUP = "gobblin_dagster.storages"
_HERE = __name__.rpartition(".")[0]
_TARGETS: dict[str, str] = {
    "file": f"{_HERE}.local:LocalScheme",
    "hdfs": f"{_HERE}.hdfs:HdfsScheme",
    "s3": f"{_HERE}.s3:S3Scheme",
    "memory": f"{_HERE}.memory:MemoryScheme",
    "gs": f"{_HERE}.gcs:GcsScheme",
    "gcs": f"{_HERE}.gcs:GcsScheme",
    "sftp": f"{_HERE}.sftp:SftpScheme",
}
"""Classes (`module:Class`) by name of the scheme."""
_LOADED: dict[str, Scheme] = {}


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
    decodes_paths: ClassVar[bool] = False
    """Whether percent signs in a URL to publish to are decoded. False if the system's own tools do not decode them."""
    takes_user: ClassVar[bool] = False
    """Whether a URL to read from may hold a user name, without a password."""

    def __init__(self, name: str) -> None:
        self.name = name

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
        from gobblin_dagster.storage.arrow import read_whole  # noqa: PLC0415

        return read_whole(self.storage(host, durable=True)), list(paths)

    # -- reading input files -------------------------------------------------------------------------------------------
    def connect(self, authority: str) -> Any:
        """Return the client of a file system; `storage.remote.client_of` keeps it by process and authority.

        Raises:
            UsageError: the scheme is unknown.
            EnvironmentFaultError: the package for the scheme is not installed.
        """
        from gobblin_dagster.storage.fsspec_files import known_to_fsspec  # noqa: PLC0415  # slow to load

        return known_to_fsspec(self.name)

    def is_lost(self, client: Any) -> bool:
        """Return whether a client from `connect` lost its connection for good, so that another one must be opened."""
        return False

    def files(self, authority: str) -> RemoteFiles:
        """Return the file system of a URL's authority; raises like `connect`."""
        from gobblin_dagster.storage.fsspec_files import FsspecFiles  # noqa: PLC0415  # slow to load
        from gobblin_dagster.storage.remote import client_of  # noqa: PLC0415  # it imports this module

        return FsspecFiles("", client_of(self.name, ""))

    def stored_checksum(self, url: str) -> str:
        """Return the checksum that the store keeps of a file, without reading it; empty if none. Raises OSError."""
        return ""

    def scan_with_checksums(self, url: str) -> Iterable[RemoteEntry]:
        """Return the entries of a folder, with checksums if the store lists them; raises OSError."""
        from gobblin_dagster.storage.remote import remote_files  # noqa: PLC0415  # it imports this module

        return remote_files(url).scan(url)


def register_scheme(name: str, target: str) -> None:
    """Register a `Scheme` in this process; packages use the entry-point group `gobblin_dagster.storages` instead.

    Args:
        name: the scheme, e.g. `s3`.
        target: `module:Class`.

    Raises:
        UsageError: another class is registered for the scheme.
    """
    known = _TARGETS.setdefault(name, target)
    if known != target:
        raise UsageError(
            problem=f"The scheme {name!r} is {known}; {target} cannot take the same name.",
            hint="Register it under another name.",
        )
    _LOADED.pop(name, None)  # before, fsspec may have been tried for this scheme


def scheme_named(name: str) -> Scheme:
    """Return the Scheme with this name; the base class, which uses fsspec, if none is registered.

    Raises:
        UsageError: its class cannot be imported.
    """
    if name not in _LOADED:
        if name not in _TARGETS:
            _discover()
        target = _TARGETS.get(name, f"{__name__}:Scheme")
        try:
            _LOADED[name] = load_target(target)(name)
        except ImportError as error:
            raise UsageError(
                problem=f"Storage of scheme {name!r} cannot be loaded from {target}: {error}.",
                hint="Install its package, or correct the name.",
            ) from error
    return _LOADED[name]


def examples() -> str:
    """Return examples of URLs to publish to, for messages."""
    _discover()
    *first, last = [one.example for one in map(scheme_named, _TARGETS) if one.example]
    return f"an absolute path, {', '.join(first)}, or {last}"


def scheme_of(url: str) -> Scheme:
    """Return the Scheme of a URL; raises like `scheme_named`."""
    return scheme_named(url.partition("://")[0])


def _discover() -> None:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        register_scheme(point.name, point.value)
