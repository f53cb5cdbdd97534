"""What PostgreSQL and its drivers say, sorted by whether it may be over soon; for sources, publishers and the state store."""

from __future__ import annotations

_LOST_STATES = ("08", "57P", "40", "53")
"""SQLSTATE classes that a retry may mend: connection, shutdown, serialization, resources."""
_REFUSED = ("FATAL:", "ERROR:", "no password supplied", "does not support SSL")
"""What tells a refusal of PostgreSQL from a connection that is gone, where drivers give no SQLSTATE: logins, and results
on their way."""
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
"""What such a refusal says that lasts for now only."""


def postgresql_may_recover(state: str | None, text: str) -> bool:
    """Tell whether what PostgreSQL or its driver says may be over when it is tried again.

    Args:
        state: the SQLSTATE, where the driver gives one.
        text: the message.
    """
    if state:
        return state.startswith(_LOST_STATES)
    is_refused = any(words in text for words in _REFUSED)
    return not is_refused or any(words in text for words in _PASSING)
