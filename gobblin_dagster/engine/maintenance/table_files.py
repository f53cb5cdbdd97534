"""Published files that a table lists as they are: nobody can read it any more if one of them is deleted."""

from __future__ import annotations

import posixpath
import re

from gobblin_dagster.core.commit import ListsFiles, StoredSequence
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.publishers import load_step_types
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

_OURS = re.compile(r"([0-9a-f]{32})-")
"""Beginning of the names of all files that runs write: the id of their commit."""


def commit_id_of(path: str) -> str:
    """Return the id of the commit that published a file, which its name begins with; empty if it is none of ours."""
    found = _OURS.match(posixpath.basename(path))
    return found[1] if found else ""


def names_in_tables(store: StateStore, job: JobSpec, stored: StoredSequence) -> frozenset[str]:
    """Return the names of the files that steps of a sequence add to tables, whether or not they were done.

    Empty if the sequence cannot be read.
    """
    load_step_types(job)
    try:
        steps = decode_sequence(stored, store.places, skip_unknown_steps=True).steps
    except CorruptRecordError:
        return frozenset()
    listed = (step.listed_files for step in steps if isinstance(step, ListsFiles))
    return frozenset(posixpath.basename(path) for paths in listed for path in paths)
