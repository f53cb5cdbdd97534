"""State stores in which executors keep watermarks."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now nothing is known; each worker says it when it starts."""
    op.create_table(
        "gobblin_state_places",
        sa.Column("executor", sa.Text, primary_key=True),
        sa.Column("place", sa.Text, primary_key=True),
    )
