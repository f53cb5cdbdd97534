"""Small functions on text."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return what a library says, without its trailing details, in bounded length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
