"""Paths relative to the project's folder: a table for the folder at the time when stored paths were absolute."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table with an empty row, which the store fills, if anything was stored; absolute paths in rows stay."""
    op.create_table("gobblin_former_bases", sa.Column("base", sa.Text, primary_key=True))
    op.execute("INSERT INTO gobblin_former_bases SELECT '' WHERE EXISTS (SELECT 1 FROM gobblin_sequences)")
