"""Alembic migrations of the SQL state store.

A change to `tables.py` comes with a new file in `versions/`, written by hand, and its revision at the end of
`schema.REVISIONS`. Released migrations are never edited.
"""
