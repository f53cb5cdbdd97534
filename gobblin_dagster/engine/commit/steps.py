"""Commit steps: the move of one staged file, and the registry through which packages add steps of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import CorruptRecordError, StagedFileLostError, StepRefusedError, UsageError
from gobblin_dagster.core.storage import Storage


@dataclass(frozen=True, slots=True)
class RenameFileStep:
    """Moves one staged file to its final name, without ever overwriting.

    Done means that the target holds the bytes that were staged (size and SHA-256), never only that it exists. The size
    is compared first, so a wrong file is mostly told apart without reading it.

    Source: gobblin-api `FsRenameCommitStep`. Differs: moves files only, verifies content, replaces nothing.
    """

    source: str
    """Absolute path in staging."""
    target: str
    """Absolute path below the output root; its name carries the commit id and is never reused."""
    size_bytes: int
    sha256: str
    type_name: ClassVar[str] = "rename_file"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        """Tell whether the target holds the staged bytes."""
        return self._holds(storage, self.target)

    def execute(self, storage: Storage) -> None:
        """Move the file; another process may do the same at the same time.

        Raises:
            StepRefusedError: the target exists with other bytes; it is not ours to replace.
            StagedFileLostError: the source is gone or of another size, and the target is not there.
            OSError: the storage refused.
        """
        # A folder has no size either, so no folder is ever moved.
        if storage.size(self.source) != self.size_bytes:
            self._require_done(storage)
            return
        try:
            storage.move(self.source, self.target)
        except (FileNotFoundError, FileExistsError):
            # Another process may have moved it since we looked, and a crash between link and unlink leaves both names:
            # in both cases the target is whole and the step is done.
            self._require_done(storage)

    def check_content(self, storage: Storage) -> None:
        """Refuse a source whose bytes are not those that were prepared; needed after anything but a fresh staging.

        Raises:
            StepRefusedError, StagedFileLostError: as `execute`.
        """
        if not self._holds(storage, self.source):
            self._require_done(storage)

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
        """Read what `to_json` wrote; raises KeyError, TypeError or ValueError where it is something else."""
        return cls(str(fields["source"]), str(fields["target"]), int(fields["size_bytes"]), str(fields["sha256"]))

    def describe(self) -> str:
        return f"rename {self.source} to {self.target} ({self.size_bytes} bytes)"

    def _holds(self, storage: Storage, path: str) -> bool:
        try:
            return storage.size(path) == self.size_bytes and storage.sha256(path) == self.sha256
        except FileNotFoundError:
            return False


StepLoader = Callable[[Mapping[str, Any]], CommitStep]
T = TypeVar("T", bound=type[CommitStep])
_LOADERS: dict[tuple[str, int], tuple[type[CommitStep], StepLoader]] = {}


def register_commit_step(cls: T) -> T:
    """Make a step type loadable from stored sequences; usable as a class decorator.

    The class needs `type_name`, `version` and a classmethod `from_json(fields)` that reads what `to_json` wrote. Keep
    old versions registered: a sequence may be stored before an upgrade and finished after it.

    Raises:
        UsageError: another class has that name and version, or there is no `from_json`.
    """
    loader = getattr(cls, "from_json", None)
    if not callable(loader):
        raise UsageError(
            problem=f"Commit step {cls.__qualname__} has no from_json.",
            hint="Add `@classmethod def from_json(cls, fields)`.",
        )
    known, _ = _LOADERS.setdefault((cls.type_name, cls.version), (cls, loader))
    if known is not cls:
        owner = f"{known.__module__}.{known.__qualname__}"
        raise UsageError(
            problem=f"Commit step {cls.type_name!r} version {cls.version} is {owner} already.",
            hint="Choose another type_name, or raise the version.",
        )
    return cls


register_commit_step(RenameFileStep)


def step_to_json(step: CommitStep) -> dict[str, Any]:
    """Return a step with its type and version."""
    return {"type": step.type_name, "version": step.version, **step.to_json()}


def step_from_json(raw: Any) -> CommitStep:
    """Read what `step_to_json` wrote.

    Raises:
        CorruptRecordError: the type or version is not registered, or the fields do not fit.
    """
    if not isinstance(raw, Mapping):
        raise CorruptRecordError(what="A stored commit step", problem=f"expected an object, got {str(raw)[:80]!r}")
    known = _LOADERS.get((raw.get("type", ""), raw.get("version", 0)))
    if known is None:
        raise CorruptRecordError(
            what="A stored commit step",
            problem=f"type {raw.get('type')!r} version {raw.get('version')!r} is not registered in this program",
        )
    try:
        return known[1]({key: value for key, value in raw.items() if key not in {"type", "version"}})
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(what=f"A stored commit step {raw['type']!r}", problem=repr(error)) from error
