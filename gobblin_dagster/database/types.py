"""Column types that SQLite and PostgreSQL store differently."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, Text, TypeDecorator

UNREADABLE = datetime.min.replace(tzinfo=UTC)
"""What `UtcDateTime` returns for a damaged value of SQLite; no program stores this instant."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware instant in UTC; SQLite stores it without a time zone, because it has none.

    A value that is no instant is read as `UNREADABLE`: an error would keep back all other rows of the query too.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """Return what reads a value of the driver."""
        read = super().result_processor(dialect, coltype)

        def instant(value: Any) -> datetime | None:
            try:
                return read(value) if read is not None else value
            except (TypeError, ValueError):
                return UNREADABLE

        return instant

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StoredText(TypeDecorator[str]):
    """A text; bytes, which a damaged row of SQLite may hold in its place, become text that no digest fits."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | bytes | None, dialect: Dialect) -> str | None:
        return value.decode(errors="replace") if isinstance(value, bytes) else value
