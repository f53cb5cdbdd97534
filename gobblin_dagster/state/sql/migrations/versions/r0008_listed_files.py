"""How many files and removals of files each dataset has."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns, and count what is there."""
    states = "gobblin_dataset_states"
    for column, table in (("files", "gobblin_snapshot_files"), ("removals", "gobblin_snapshot_removals")):
        op.add_column(states, sa.Column(column, sa.BigInteger, nullable=False, server_default="0"))
        counted = f"SELECT count(*) FROM {table} WHERE {table}.job = {states}.job"  # noqa: S608  # our own names
        op.execute(f"UPDATE {states} SET {column} = ({counted} AND {table}.dataset_urn = {states}.dataset_urn)")  # noqa: S608
