"""The SQL of statements, which the engines of a process share: making it takes longer than most statements run."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect, Engine, event
from sqlalchemy.engine import Compiled
from sqlalchemy.util import LRUCache

_KEPT = 500
_LONGEST = 1 << 14
"""Letters. Longer ones name a user's many columns, and would hold much memory for the one engine that uses them."""

_kept: LRUCache[Any, Compiled] = LRUCache(_KEPT)


class _Statements:
    """The SQL that one kind of dialect makes, as SQLAlchemy asks for it.

    Its keys begin with the engine's own object of the dialect; what that knows of its server takes the place.
    """

    known: tuple[Any, ...] | None = None
    """None until the server was asked; nothing is kept so far."""

    def get(self, key: tuple[Any, ...]) -> Compiled | None:
        return _kept.get((self.known, *key[1:])) if self.known else None

    def __setitem__(self, key: tuple[Any, ...], statement: Compiled) -> None:
        if self.known and len(str(statement)) <= _LONGEST:
            _kept[self.known, *key[1:]] = statement


def share_statements(engine: Engine, place: str = "") -> None:
    """Let an engine use the SQL that other engines of the same server, version and settings have made.

    Args:
        engine: before its first connection, which finds out what the dialect must know.
        place: the database, if statements name tables of users: their columns have other types in another database.
    """
    statements = _Statements()

    def know(_connection: Any, _record: Any) -> None:
        statements.known = (place, *_known_of(engine.dialect))

    event.listen(engine, "connect", know, once=True)
    engine.update_execution_options(compiled_cache=statements)


def _known_of(dialect: Dialect) -> tuple[Any, ...]:
    """Return what a dialect knows: its driver, and all that it was told or has asked its server for."""
    plain = (str, int, float, tuple, type(None))
    facts = sorted((name, value) for name, value in vars(dialect).items() if isinstance(value, plain))
    return (type(dialect), *facts)
