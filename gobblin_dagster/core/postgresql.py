"""PostgreSQL for sources, publishers and the state store: what to ask it for, and whether a retry may succeed."""

from __future__ import annotations

from collections.abc import Mapping

UTF8 = {"client_encoding": "UTF8"}
"""Argument of each connection, whatever encoding the database, the role or PGCLIENTENCODING asks for: the server would
take our texts for others."""
ISOLATION = "READ COMMITTED"
"""Isolation of each connection, unless it asks for more: what is read after a wait for a lock must be what is there
then. By `repeatable read`, `replace` would delete the rows of another load, and keep those of the last one."""
_SETTINGS = {
    # In which zone, and in which form, times, floats and bytes become text, and texts become times.
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "array_nulls": "on",  # else `NULL` in the text of an array is a text
    "transform_null_equals": "off",
    "quote_all_identifiers": "off",  # else names of types that are asked for are in quotes, and none is known
}
_COMMITS_REACH_DISK = (
    "set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)"
)
"""Else a power loss could make the server forget what another one has already taken for committed."""
_PASSING_STATES = ("08", "57P", "40", "53", "55P03")
"""SQLSTATEs, or their classes, after which a retry may succeed: connection, shutdown, serialization, resources, locks.
"""
_REFUSED = ("FATAL:", "ERROR:", "no password supplied", "does not support SSL")
"""Words of a refusal by PostgreSQL, for errors without SQLSTATE (at login, or while results arrive).

Any other error without SQLSTATE means that the connection is lost."""
_PASSING = (
    "starting up",
    "shutting down",
    "recovery",
    "not yet accepting",
    "too many",
    "remaining connection slots",
    "authentication due to timeout",
    "terminating connection",
    "deadlock detected",
    "out of memory",
    "No space left",
)
"""Words of refusals that are temporary."""


def transaction_settings(more: Mapping[str, str] | None = None) -> str:
    """Return the statement that each transaction of ours begins with, whatever the server, role or caller ask for.

    The settings end with the transaction: a pool such as PgBouncer may give the next one another session, and hands
    this one on to other programs.

    Args:
        more: further settings; no value has a quote.
    """
    settings = {**_SETTINGS, **(more or {})}
    texts = [f"set_config('{name}', '{value}', true)" for name, value in settings.items()]
    return f"SELECT {', '.join([*texts, _COMMITS_REACH_DISK])}"


def postgresql_may_recover(state: str | None, text: str) -> bool:
    """Return whether a retry may succeed after an error of PostgreSQL or of its driver.

    Args:
        state: the SQLSTATE; None or empty if the driver gives none.
        text: the message.
    """
    if state:
        return state.startswith(_PASSING_STATES)
    is_refused = any(words in text for words in _REFUSED)
    return not is_refused or any(words in text for words in _PASSING)
