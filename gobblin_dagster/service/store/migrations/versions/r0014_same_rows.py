"""Which jobs of flows publish the same rows.

Of flows that are there nobody knows it until they are posted again, or begin.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("gobblin_flow_places", sa.Column("rows_digest", sa.Text, nullable=False, server_default=""))
