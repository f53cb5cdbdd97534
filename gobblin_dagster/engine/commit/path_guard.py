"""Check the paths that a commit touches: nothing outside the output root, staging only in the internal folder."""

from __future__ import annotations

import posixpath
from functools import cache

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.engine.layout import INTERNAL_DIR, MANIFEST_DIR, internal_dir


def is_below(path: str, root: str) -> bool:
    """True if a path is plain (absolute, no `..`, no `//`) and strictly inside a folder."""
    return path.startswith(root.rstrip("/") + "/") and _normal(path) == path and _normal(root) == root.rstrip("/")


def is_apart(path: str, root: str) -> bool:
    """True if a path is plain and absolute, and neither inside a folder nor around it."""
    is_plain = _normal(path) == path and (path.startswith("/") or "://" in path)
    return is_plain and path != root and not is_below(path, root) and not is_below(root, path)


def _normal(path: str) -> str:
    # A URL keeps its `//`; only the part after the scheme is a path.
    scheme, mark, rest = path.rpartition("://")
    return scheme + mark + posixpath.normpath(rest)


def check_paths(sequence: CommitSequence) -> None:
    """Refuse a sequence with paths outside of its own folders; called before anything is touched, also on recovery.

    Targets must be below the output root and outside its internal folder. Staging folders must be inside the internal
    folder and not among the manifests; if the sequence is staged beside the output, they must be apart from the output
    root. Sources must be in a staging folder of the sequence. No two moves have the same target or source.

    Raises:
        StepRefusedError: one of these does not hold.
    """
    root = sequence.output_root
    internal = internal_dir(root)
    manifests = internal_dir(root, MANIFEST_DIR)
    for folder in sequence.staging_dirs:
        if sequence.is_staged_beside and is_apart(folder, root):
            continue
        if not is_below(folder, internal) or folder == manifests or is_below(folder, manifests):
            beside = f", or outside {root}" if sequence.is_staged_beside else ""
            problem = f"a staging folder must lie inside {internal}{beside}"
            raise StepRefusedError(step=f"delete {folder}", problem=problem)

    # Thousands of files share a few folders, so each folder is checked once.
    @cache
    def may_receive(folder: str) -> bool:
        inside = folder == root or is_below(folder, root)
        return inside and folder != internal and not is_below(folder, internal)

    @cache
    def may_give(folder: str) -> bool:
        return any(folder == staging or is_below(folder, staging) for staging in sequence.staging_dirs)

    targets: set[str] = set()
    sources: set[str] = set()
    for step in renames_of(sequence.steps):
        for path, paths, what in ((step.target, targets, "target"), (step.source, sources, "source")):
            if path in paths:
                problem = f"another step of the sequence has the same {what}"
                raise StepRefusedError(step=step.describe(), problem=problem)
            paths.add(path)
        folder, _, name = step.target.rpartition("/")
        if not may_receive(folder) or name in {"", ".", "..", INTERNAL_DIR}:
            raise StepRefusedError(
                step=step.describe(), problem=f"the target must lie below {root}, outside {internal}"
            )
        folder, _, name = step.source.rpartition("/")
        if not may_give(folder) or name in {"", ".", ".."}:
            raise StepRefusedError(step=step.describe(), problem="the source lies in no staging folder of the sequence")
    # Of a step's other paths only those that it declares can be checked; the step is responsible for the rest.
    for other in sequence.steps:
        for path in traits_of(other, StepTraits).output_paths:
            if not may_receive(path.rpartition("/")[0]):
                raise StepRefusedError(
                    step=other.describe(), problem=f"{path} must lie below {root}, outside {internal}"
                )
