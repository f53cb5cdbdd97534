"""Literals of SQL."""

from __future__ import annotations


def sql_text(text: str) -> str:
    """Return the literal of a text: in single quotes, quotes inside doubled."""
    return "'" + text.replace("'", "''") + "'"
