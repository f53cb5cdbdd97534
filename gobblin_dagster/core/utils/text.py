"""Small functions on text."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 300 characters; its class name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
