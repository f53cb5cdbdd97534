"""Deadlines of executions and of the start of jobs; executions by the instant at which they ended."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add columns that are empty in what is stored: executions that run have no deadline."""
    op.add_column("gobblin_flow_executions", sa.Column("finish_by", _INSTANT))
    op.create_index("gobblin_flow_executions_ended", "gobblin_flow_executions", ["ended_at"])
    op.add_column("gobblin_job_executions", sa.Column("start_within_s", sa.BigInteger))
    op.add_column("gobblin_job_executions", sa.Column("start_by", _INSTANT))
    op.create_index("gobblin_job_executions_to_start", "gobblin_job_executions", ["start_by"])
