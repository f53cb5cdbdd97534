"""LocalStorage: POSIX files, with the syncs that the commit protocol needs to survive a power loss."""

from __future__ import annotations

import copy
import errno
import grp
import hashlib
import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from gobblin_dagster.core.storage import FileDigest
from gobblin_dagster.core.utils.regular_file import open_regular, read_regular
from gobblin_dagster.storage._beneath import held, real_path
from gobblin_dagster.storage._rename import rename_new
from gobblin_dagster.storage.scheme import Scheme

if TYPE_CHECKING:
    import pyarrow.fs as pafs

TEMP_PREFIX = ".tmp-"
"""Beginning of the names of unfinished files; listings leave them out."""
_TAG = 16
"""Letters in such a name that tell the file."""
_DELETE_TRIES = 50


def _sync(fd: int, path: str) -> None:
    """Sync a descriptor once; raises OSError.

    Never try again after a failure: the kernel may have dropped the data, and would report success.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _temp_beside(path: str) -> str:
    return str(Path(path).with_name(TEMP_PREFIX + secrets.token_hex(16)))


def _temp_of(path: str) -> str:
    """Return the beginning of the names of unfinished copies of a file, which are beside it."""
    return TEMP_PREFIX + hashlib.sha256(Path(path).name.encode(errors="surrogateescape")).hexdigest()[:_TAG]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _is_one(path: Path) -> bool:
    """Return whether a path exists also if upper and lower case of its name are swapped."""
    try:
        return path.samefile(path.with_name(path.name.swapcase()))
    except OSError:
        return False


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise OSError(errno.EINVAL, f"there is no group {name!r} on this machine") from error


def _missing(folder: Path) -> list[Path]:
    """Return the folders that are missing on the way to a folder, the highest first."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


class LocalSink:
    """A new file; computes the SHA-256 while writing, so that the file need not be read again."""

    def __init__(self, path: str, durable: bool, root: str = "") -> None:
        self._path = path
        self._durable = durable
        self._root = root
        with held(root, path) as at:
            self._file = Path(at).open("xb")  # noqa: SIM115  # closed by finish or abort
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        try:
            self._file.write(view)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error
        self._hash.update(view)
        self._size_bytes += view.nbytes
        return view.nbytes

    def finish(self) -> FileDigest:
        try:
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from error
        if self._durable:
            _sync(self._file.fileno(), self._path)
        self._file.close()
        return FileDigest(self._size_bytes, self._hash.hexdigest())

    def abort(self) -> None:
        # Closing flushes, which fails again on a full disk; the content is unwanted anyway.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError), held(self._root, self._path) as at:
            Path(at).unlink()


