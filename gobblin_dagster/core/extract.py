"""What is extracted: the namespace, table and kind of extraction of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExtractType(StrEnum):
    """How one extraction relates to the former ones.

    Source: gobblin-api `Extract.TableType`.
    """

    APPEND_ONLY = "append_only"
    """Each run adds rows that were never seen; none changes."""
    SNAPSHOT_APPEND = "snapshot_append"
    """Each run adds changed rows; the newest row of a primary key counts."""
    SNAPSHOT_ONLY = "snapshot_only"
    """Each run reads everything and replaces what was published."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The table that a work unit contributes to.

    Source: gobblin-api `org.apache.gobblin.source.workunit.Extract`. Differs: no extract id; the run id serves.
    """

    namespace: str
    table: str
    type: ExtractType = ExtractType.APPEND_ONLY
    primary_keys: tuple[str, ...] = ()
    """Columns that name a row."""
    delta_fields: tuple[str, ...] = ()
    """Columns that grow with each change of a row."""
    is_full: bool = False
    """Whether each run reads everything from the beginning."""
