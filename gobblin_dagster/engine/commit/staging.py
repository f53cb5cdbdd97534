"""Delete the staged files of a sequence after it has ended."""

from __future__ import annotations

import posixpath

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.storage import SharedFolderStorage, Storage
from gobblin_dagster.engine.commit.path_guard import is_apart, is_below


def delete_staging(storage: Storage, sequence: CommitSequence, *, only_empty: bool = False) -> None:
    """Delete the staging folders of a sequence, or those that are empty; raises OSError.

    Folders of a `CommitStepStore`'s sources belong to the program that put the steps, and may hold files of other
    datasets: only empty ones are deleted, and if they are apart from the output, the empty folders above them up to the
    folder that also contains the output.
    """
    for folder in sequence.staging_dirs:
        # No other sequence has folders apart from the output: `check_paths` refuses it.
        if only_empty or sequence.is_staged_beside:
            delete_if_empty(storage, folder, sequence.output_root)
        else:
            storage.delete_tree(folder)


def delete_if_empty(storage: Storage, folder: str, root: str) -> None:
    """Delete a folder if it is empty, and if apart from the output, the empty folders above it; raises OSError."""
    if storage.list_names(folder):
        return
    if isinstance(storage, SharedFolderStorage):
        storage.delete_empty(folder)  # another program may begin a file there at this moment
    else:
        storage.delete_tree(folder)
    parent = posixpath.dirname(folder)
    if is_apart(parent, root) and _is_shared(parent, root):
        delete_if_empty(storage, parent, root)


def _is_shared(folder: str, root: str) -> bool:
    """True if a folder and the output are in one folder that is not the root of the file system."""
    shared = posixpath.commonpath([folder, root]) if folder.startswith("/") == root.startswith("/") else ""
    return shared.count("/") > 0 and shared != "/" and is_below(folder, shared)
