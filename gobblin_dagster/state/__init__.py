"""The state store, which keeps the progress of datasets: its protocol (read `store.py` first) and two implementations.

One implementation uses SQL, the other plain files. May import core, storage and spec. Open a store with `open_store`.
"""

from __future__ import annotations

from pathlib import Path

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.arguments import checked
from gobblin_dagster.core.utils.url_text import path_problem
from gobblin_dagster.state.store import LeaseGrant, StateStore

__all__ = ["LeaseGrant", "StateStore", "check_url", "open_store"]

_SYSTEM_CLOCK = SystemClock()
_FILES = "files"
_SQL = ("sqlite", "postgres", "postgresql", "postgresql+psycopg2")


@checked
def open_store(url: str, base_dir: Path, clock: Clock = _SYSTEM_CLOCK) -> StateStore:
    """Open the state store of a URL; create it if it does not exist, and migrate it if it is older.

    Args:
        url: `sqlite:///<file>`, `postgresql://user:password@host:port/database` or `files:<folder or URL>`.
        base_dir: the project's folder. A relative file or folder in the URL starts from it, and paths inside it are
            stored relative to it.
        clock: used by SQLite and plain files; PostgreSQL has its own clock.

    Raises:
        UsageError: the URL is none of these.
        StoreVersionError: the store was written by a newer version; nothing was changed.
        TransientError: the store cannot be reached.
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the store's file or folder cannot be used.
    """
    scheme, _, rest = url.partition(":")
    # Each kind is imported only if it is used: importing SQLAlchemy takes 0.4 s.
    if scheme in _SQL:
        from gobblin_dagster.database.engine import parse_url  # noqa: PLC0415
        from gobblin_dagster.state.sql.store import SqlStateStore  # noqa: PLC0415

        return SqlStateStore(parse_url(url, base_dir), clock, _base(base_dir))
    if scheme == _FILES:
        from gobblin_dagster.state.files.store import FileStateStore  # noqa: PLC0415
        from gobblin_dagster.storage import open_storage, storage_path  # noqa: PLC0415

        where = _where(rest, base_dir)
        return FileStateStore(storage_path(where), open_storage(where), clock, base=_base(base_dir), address=where)
    raise _unknown(url)


def check_url(url: str, base_dir: Path) -> None:
    """Check a URL as `open_store` does, without opening anything.

    Raises:
        UsageError: there is no state store of this kind, or the URL names no place.
    """
    scheme, _, rest = url.partition(":")
    if scheme in _SQL:
        from gobblin_dagster.database.engine import parse_url  # noqa: PLC0415 - as in `open_store`

        parse_url(url, base_dir)
    elif scheme == _FILES:
        from gobblin_dagster.storage import storage_path  # noqa: PLC0415 - as in `open_store`

        storage_path(_where(rest, base_dir))
    else:
        raise _unknown(url)


def _where(place: str, base_dir: Path) -> str:
    """Return the URL or absolute path of the folder of plain files; raises UsageError if it can be none."""
    if problem := path_problem(place):
        raise UsageError(problem=f"The state store's folder is a wrong one: {problem}.")
    return place if "://" in place else str(base_dir.absolute() / place)


def _unknown(url: str) -> UsageError:
    # The URL itself is not repeated: it may hold a password, or be one.
    scheme, colon, _ = url.partition(":")
    return UsageError(
        problem=f"The state store's URL {f'begins with {scheme[:20]!r}' if colon else 'has no scheme'}.",
        hint="Use sqlite:///<file>, postgresql://user@host/database or files:<folder>.",
    )


def _base(folder: Path) -> str:
    """Return the folder that stored paths start from; the root of all files is none, as it cannot be moved."""
    return str(folder.resolve()).rstrip("/")
