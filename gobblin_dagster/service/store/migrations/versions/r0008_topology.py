"""Topology files that came over REST."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now the topology is what the folder of topology files holds."""
    op.create_table(
        "gobblin_topology_files",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.Text),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
    )
