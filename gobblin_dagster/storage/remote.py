"""Read input files on remote file systems: list a folder, look at a file, open it.

URLs must not hold credentials or endpoints. These come from the usual places of each system: boto3's for `s3://`,
Hadoop's configuration for `hdfs://`, `GOOGLE_APPLICATION_CREDENTIALS` for `gs://`, ssh's files (config, keys, agent,
known hosts) and `SSHPASS` for `sftp://`. fsspec opens URLs of all other schemes.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.storage.file_facts import FileFacts, RemoteFiles, local_facts
from gobblin_dagster.storage.schemes import scheme_named


def remote_files(url: str) -> RemoteFiles:
    """Return the file system of a URL.

    Raises:
        UsageError: the URL holds a password or a key, or its scheme is unknown.
        EnvironmentFaultError: the package for the scheme is not installed.
    """
    if problem := credentials_problem(url):
        raise UsageError(problem=f"{problem}.", hint="docs/reference/sources.md says where credentials are read from.")
    parts = urlsplit(url.partition("?")[0])
    return scheme_named(parts.scheme).files(parts.netloc)


def credentials_problem(url: str) -> str:
    """Return a sentence if a URL holds a password or a key, else an empty text. The sentence does not hold the URL."""
    scheme, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (":" in user or not scheme_named(scheme).takes_user):
        return f"a {scheme}:// URL holds a password or a key; move it from the job file to the environment"
    return ""


def look_at(path: str) -> FileFacts:
    """Return the facts of a file by absolute path or URL; raises OSError."""
    if "://" in path:
        return remote_files(path).look(path)
    return local_facts(Path(path).stat()) or FileFacts(0, 0)
