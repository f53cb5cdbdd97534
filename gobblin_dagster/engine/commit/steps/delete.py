"""Delete the files of expired snapshots, and mark the snapshots as expired for readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.links import require_no_way_out


@register_commit_step
@dataclass(frozen=True, slots=True)
class DeleteFilesStep:
    """Deletes files below an output root; part of the sequence that lets their snapshots expire.

    Source: gobblin-data-management `DatasetCleaner`. Differs: the sequence is stored first, so that no rollback
    restores a snapshot while its files are being deleted.
    """

    root: str
    """Absolute output root."""
    files: tuple[str, ...]
    """Paths relative to the root."""
    type_name: ClassVar[str] = "delete_files"
    version: ClassVar[int] = 1
    reads_staging: ClassVar[bool] = False

    def verify(self, storage: Storage) -> bool:
        """True if all files are deleted."""
        return all(storage.size(path) is None for path in self._paths())

    def execute(self, storage: Storage) -> None:
        """Delete the files; raises OSError, or StepRefusedError if one is outside of the root."""
        paths = self._paths()
        require_no_way_out(storage, self.root, paths)
        for path in paths:
            storage.delete(path)

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "files": list(self.files)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DeleteFilesStep:
        """Return the object from the fields of `to_json`; raises KeyError or TypeError for other fields."""
        return cls(str(fields["root"]), tuple(map(str, fields["files"])))

    def describe(self) -> str:
        return f"delete {len(self.files)} files of expired snapshots"

    def _paths(self) -> list[str]:
        return [_inside(self.root, file, self.describe()) for file in self.files]


@register_commit_step
@dataclass(frozen=True, slots=True)
class MarkExpiredStep:
    """Marks snapshots as expired for readers of manifests: an empty file with the number of the oldest that is kept.

    Source: none; the original has no manifests.
    """

    root: str
    """Absolute output root."""
    file: str
    """Path relative to the root."""
    type_name: ClassVar[str] = "mark_expired"
    version: ClassVar[int] = 1
    reads_staging: ClassVar[bool] = False

    def verify(self, storage: Storage) -> bool:
        """True if the file exists."""
        return storage.size(self._path()) is not None

    def execute(self, storage: Storage) -> None:
        """Create the file; raises OSError, or StepRefusedError if it is outside of the root."""
        storage.put_if_absent(self._path(), b"")

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "file": self.file}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MarkExpiredStep:
        """Return the object from the fields of `to_json`; raises KeyError or TypeError for other fields."""
        return cls(str(fields["root"]), str(fields["file"]))

    def describe(self) -> str:
        return f"mark expired snapshots by {self.file}"

    def _path(self) -> str:
        return _inside(self.root, self.file, self.describe())


def _inside(root: str, file: str, step: str) -> str:
    if file.startswith("/") or {"", ".", ".."} & set(file.split("/")):
        raise StepRefusedError(step=step, problem=f"{file!r} may lie outside of {root}")
    return f"{root}/{file}"
