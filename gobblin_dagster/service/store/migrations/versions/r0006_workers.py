"""Workers, and the jobs that were ordered from them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The processes that are known are nodes of the service."""
    op.add_column("gobblin_nodes", sa.Column("executor", sa.Text, nullable=False, server_default=""))
    op.add_column("gobblin_nodes", sa.Column("about", sa.Text, nullable=False, server_default="{}"))
    op.create_table(
        "gobblin_worker_jobs",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("execution_id", sa.BigInteger, primary_key=True),
        sa.Column("job_name", sa.Text, primary_key=True),
        sa.Column("generation", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("is_stop_requested", sa.Boolean, nullable=False),
        sa.Column("is_over", sa.Boolean, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("gobblin_worker_jobs_open", "gobblin_worker_jobs", ["executor", "is_over"])
