"""The revisions of the service's tables."""

from __future__ import annotations

from pathlib import Path

from gobblin_dagster.database.migrations import RevisionChain
from gobblin_dagster.service.store.tables import VERSION_TABLE

REVISIONS = tuple(f"{number:04}" for number in range(1, 15))
"""All revisions, in order; the last one is what the code works on."""

CHAIN = RevisionChain(VERSION_TABLE, REVISIONS, Path(__file__).parent / "migrations", 0x60BB12, "gobblin_flows")
