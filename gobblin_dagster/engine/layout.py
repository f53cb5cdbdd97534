"""Paths of internal files: below an output root in one folder, which readers skip because its name begins with `_`."""

from __future__ import annotations

import posixpath

INTERNAL_DIR = "_gobblin"
"""Folder below the output root for staging and manifests."""
MANIFEST_DIR = "manifests"
RUN_LOGS = ".gobblin/logs"
"""Folder of the log files of `gobblin run`; below the project folder."""
SPARK_LOG = ".gobblin/spark.log"
"""Log of Spark's output; below the project folder."""


def internal_dir(output_root: str, *names: str) -> str:
    """Return a path inside the internal folder of an output root."""
    return posixpath.join(output_root, INTERNAL_DIR, *names)


def staging_dir(output_root: str, *names: str) -> str:
    """Return the staging folder: of all runs, of one run (given its id), or of one commit (given both ids)."""
    return internal_dir(output_root, "staging", *names)
