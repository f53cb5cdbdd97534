"""Scheme: all that the package knows of the files behind one scheme of URLs (`s3://`); one map finds it by name.

Adding a storage is its own module and one line of `_TARGETS`, or a name in the entry-point group
`gobblin_dagster.storages`. `open_storage`, `arrow_files`, `remote_files`, checksums and checks of job files ask the
scheme, and know no name.
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
"""Classes by the scheme that they stand for."""
_LOADED: dict[str, Scheme] = {}


class Scheme:
    """The files behind one scheme of URLs: a storage to publish to, files to read from, or both.

    This class itself stands for schemes that only fsspec knows: files to read, nothing to publish to.

    Args:
        name: the scheme, e.g. `s3`.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    """Modules of optional packages that it imports (`core.utils.optional_packages`)."""
    example: ClassVar[str] = ""
    """How a URL to publish to is written, for messages; empty if nothing can be published there."""
    decodes_paths: ClassVar[bool] = False
    """Whether `%2F` in a URL to publish to is one character; where the system's own tools take it for three, it is
    not."""
    takes_user: ClassVar[bool] = False
    """Whether a URL to read from may name a user, without a password."""

    def __init__(self, name: str) -> None:
        self.name = name

    # -- publishing ----------------------------------------------------------------------------------------------------
    def url_problem(self, host: str, path: str) -> str:
        """Return what is wrong with a URL to publish to, as `names no bucket`; empty if nothing is."""
        return ""

    def storage(self, host: str, *, durable: bool) -> Storage:
        """Return the storage of a URL that has no problem; connects to nothing. Called if there is an `example`.

        Its methods take whole URLs, which they give back as they got them, and absolute paths inside it.

        Args:
            host: what stands between `://` and the next `/`.
            durable: whether files must survive a power loss (`commit.durability: full`) or only a killed process.
        """
        raise NotImplementedError

    def arrow(self, host: str, paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        """Return the file system with which pyarrow reads published files, and their paths as it knows them.

        By default files are read through the storage, each as a whole.

        Raises:
            EnvironmentFaultError: the storage's package is not installed.
        """
        # Here and not above: it loads pyarrow's file systems, which a run without an audit need not wait for.
        from gobblin_dagster.storage.arrow import read_whole  # noqa: PLC0415

        return read_whole(self.storage(host, durable=True)), list(paths)

    # -- reading what others put there
    # -----------------------------------------------------------------------------------
    def connect(self, authority: str) -> Any:
        """Return the client of a file system; `storage.remote.client_of` calls it once per process and authority.

        Raises:
            UsageError: nobody knows the scheme.
            EnvironmentFaultError: the package for it is not installed.
        """
        from gobblin_dagster.storage.fsspec_files import known_to_fsspec  # noqa: PLC0415  # slow to load

        return known_to_fsspec(self.name)

    def files(self, authority: str) -> RemoteFiles:
        """Return the file system of a URL's authority; raises as `connect`."""
        from gobblin_dagster.storage.fsspec_files import FsspecFiles  # noqa: PLC0415  # slow to load
        from gobblin_dagster.storage.remote import client_of  # noqa: PLC0415  # it imports this module

        return FsspecFiles("", client_of(self.name, ""))

    def told_checksum(self, url: str) -> str:
        """Return the checksum that the store knows of a file, without reading it; empty if unknown; raises OSError."""
        return ""

    def scan_with_checksums(self, url: str) -> Iterable[RemoteEntry]:
        """Return the names in a folder, with the checksums that the store's lists hold; raises OSError."""
        from gobblin_dagster.storage.remote import remote_files  # noqa: PLC0415  # it imports this module

        return remote_files(url).scan(url)


def register_scheme(name: str, target: str) -> None:
    """Register a `Scheme` in this process; packages use the entry-point group `gobblin_dagster.storages` instead.

    Args:
        name: the scheme, e.g. `s3`.
        target: `module:Class`.

    Raises:
        UsageError: the scheme stands for another class.
    """
    known = _TARGETS.setdefault(name, target)
    if known != target:
        raise UsageError(
            problem=f"The scheme {name!r} is {known}; {target} cannot take the same name.",
            hint="Register it under another name.",
        )
    _LOADED.pop(name, None)  # it may have been looked for before


def scheme_named(name: str) -> Scheme:
    """Return what stands behind a scheme; of one that nobody registered, what fsspec may know.

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
                hint="Install its package, or mend the name.",
            ) from error
    return _LOADED[name]


def examples() -> str:
    """Return how URLs to publish to are written, for messages."""
    _discover()
    *first, last = [one.example for one in map(scheme_named, _TARGETS) if one.example]
    return f"an absolute path, {', '.join(first)}, or {last}"


def scheme_of(url: str) -> Scheme:
    """Return what stands behind a URL; raises as `scheme_named`."""
    return scheme_named(url.partition("://")[0])


def _discover() -> None:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        register_scheme(point.name, point.value)
