"""Paths relative to the project's folder: where that was while paths were absolute."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make room for the project's folder if anything was stored, for the store to fill; absolute paths stay."""
    op.create_table("gobblin_former_bases", sa.Column("base", sa.Text, primary_key=True))
    op.execute("INSERT INTO gobblin_former_bases SELECT '' WHERE EXISTS (SELECT 1 FROM gobblin_sequences)")
