"""Nodes of the service, and which of them holds a job."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Jobs that are stored belong to nobody: the first node takes up those that are not over."""
    op.create_table(
        "gobblin_nodes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("started_at", _INSTANT, nullable=False),
        sa.Column("seen_at", _INSTANT, nullable=False),
        sa.Column("clock_at", _INSTANT, nullable=False),
    )
    op.add_column("gobblin_job_executions", sa.Column("holder", sa.Text, nullable=False, server_default=""))
