"""What a job extracts: namespace, table, and kind of extraction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExtractType(StrEnum):
    """How the rows of one run relate to the rows of earlier runs.

    Source: gobblin-api `Extract.TableType`.
    """

    APPEND_ONLY = "append_only"
    """Each run adds new rows; rows never change."""
    SNAPSHOT_APPEND = "snapshot_append"
    """Each run adds new and changed rows; of rows with one primary key, the newest counts."""
    SNAPSHOT_ONLY = "snapshot_only"
    """Each run reads everything and replaces what was published."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The table that a job fills.

    Source: gobblin-api `org.apache.gobblin.source.workunit.Extract`. Differs: no extract id; the run id serves.
    """

    namespace: str
    table: str
    type: ExtractType = ExtractType.APPEND_ONLY
    primary_keys: tuple[str, ...] = ()
    """Columns that identify a row."""
    delta_fields: tuple[str, ...] = ()
    """Columns whose value grows with each change of a row, such as a time of change."""
    is_full: bool = False
    """Whether each run reads everything from the beginning."""
