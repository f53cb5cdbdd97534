"""A commit step of one's own: tells a loader which files are about to become true, once per publication."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from gobblin_dagster import CommitSequence, Storage


@dataclass(frozen=True)
class AnnounceStep:
    """Puts one small file per publication, named by the commit id: done twice, it is the same file."""

    path: str
    note: str
    """What stands in the file."""
    type_name: ClassVar[str] = "announce"
    version: ClassVar[int] = 1

    class Options(BaseModel):
        """Options in the job file."""

        model_config = ConfigDict(frozen=True, extra="forbid")
        folder: str
        """Below the output; begin it with `_` so that readers of the lake skip it."""

    @classmethod
    def plan(cls, options: Options, sequence: CommitSequence) -> AnnounceStep:
        note = {
            "dataset": sequence.dataset_urn,
            "snapshot": sequence.after.snapshot,
            "rows": sum(file.rows for file in sequence.files),
            "files": [file.path.removeprefix(sequence.output_root + "/") for file in sequence.files],
        }
        return cls(f"{sequence.output_root}/{options.folder}/{sequence.id}.json", json.dumps(note, indent=2))

    def verify(self, storage: Storage) -> bool:
        return storage.size(self.path) is not None

    def execute(self, storage: Storage) -> None:
        storage.put_if_absent(self.path, self.note.encode())

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "note": self.note}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AnnounceStep:
        return cls(fields["path"], fields["note"])

    def describe(self) -> str:
        return f"announce it in {self.path}"
