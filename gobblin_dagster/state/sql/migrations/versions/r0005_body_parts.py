"""Long texts that bodies have in common."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; bodies that are there stay whole."""
    op.create_table(
        "gobblin_body_parts",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("gobblin_body_parts_by_name", "gobblin_body_parts", ["name"])
