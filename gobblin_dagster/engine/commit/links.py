"""Check folders that may be links: a path below the output may lead outside of it."""

from __future__ import annotations

from collections.abc import Iterable

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.storage import LinkStorage, Storage


def require_no_way_out(storage: Storage, output_root: str, paths: Iterable[str]) -> None:
    """Refuse files in folders that lead outside of the output at the moment when the files are touched.

    Raises:
        StepRefusedError: a folder leads outside.
    """
    if not isinstance(storage, LinkStorage):
        return
    root = storage.real_path(output_root)
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        real = storage.real_path(folder)
        if real != root and not real.startswith(f"{root.rstrip('/')}/"):
            problem = f"it leads to {real}, outside of {root}; remove the link, then `gobblin commit recover`"
            raise StepRefusedError(step=f"change files in {folder}", problem=problem)
