"""Folders that are links: names alone do not tell whether a path lies inside of the output."""

from __future__ import annotations

from collections.abc import Iterable

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.storage import LinkStorage, Storage


def require_no_way_out(storage: Storage, output_root: str, paths: Iterable[str]) -> None:
    """Refuse files whose folders lead to places outside of the output, as they are when the files are touched.

    Raises:
        StepRefusedError: one does.
    """
    if not isinstance(storage, LinkStorage):
        return
    root = storage.real_path(output_root)
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        real = storage.real_path(folder)
        if real != root and not real.startswith(f"{root.rstrip('/')}/"):
            problem = f"it leads to {real}, outside of {root}; take the link away, then `gobblin commit recover`"
            raise StepRefusedError(step=f"change files in {folder}", problem=problem)
