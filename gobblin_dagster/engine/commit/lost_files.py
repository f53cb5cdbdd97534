"""Tell whether the output has lost what a dataset published last: it was deleted, or restored from an older copy."""

from __future__ import annotations

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.links import paths_inside
from gobblin_dagster.state.store import StateStore

_MOST_FILES = 20
"""Number of files that are looked for."""


def lost_file(storage: Storage, store: StateStore, output_root: str, state: DatasetState) -> str:
    """Return the path of a file that the dataset's newest commit added, if all of them are gone; empty if they are not.

    Files that lie in a former output are not looked for.

    Raises:
        OSError: the output cannot be read.
    """
    files = store.load_snapshot(state.job, state.dataset_urn)
    last = max((file.snapshot for file in files), default=0)
    path_now = paths_inside(storage, output_root)
    paths = sorted(path_now(file.path) for file in files if file.snapshot == last)[:_MOST_FILES]
    is_here = all(path.startswith(f"{output_root}/") for path in paths)
    return paths[0] if paths and is_here and all(storage.size(path) is None for path in paths) else ""
