"""The ways that routed flows took last, in their own executions or in those of flows whose children they are."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Ways of executions that are there are read from their jobs, until the flow's next execution."""
    op.create_table(
        "gobblin_ways",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("jobs", sa.Text, nullable=False),
    )
