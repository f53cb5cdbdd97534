"""Where the jobs of flows publish: workers that do not reach this database learn from their orders who publishes there.

Flows that are there have none until they are posted again, or begin.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLE = "gobblin_flow_places"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        _TABLE,
        sa.Column("job_name", sa.Text, primary_key=True),
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
    )
    op.create_index("gobblin_flow_places_of_flow", _TABLE, ["flow_group", "flow_name"])
    op.create_index("gobblin_flow_places_by_place", _TABLE, ["place"])
