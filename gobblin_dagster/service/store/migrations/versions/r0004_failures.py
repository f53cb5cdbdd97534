"""What becomes of a flow when a job fails; jobs that a person ended."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Executions that run go on with all jobs that can; nobody ended one of their jobs."""
    all_possible = sa.Column("on_failure", sa.Text, nullable=False, server_default="FINISH_ALL_POSSIBLE")
    op.add_column("gobblin_flow_executions", all_possible)
    killed = sa.Column("is_kill_requested", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("gobblin_job_executions", killed)
