"""How many files and removals of files each dataset has."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add three columns, and count what is there."""
    states = "gobblin_dataset_states"
    for column in ("files", "removals", "counted_version"):
        op.add_column(states, sa.Column(column, sa.BigInteger))
    files, removals = (
        f"(SELECT count(*) FROM {of} WHERE {of}.job = {states}.job AND {of}.dataset_urn = {states}.dataset_urn)"  # noqa: S608
        for of in ("gobblin_snapshot_files", "gobblin_snapshot_removals")
    )
    op.execute(f"UPDATE {states} SET files = {files}, removals = {removals}, counted_version = version")  # noqa: S608
