"""Startpoints of partitions and of all jobs, and their history."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the partition to the key of startpoints; those that are there are for whole datasets."""
    # The table is made again, because SQLite cannot change a primary key. It holds few rows.
    rows = op.get_bind().execute(sa.text("SELECT job, dataset_urn, id, body FROM gobblin_startpoints")).mappings().all()
    op.drop_table("gobblin_startpoints")
    made = op.create_table(
        "gobblin_startpoints",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("dataset_urn", sa.Text, primary_key=True),
        sa.Column("partition", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.bulk_insert(made, [{**row, "partition": ""} for row in rows])
    op.create_table(
        "gobblin_startpoint_events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("dataset_urn", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("gobblin_startpoint_events_by_job", "gobblin_startpoint_events", ["job", "dataset_urn"])
