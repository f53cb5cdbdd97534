"""Move staged files to their final names: one by one, or many in one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import StagedFileLostError, StepRefusedError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import LeftoverStorage, Storage


@register_commit_step
@dataclass(frozen=True, slots=True)
class RenameFileStep:
    """Moves one staged file to its final name, without ever overwriting.

    The step is done if the target holds the staged bytes (size and SHA-256); it is not enough that the target exists.
    The size is compared first, so most wrong files are found without reading them.

    Source: gobblin-api `FsRenameCommitStep`. Differs: moves files only, verifies content, replaces nothing.
    """

    source: str
    """Absolute path in staging."""
    target: str
    """Absolute path below the output root; its name holds the commit id and is never used again."""
    size_bytes: int
    sha256: str
    type_name: ClassVar[str] = "rename_file"
    version: ClassVar[int] = 1
    is_undoable: ClassVar[bool] = True
    reads_staging: ClassVar[bool] = False
    is_brief: ClassVar[bool] = True

    def verify(self, storage: Storage) -> bool:
        """True if the target holds the staged bytes."""
        return self._holds(storage, self.target)

    def execute(self, storage: Storage) -> None:
        """Move the file; another process may do the same at the same time.

        Raises:
            StepRefusedError: the target exists with other bytes, or is a folder; it must not be replaced.
            StagedFileLostError: the source does not exist or has another size, and the target does not exist.
            OSError: the storage refused.
        """
        # A folder has no size either, so no folder is ever moved.
        if storage.size(self.source) != self.size_bytes:
            self._require_done(storage)
            return
        try:
            storage.move(self.source, self.target)
        except (FileNotFoundError, FileExistsError) as error:
            # Another process may have moved the file since the check. A crash between link and unlink leaves both
            # names. In both cases the target is complete and the step is done.
            if isinstance(error, FileExistsError) and storage.size(self.target) is None:
                raise StepRefusedError(step=self.describe(), problem="the target exists and is no file") from error
            self._require_done(storage)
            self.forget_source(storage)

    def forget_source(self, storage: Storage) -> None:
        """Delete the source of a move that is done and was killed before that: it would look like a new file."""
        if isinstance(storage, LeftoverStorage):
            is_left = storage.is_leftover(self.source, self.target)
        else:
            is_left = not storage.is_move_atomic
        if is_left and self.is_source_sound(storage):
            storage.delete(self.source)

    def check_content(self, storage: Storage) -> None:
        """Refuse a source with other bytes than the prepared ones; needed unless this run has just staged the file.

        Raises:
            StepRefusedError, StagedFileLostError: as `execute`.
        """
        if not self.is_source_sound(storage):
            self._require_done(storage)

    def is_source_sound(self, storage: Storage) -> bool:
        """True if the source holds the prepared bytes."""
        return self._holds(storage, self.source)

    def _require_done(self, storage: Storage) -> None:
        if self.verify(storage):
            return
        if storage.size(self.target) is not None:
            raise StepRefusedError(step=self.describe(), problem="the target exists and holds other bytes")
        size = storage.size(self.source)
        problem = "is gone" if size is None else f"has {size} bytes that are not the {self.size_bytes} prepared ones"
        raise StagedFileLostError(path=self.source, target=self.target, problem=problem)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RenameFileStep:
        """Return the object from the fields of `to_json`; raises KeyError, TypeError or ValueError for other fields."""
        return cls(str(fields["source"]), str(fields["target"]), int(fields["size_bytes"]), str(fields["sha256"]))

    def describe(self) -> str:
        return f"rename {self.source} to {self.target} ({self.size_bytes} bytes)"

    def _holds(self, storage: Storage, path: str) -> bool:
        try:
            return storage.size(path) == self.size_bytes and storage.sha256(path) == self.sha256
        except FileNotFoundError:
            return False


@register_commit_step
@dataclass(frozen=True, slots=True)
class RenameFilesStep:
    """Moves many staged files of one folder tree to the same relative paths of another.

    Keeps the stored sequence of a large dataset small, because the roots are stored once. Each file is moved, verified,
    redone and undone on its own, as by a `RenameFileStep`.

    Source: gobblin-api `FsRenameCommitStep` on a folder. Differs: never moves the folder itself, so half a move is
    never taken for a complete one.
    """

    source_root: str
    """Absolute staging folder."""
    target_root: str
    """Absolute output root."""
    files: tuple[tuple[str, int, str], ...]
    """(path below both roots, size in bytes, SHA-256) of each file."""
    renames: tuple[RenameFileStep, ...] = field(init=False, repr=False, compare=False)
    """The moves; made once, because a commit uses them several times."""
    type_name: ClassVar[str] = "rename_files"
    version: ClassVar[int] = 1
    is_undoable: ClassVar[bool] = True
    reads_staging: ClassVar[bool] = False
    is_brief: ClassVar[bool] = True

    def __post_init__(self) -> None:
        source, target = self.source_root, self.target_root
        renames = tuple(
            RenameFileStep(f"{source}/{path}", f"{target}/{path}", size_bytes, sha256)
            for path, size_bytes, sha256 in self.files
        )
        object.__setattr__(self, "renames", renames)

    def verify(self, storage: Storage) -> bool:
        """True if every target holds the staged bytes."""
        return all(rename.verify(storage) for rename in self.renames)

    def execute(self, storage: Storage) -> None:
        """Move the files that are not moved yet; raises as `RenameFileStep.execute`."""
        for rename in self.renames:
            rename.execute(storage)

    def to_json(self) -> dict[str, Any]:
        return {
            "source_root": self.source_root,
            "target_root": self.target_root,
            "files": [list(file) for file in self.files],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RenameFilesStep:
        """Return the object from the fields of `to_json`; raises KeyError, TypeError or ValueError for other fields."""
        files = tuple((str(path), int(size), str(sha256)) for path, size, sha256 in fields["files"])
        return cls(str(fields["source_root"]), str(fields["target_root"]), files)

    def describe(self) -> str:
        total = sum(size for _, size, _ in self.files)
        return f"rename {len(self.files)} files of {self.source_root} to {self.target_root} ({total} bytes)"


def is_rename(step: CommitStep) -> bool:
    """True if a step only moves files, so that any process may run it, in any order."""
    return isinstance(step, RenameFileStep | RenameFilesStep)


def renames_of(steps: Iterable[CommitStep]) -> Iterator[RenameFileStep]:
    """Yield the single-file moves of the steps, in order; other steps have none."""
    for step in steps:
        if isinstance(step, RenameFileStep):
            yield step
        elif isinstance(step, RenameFilesStep):
            yield from step.renames


def rename_steps(renames: Iterable[RenameFileStep], batch: int) -> tuple[CommitStep, ...]:
    """Return steps that do all renames, at most `batch` files each, in order.

    A file whose relative path differs between staging and output gets a step of its own.
    """
    steps: list[CommitStep] = []
    roots: tuple[str, str] = ("", "")
    files: list[tuple[str, int, str]] = []

    def close() -> None:
        if files:
            steps.append(RenameFilesStep(*roots, tuple(files)))
            files.clear()

    for rename in renames:
        path = _common_end(rename.source, rename.target)
        if not path:
            close()
            steps.append(rename)
            continue
        found = (rename.source.removesuffix(f"/{path}"), rename.target.removesuffix(f"/{path}"))
        if found != roots or len(files) == batch:
            close()
            roots = found
        files.append((path, rename.size_bytes, rename.sha256))
    close()
    return tuple(steps)


def _common_end(source: str, target: str) -> str:
    """Return the longest relative path that both end with; empty if even the names differ."""
    parts: list[str] = []
    for ours, theirs in zip(reversed(source.split("/")[1:]), reversed(target.split("/")[1:]), strict=False):
        if ours != theirs:
            break
        parts.append(ours)
    return "/".join(reversed(parts))