@dataclass
class LocalStorage:
    """Files of this machine, or of a mounted file system with POSIX rules.

    With `durable` (the default, `commit.durability: full`), finished work survives a power loss as `Storage` says.
    Without it (`fast`) nothing is synced: finished work survives a killed process, but perhaps not a power loss.
    """

    durable: bool = True
    rename: Callable[[str, str], None] = field(default=rename_new, repr=False)
    """Renames a file without overwriting. Pass another function for mounts that need another way."""
    confined_to: str = ""
    """The folder that changes of files below it never leave through a link; empty for none."""
    is_move_atomic: bool = field(default=True, init=False, repr=False)

    def confined(self, root: str) -> LocalStorage:
        """Return this storage, confined to a folder."""
        found = copy.copy(self)  # also of a subclass with arguments of its own
        found.confined_to = root
        return found

    def _held(self, path: str) -> AbstractContextManager[str]:
        return held(self.confined_to, path)

    def open_new(self, path: str) -> LocalSink:
        try:
            return LocalSink(path, self.durable, self.confined_to)
        except FileNotFoundError:
            self.make_dirs(str(Path(path).parent))
            return LocalSink(path, self.durable, self.confined_to)

    def real_path(self, path: str) -> str:
        """Return a path with all links resolved."""
        return real_path(path)

    def folds_case(self, path: str) -> bool:
        """Return whether the file system ignores the case of names in a folder.

        Found out by an entry of the folder; if there is none, by an entry of the nearest existing folder above it.
        """
        for folder in (Path(path), *Path(path).parents):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.swapcase() != entry.name:
                        return _is_one(Path(entry.path))
        return False

    def size(self, path: str) -> int | None:
        try:
            found = os.stat(path)  # noqa: PTH116  # once per committed file: pathlib takes six times as long
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def sha256(self, path: str) -> str:
        with os.fdopen(open_regular(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, path: str) -> bytes:
        return read_regular(path)

    def move(self, source: str, target: str) -> None:
        try:
            self._rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._move_across(source, target)

    def _rename(self, source: str, target: str) -> None:
        with self._held(source) as old, self._held(target) as new:
            if os.path.islink(old):  # noqa: PTH114  # once per committed file: pathlib takes three times as long
                raise OSError(errno.ELOOP, "it is a link; what it leads to could change after the commit", source)
            self.rename(old, new)

    def _move_across(self, source: str, target: str) -> None:
        """Copy to another mount; the target becomes visible only when complete."""
        # Another process may find and delete it: see `end_uploads`.
        temp = str(Path(target).with_name(_temp_of(target) + secrets.token_hex(8)))
        try:
            with Path(source).open("rb") as reader, self._held(temp) as at, Path(at).open("xb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                if self.durable:
                    _sync(writer.fileno(), temp)
            self._rename(temp, target)
        except BaseException:
            self.delete(temp)
            raise
        # Two mounts have two journals: sync the target before the source is deleted.
        self.sync_dir(str(Path(target).parent))
        self.delete(source)

    def is_leftover(self, source: str, target: str) -> bool:
        """Return True if a source is what a move left whose target is complete, so that it can be deleted.

        It is another name of the same file (a move by link), or older than a copy on another mount. A link is no second
        name of the file that it leads to. Names are compared as file systems may compare them, and folders by their
        number alone, as a file system may be mounted at several places.
        """
        try:
            if any(Path(path).is_symlink() for path in (source, target)):
                return False
            old, new = Path(source).stat(), Path(target).stat()
            folders = {Path(path).parent.stat().st_ino for path in (source, target)}
        except OSError:
            return False
        if len(folders) == 1 and _folded(Path(source).name) == _folded(Path(target).name):
            return False
        if old.st_dev == new.st_dev:
            return old.st_ino == new.st_ino
        return old.st_ino != new.st_ino and old.st_mtime_ns <= new.st_mtime_ns

    def end_uploads(self, paths: Collection[str]) -> None:
        """Delete what killed moves to these paths from other mounts left beside them."""
        folders: dict[str, set[str]] = {}
        for path in paths:
            folders.setdefault(str(Path(path).parent), set()).add(_temp_of(path))
        for folder, beginnings in folders.items():
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name[: len(TEMP_PREFIX) + _TAG] in beginnings:
                        self.delete(entry.path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        temp = _temp_beside(path)
        sink = self.open_new(temp)
        try:
            sink.write(data)
            sink.finish()
            self._rename(temp, path)
            is_new = True
        except FileExistsError:
            sink.abort()
            is_new = False
        except BaseException:
            sink.abort()
            raise
        # Also if the path existed: the process that created it may have been killed before it synced the folder.
        self.sync_dir(str(Path(path).parent))
        return is_new

    def make_dirs(self, path: str) -> None:
        missing = _missing(Path(path))
        folder = missing[0].parent if missing else Path(path)
        # Another process may just have made the deepest existing folder and been killed before syncing its parent. A
        # parent that we may not read was not changed by this program, so it needs no sync.
        with suppress(PermissionError):
            self.sync_dir(str(folder.parent))
        for folder in missing:
            self._mkdir(folder)
            self.sync_dir(str(folder.parent))
        if not Path(path).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def _mkdir(self, folder: Path) -> None:
        with self._held(str(folder)) as at:
            Path(at).mkdir(exist_ok=True)

    def make_all_dirs(self, paths: Collection[str]) -> dict[str, OSError | None]:
        """Make folders level by level: each exists only once those above it survive a power loss, as in `make_dirs`."""
        missing = {path: _missing(Path(path)) for path in paths}
        errors: dict[str, OSError | None] = dict.fromkeys(missing)
        # The deepest existing folders, as in `make_dirs`.
        found = {path: (folders[0].parent if folders else Path(path)) for path, folders in missing.items()}
        self._sync_parents({path: folder.parent for path, folder in found.items()}, errors, ours=False)
        while made := self._make_next(missing, errors):
            self._sync_parents(made, errors, ours=True)
        for path, error in errors.items():
            if error is None and not Path(path).is_dir():
                errors[path] = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return errors

    def _make_next(self, missing: Mapping[str, list[Path]], errors: dict[str, OSError | None]) -> dict[str, Path]:
        """Make the highest missing folder of each path that has no error, and return the parents."""
        made = {}
        for path, folders in missing.items():
            if folders and errors[path] is None:
                folder = folders.pop(0)
                try:
                    self._mkdir(folder)
                except OSError as error:
                    errors[path] = error
                else:
                    made[path] = folder.parent
        return made

    def _sync_parents(self, parents: Mapping[str, Path], errors: dict[str, OSError | None], *, ours: bool) -> None:
        """Sync each parent once, and note its error for all of its paths."""
        synced: dict[Path, OSError | None] = {}
        for parent in dict.fromkeys(parents.values()):
            try:
                self.sync_dir(str(parent))
            except OSError as error:
                # A parent that we may not read was not changed by this program.
                synced[parent] = error if ours or not isinstance(error, PermissionError) else None
        for path, parent in parents.items():
            errors[path] = errors[path] or synced.get(parent)

    def sync_dir(self, path: str) -> None:
        if not self.durable:
            return
        with self._held(f"{path}/.") as at:
            fd = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(fd, path)
        finally:
            os.close(fd)

    def list_names(self, path: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(path) if not name.startswith(TEMP_PREFIX))  # noqa: PTH208  # often
        except FileNotFoundError:
            return []

    def walk_files(self, path: str) -> Iterator[str]:
        try:
            with os.scandir(Path(path)) as found:
                entries = sorted(found, key=attrgetter("name"))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.startswith(TEMP_PREFIX):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self.walk_files(entry.path)
            else:
                yield entry.path

    def has_permissions(self, path: str, mode: int | None, group: str | None) -> bool:
        gid = None if group is None else _group_id(group)
        try:
            found = os.stat(path)  # noqa: PTH116  # once per committed file, as in `size`
        except FileNotFoundError:
            return False
        is_mode = mode is None or stat.S_IMODE(found.st_mode) == mode
        return is_mode and gid in (None, found.st_gid)

    def set_permissions(self, path: str, mode: int | None, group: str | None) -> None:
        # Open the file first: a link put in its place cannot redirect the change, and the change can be synced even if
        # the new mode forbids opening the file.
        with self._held(path) as at:
            fd = os.open(at, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if group is not None:
                os.fchown(fd, -1, _group_id(group))
            if mode is not None:  # after fchown, which clears some bits of the mode
                os.fchmod(fd, mode)
            if self.durable:
                _sync(fd, path)
        finally:
            os.close(fd)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._held(path) as at:
            os.unlink(at)  # noqa: PTH108  # once per file, as in `size`

    def delete_tree(self, path: str) -> None:
        for again in reversed(range(_DELETE_TRIES)):
            if not Path(path).exists():
                return
            try:
                with self._held(path) as at:
                    shutil.rmtree(at)
            except FileNotFoundError:  # a file vanished: someone else deletes or renames in the same folder
                if not again:
                    raise
            else:
                return

    def delete_empty(self, path: str) -> None:
        with suppress(FileNotFoundError), self._held(path) as at:
            try:
                os.rmdir(at)  # noqa: PTH106  # as in `delete`
            except OSError as error:
                # Some systems have the second one; a mount point stays too.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    raise


class LocalScheme(Scheme):
    """`file:///path`, and absolute paths."""

    example = "file:///path"
    decodes_paths = True

    def url_problem(self, host: str, path: str) -> str:
        return "" if host in ("", "localhost") and path.startswith("/") else "is not an absolute path"

    def storage(self, host: str, *, durable: bool) -> LocalStorage:
        return LocalStorage(durable)

    def arrow(self, host: str, paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        import pyarrow.fs as pafs  # noqa: PLC0415  # slow to load

        return pafs.LocalFileSystem(), list(paths)
