"""Files that snapshots no longer hold, and startpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables; existing tables do not change."""
    op.create_table(
        "gobblin_snapshot_removals",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("snapshot", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    op.create_table(
        "gobblin_startpoints",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
