"""Where our own files lie below an output root: in one folder, which readers of a lake skip, as its name begins with `_`."""

from __future__ import annotations

import posixpath

INTERNAL_DIR = "_gobblin"
"""Folder below the output root for staging and manifests."""
MANIFEST_DIR = "manifests"


def internal_dir(output_root: str, *names: str) -> str:
    """Return a path inside the internal folder of an output root."""
    return posixpath.join(output_root, INTERNAL_DIR, *names)


def staging_dir(output_root: str, *names: str) -> str:
    """Return the folder of all that is staged; with the run's id that of the run, and with a commit's id that of the commit."""
    return internal_dir(output_root, "staging", *names)
