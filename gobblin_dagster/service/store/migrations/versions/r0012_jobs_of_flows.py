"""Which flow has a job: in executions of flows of flows, a child."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLE = "gobblin_job_executions"


def upgrade() -> None:
    """Let jobs that are there belong to the flow of their execution; nobody knows whose child had those of a parent."""
    op.add_column(_TABLE, sa.Column("of_group", sa.Text, nullable=False, server_default=""))
    op.add_column(_TABLE, sa.Column("of_name", sa.Text, nullable=False, server_default=""))
    op.add_column(_TABLE, sa.Column("of_version", sa.BigInteger))
    op.execute(
        f"UPDATE {_TABLE} SET of_group = flow_group, of_name = flow_name WHERE NOT EXISTS ("  # noqa: S608 - a constant
        "SELECT 1 FROM gobblin_flow_properties AS one WHERE one.name = 'flow.children' "
        f"AND one.flow_group = {_TABLE}.flow_group AND one.flow_name = {_TABLE}.flow_name)"
    )
    op.create_index("gobblin_job_executions_by_name", _TABLE, ["job_name", "execution_id"])
    op.create_index("gobblin_job_executions_of_flow", _TABLE, ["of_group", "of_name", "execution_id"])
