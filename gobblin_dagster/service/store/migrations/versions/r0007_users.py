"""Whose executions are, for quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Executions that are there count for nobody."""
    op.add_column("gobblin_flow_executions", sa.Column("user_name", sa.Text, nullable=False, server_default=""))
