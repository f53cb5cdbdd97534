"""The first tables: dataset states, leases, commit sequences, snapshots and runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)
_BLOCKING = sa.text("state IN ('prepared', 'aborting', 'quarantined')")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "gobblin_dataset_states",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "gobblin_leases",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("boot", sa.Text),
        sa.Column("pid", sa.BigInteger),
        sa.Column("started", sa.Text),
        sa.Column("until", _INSTANT),
    )
    op.create_table(
        "gobblin_sequences",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("dataset_urn", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("version_read", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("redo_failures", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reported", sa.Boolean, nullable=False),
    )
    op.create_index(
        "gobblin_sequences_one_blocking",
        "gobblin_sequences",
        ["job", "dataset_urn"],
        unique=True,
        sqlite_where=_BLOCKING,
        postgresql_where=_BLOCKING,
    )
    op.create_index(
        "gobblin_sequences_unreported",
        "gobblin_sequences",
        ["job"],
        sqlite_where=sa.text("state = 'committed' AND reported IS 0"),
        postgresql_where=sa.text("state = 'committed' AND reported IS false"),
    )
    op.create_index("gobblin_sequences_by_job", "gobblin_sequences", ["job", "number"])
    op.create_table(
        "gobblin_snapshot_files",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("snapshot", sa.BigInteger, nullable=False),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "gobblin_runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("started_at", _INSTANT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("gobblin_runs_by_job", "gobblin_runs", ["job", "started_at"])
