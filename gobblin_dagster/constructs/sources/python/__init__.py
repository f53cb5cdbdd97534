"""Source `python`: a function of the user's that yields rows. Read first: `source`."""

from gobblin_dagster.constructs.sources.python.source import ReadUnit, ReadUpTo

__all__ = ["ReadUnit", "ReadUpTo"]
