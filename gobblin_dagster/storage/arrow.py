"""Read published files with pyarrow from any storage. Import it only to read data: pyarrow.fs is slow to load."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.fs as pafs

from gobblin_dagster.storage.urls import split, storage_path


def arrow_files(paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Return the pyarrow file system that holds some files, and the paths of these files in it.

    Args:
        paths: absolute paths or URLs of one storage, as in `PublishedFile.path`. If empty, the local file system is
            returned.

    Raises:
        UsageError: there is no such storage.
        EnvironmentFaultError: the storage's package is not installed.

    Example:
        >>> arrow_files(["/lake/a.parquet"])[1]
        ['/lake/a.parquet']
    """
    scheme, host, _ = split(paths[0] if paths else "/")
    return scheme.arrow(host, [storage_path(path) for path in paths])
