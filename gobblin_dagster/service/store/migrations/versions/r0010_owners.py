"""Which groups own executions, for quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Executions that are there count for no group."""
    op.add_column("gobblin_flow_executions", sa.Column("owning_group", sa.Text, nullable=False, server_default=""))
