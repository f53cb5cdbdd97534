"""MySQL and MariaDB for sources and publishers: what our sessions are set to, whatever their server is set up for."""

from __future__ import annotations

_STRICT = (
    "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO"
)
"""Without it, values are cut, and `0` is stored where a column needs a value."""


def _mode_without(*names: str) -> str:
    mode = "concat(',', @@sql_mode, ',')"
    for name in names:
        mode = f"replace({mode}, ',{name},', ',')"
    return f"trim(BOTH ',' FROM {mode})"


_WITHOUT_PADDING = _mode_without("PAD_CHAR_TO_FULL_LENGTH")
"""The server's mode, by which queries of jobs are understood, but texts of CHAR get no blanks at their end."""
_COMMON = {
    "sql_select_limit": "18446744073709551615",  # the server's value for no limit: rows behind it would be left out
    "time_zone": "'+00:00'",  # in which columns of type TIMESTAMP are read and written
    "sql_quote_show_create": "1",  # SQLAlchemy and `sql_widen` find columns by names in quotes, and miss all others
    "completion_type": "0",  # else a commit may end the session
}
_VERSIONED = "/*M!100304 , system_versioning_asof = DEFAULT */"
"""In MariaDB: rows as they are now, not as they were once."""
# A dirty read of `gobblin_commits` would take a load that is not over for done; SERIALIZABLE would wait for it.
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def _session(settings: dict[str, str]) -> tuple[str, ...]:
    texts = (f"{name} = {value}" for name, value in (_COMMON | settings).items())
    return (f"SET SESSION {', '.join(texts)} {_VERSIONED}", _ISOLATION)


SESSION = _session({"sql_mode": _WITHOUT_PADDING})
"""Statements for each session, before anything else."""
TYPES_AS_THEY_ARE = f"SET SESSION sql_mode = {_mode_without('ORACLE', 'MAXDB')}"
"""Before tables are described: in these modes MariaDB writes `mariadb_schema.date` for DATE and the like, which
SQLAlchemy knows as no type."""
SESSION_THAT_WRITES = _session(
    {
        "sql_mode": f"'{_STRICT}'",
        "sql_safe_updates": "0",  # with it, the server deletes no rows for `replace`
        "foreign_key_checks": "1",
        "unique_checks": "1",
    }
)
"""The same for those that write."""
