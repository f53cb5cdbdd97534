"""Source `python`: rows from a function of the user. Read first: `source`."""

from gobblin_dagster.constructs.sources.python.source import ReadUnit, ReadUpTo

__all__ = ["ReadUnit", "ReadUpTo"]
