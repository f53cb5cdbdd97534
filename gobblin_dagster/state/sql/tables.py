"""Tables of the SQL state store, for SQLAlchemy Core.

The migrations under `migrations/` create the tables; a test checks that both descriptions are equal. Columns `body`
hold documents of `core.serialization`; the other columns hold what queries must find or check.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    bindparam,
)

from gobblin_dagster.core.commit import WAITING, SequenceState
from gobblin_dagster.database.types import StoredText, UtcDateTime

metadata = MetaData()

VERSION_TABLE = "gobblin_schema_version"
"""Alembic's table with the revision of the store."""

dataset_states = Table(
    "gobblin_dataset_states",
    metadata,
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("body", StoredText, nullable=False),
    # NULL if an older program wrote the row.
    Column("digest", Text),
    # How many rows `snapshot_files` and `snapshot_removals` have of the dataset, which shows that rows were deleted.
    Column("files", BigInteger),
    Column("removals", BigInteger),
    # The version whose commit counted them; another one than `version` if an older program committed since.
    Column("counted_version", BigInteger),
)

leases = Table(
    "gobblin_leases",
    metadata,
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    # The epoch must never go back, so rows are never deleted: releasing a lease sets the owner to NULL.
    Column("epoch", BigInteger, nullable=False),
    Column("run_id", Text),
    Column("host", Text),
    Column("boot", Text),
    Column("pid", BigInteger),
    Column("started", Text),
    Column("until", UtcDateTime),
)

sequences = Table(
    "gobblin_sequences",
    metadata,
    # Order of insertion; `created_at` may be wrong, because clocks of several drivers differ.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", StoredText, nullable=False, unique=True),
    Column("job", StoredText, nullable=False),
    Column("dataset_urn", StoredText, nullable=False),
    Column("run_id", StoredText, nullable=False),
    Column("version_read", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("body", StoredText, nullable=False),
    Column("digest", StoredText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("redo_failures", Integer, nullable=False),
    Column("reason", StoredText, nullable=False),
    Column("reported", Boolean, nullable=False),
)

# The migrations say which rows the indexes of blocking and of unreported sequences hold. Said here too, SQLAlchemy
# would load the dialect of PostgreSQL in every command.
# In the order of declaration, and written out, because SQLite uses the index only for queries with its very text.
_waiting = [state.value for state in SequenceState if state in WAITING]
is_blocking = sequences.c.state.in_(bindparam("waiting", _waiting, expanding=True, literal_execute=True))
Index("gobblin_sequences_one_blocking", sequences.c.job, sequences.c.dataset_urn, unique=True)
is_unreported = and_(sequences.c.state == SequenceState.COMMITTED.value, sequences.c.reported.is_(False))
Index("gobblin_sequences_unreported", sequences.c.job)
Index("gobblin_sequences_by_job", sequences.c.job, sequences.c.number)
# Not with the dataset first: SQLite would prefer it to the small index of blocking sequences.
Index("gobblin_sequences_by_version", sequences.c.job, sequences.c.version_read, sequences.c.dataset_urn)

snapshot_files = Table(
    "gobblin_snapshot_files",
    metadata,
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    # A published path is never used again: the primary key refuses a second file with the same path.
    Column("path", Text, primary_key=True),
    Column("snapshot", BigInteger, nullable=False),
    Column("branch", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("digest", Text),
)

snapshot_removals = Table(
    "gobblin_snapshot_removals",
    metadata,
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    Column("path", Text, primary_key=True),
    # Part of the key: a rollback may bring a file back, and a later snapshot may remove it again.
    Column("snapshot", BigInteger, primary_key=True, autoincrement=False),
)

startpoints = Table(
    "gobblin_startpoints",
    metadata,
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    # Empty for the whole dataset.
    Column("partition", StoredText, primary_key=True),
    Column("id", StoredText, nullable=False),
    Column("body", StoredText, nullable=False),
)

startpoint_events = Table(
    "gobblin_startpoint_events",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job", StoredText, nullable=False),
    Column("dataset_urn", StoredText, nullable=False),
    Column("body", StoredText, nullable=False),
)
Index("gobblin_startpoint_events_by_job", startpoint_events.c.job, startpoint_events.c.dataset_urn)

body_parts = Table(
    "gobblin_body_parts",
    metadata,
    # Long texts that bodies of states and sequences have in common, by digest; never changed.
    Column("job", StoredText, primary_key=True),
    Column("dataset_urn", StoredText, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", StoredText, nullable=False),
)
Index("gobblin_body_parts_by_name", body_parts.c.name)

former_bases = Table(
    "gobblin_former_bases",
    metadata,
    # One row in a store that programs without relative paths wrote: the project's folder when the first other one came.
    Column("base", Text, primary_key=True),
)

runs = Table(
    "gobblin_runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("job", StoredText, primary_key=True),
    Column("started_at", UtcDateTime, nullable=False),
    Column("body", StoredText, nullable=False),
)
Index("gobblin_runs_by_job", runs.c.job, runs.c.started_at)
