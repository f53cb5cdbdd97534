"""Set mode and group of published files and folders."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class Permissions:
    """Mode and group of published files and folders; None leaves them as they are.

    Source: `writer.file.permissions`, `writer.dir.permissions`, `writer.group.name`.
    """

    file_mode: int | None = None
    dir_mode: int | None = None
    group: str | None = None

    def __bool__(self) -> bool:
        return (self.file_mode, self.dir_mode, self.group) != (None, None, None)


@runtime_checkable
class PermissionStorage(Protocol):
    """A storage that has modes and groups."""

    def has_permissions(self, path: str, mode: int | None, group: str | None) -> bool:
        """True if a file or folder has this mode and group; False if it does not exist."""

    def set_permissions(self, path: str, mode: int | None, group: str | None) -> None:
        """Set mode and group, durable on return; raises OSError (not the owner, no such group)."""


def check_permissions(storage: Storage, output_root: str, wanted: Permissions) -> None:
    """Refuse permissions that could never be set, before anything is read.

    Raises:
        UsageError: the storage has no modes and groups, or there is no such group.
    """
    if not wanted:
        return
    if not isinstance(storage, PermissionStorage):
        raise UsageError(
            problem=f"Output {output_root} is in a {type(storage).__name__}, which has no modes and groups.",
            hint="Remove `file_mode`, `dir_mode` and `group` from `output`.",
        )
    try:
        storage.has_permissions(output_root, None, wanted.group)
    except OSError as error:
        raise UsageError(problem=f"`output.group` cannot be set: {error.strerror}.") from error


@register_commit_step
@dataclass(frozen=True, slots=True)
class SetPermissionsStep:
    """Sets mode and group of published files, and of the folders between them and the output root.

    Runs after the renames and before COMMIT, so that no snapshot lists a file that its readers may not open.

    Source: gobblin-core `WriterUtils.mkdirsWithRecursivePermission` and `FsDataWriter.setFilePermissions`. Differs:
    applied when published, and verified after a crash.
    """

    root: str
    """Absolute output root; its own permissions are not changed."""
    files: tuple[str, ...]
    """Paths below the root."""
    permissions: Permissions
    type_name: ClassVar[str] = "set_permissions"
    version: ClassVar[int] = 1
    is_undoable: ClassVar[bool] = True
    reads_staging: ClassVar[bool] = False
    is_brief: ClassVar[bool] = True

    @classmethod
    def of(cls, root: str, targets: Iterable[str], permissions: Permissions) -> SetPermissionsStep:
        """Return the step for absolute targets below the root."""
        return cls(root, tuple(posixpath.relpath(target, root) for target in targets), permissions)

    def verify(self, storage: Storage) -> bool:
        """True if all files and folders have them; raises StepRefusedError if the storage has no modes and groups."""
        able = self._able(storage)
        return all(able.has_permissions(path, mode, self.permissions.group) for path, mode in self._wanted())

    def execute(self, storage: Storage) -> None:
        """Set them where they differ; raises OSError, or StepRefusedError as `verify`."""
        able = self._able(storage)
        for path, mode in self._wanted():
            if not able.has_permissions(path, mode, self.permissions.group):
                able.set_permissions(path, mode, self.permissions.group)

    def to_json(self) -> dict[str, Any]:
        wanted = self.permissions
        return {
            "root": self.root,
            "files": list(self.files),
            "file_mode": wanted.file_mode,
            "dir_mode": wanted.dir_mode,
            "group": wanted.group,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SetPermissionsStep:
        """Return the object from the fields of `to_json`; raises KeyError or TypeError for other fields."""
        permissions = Permissions(fields["file_mode"], fields["dir_mode"], fields["group"])
        return cls(str(fields["root"]), tuple(map(str, fields["files"])), permissions)

    def describe(self) -> str:
        wanted = self.permissions
        parts = [f"mode {mode:04o} of {what}" for what, mode in self._modes().items() if mode is not None]
        parts += [f"group {wanted.group}"] if wanted.group else []
        return f"set {', '.join(parts)} for {len(self.files)} published files"

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The absolute paths of the files."""
        return tuple(f"{self.root}/{file}" for file in self.files)

    def _modes(self) -> dict[str, int | None]:
        return {"files": self.permissions.file_mode, "folders": self.permissions.dir_mode}

    def _wanted(self) -> Iterator[tuple[str, int | None]]:
        """Yield (path, mode), files first, because a folder may become unreadable for this process."""
        for path in self.output_paths:
            yield path, self.permissions.file_mode
        for folder in sorted({folder for file in self.files for folder in _parents(file)}, reverse=True):
            yield f"{self.root}/{folder}", self.permissions.dir_mode

    def _able(self, storage: Storage) -> PermissionStorage:
        if not isinstance(storage, PermissionStorage):
            raise StepRefusedError(
                step=self.describe(),
                problem=f"a {type(storage).__name__} has no modes and groups; remove them from `output`",
            )
        return storage


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def permissions_of(job: JobSpec) -> Permissions:
    """Return mode and group of a job's published files and folders."""
    file_mode, dir_mode = (
        None if mode is None else int(mode, 8) for mode in (job.output.file_mode, job.output.dir_mode)
    )
    return Permissions(file_mode, dir_mode, job.output.group)
