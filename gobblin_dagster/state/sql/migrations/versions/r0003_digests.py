"""Digests of states and of the files of snapshots."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to two tables; existing rows have no digest until they are written again."""
    for table in ("gobblin_dataset_states", "gobblin_snapshot_files"):
        op.add_column(table, sa.Column("digest", sa.Text))
