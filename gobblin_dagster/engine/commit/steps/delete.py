"""Deleting files that no snapshot which can still be read holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage


@dataclass(frozen=True, slots=True)
class DeleteFilesStep:
    """Deletes files below an output root; part of the sequence that lets their snapshots expire.

    Source: gobblin-data-management `DatasetCleaner`. Differs: stored before it is done, so that nobody goes back to a
    snapshot while its files are being deleted.
    """

    root: str
    """Absolute output root."""
    files: tuple[str, ...]
    """Paths relative to it."""
    type_name: ClassVar[str] = "delete_files"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        """Tell whether all are gone."""
        return all(storage.size(path) is None for path in self._paths())

    def execute(self, storage: Storage) -> None:
        """Delete them; raises OSError, or StepRefusedError where one lies elsewhere."""
        for path in self._paths():
            storage.delete(path)

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "files": list(self.files)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> DeleteFilesStep:
        """Read what `to_json` wrote; raises KeyError or TypeError where it is something else."""
        return cls(str(fields["root"]), tuple(map(str, fields["files"])))

    def describe(self) -> str:
        return f"delete {len(self.files)} files of expired snapshots"

    def _paths(self) -> list[str]:
        for file in self.files:
            if file.startswith("/") or {"", ".", ".."} & set(file.split("/")):
                raise StepRefusedError(step=self.describe(), problem=f"{file!r} may lie outside of {self.root}")
        return [f"{self.root}/{file}" for file in self.files]


register_commit_step(DeleteFilesStep)
