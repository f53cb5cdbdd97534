"""The revisions of the SQL state store."""

from __future__ import annotations

from pathlib import Path

from gobblin_dagster.database.migrations import RevisionChain
from gobblin_dagster.state.sql.tables import VERSION_TABLE

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""All revisions, oldest first; the code works with the last one."""

CHAIN = RevisionChain(
    VERSION_TABLE, REVISIONS, Path(__file__).parent / "migrations", 0x60BB11, "gobblin_dataset_states"
)
