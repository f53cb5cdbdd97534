"""The classes of all schemes of URLs, by the scheme's name (such as `s3`).

To add a storage, write a module and add a line to `_TARGETS`, or use the entry-point group `gobblin_dagster.storages`.
`open_storage`, `arrow_files`, `remote_files`, checksums and checks of job files ask here, so they name no scheme.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.storage.scheme import Scheme

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
        target = _TARGETS.get(name, f"{_HERE}.scheme:Scheme")
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
