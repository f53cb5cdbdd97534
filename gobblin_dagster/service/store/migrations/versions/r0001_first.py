"""The first tables: flows with their history, requests, executions, jobs, outbox, events, roles and audit."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make everything from nothing."""
    op.create_table(
        "gobblin_flows",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("managed_by", sa.Text, nullable=False),
        sa.Column("template_uris", sa.Text, nullable=False),
        sa.Column("cron", sa.Text),
        sa.Column("is_run_immediately", sa.Boolean, nullable=False),
        sa.Column("owning_group", sa.Text),
        sa.Column("next_fire_ms", sa.BigInteger),
    )
    op.create_index("gobblin_flows_due", "gobblin_flows", ["next_fire_ms"])
    op.create_index("gobblin_flows_by_name", "gobblin_flows", ["flow_name"])
    op.create_index("gobblin_flows_by_owner", "gobblin_flows", ["owning_group"])
    op.create_table(
        "gobblin_flow_properties",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("gobblin_flow_properties_by_name", "gobblin_flow_properties", ["name"])
    op.create_table(
        "gobblin_flow_versions",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("flow_group", sa.Text, nullable=False),
        sa.Column("flow_name", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("managed_by", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "gobblin_flow_versions_key", "gobblin_flow_versions", ["flow_group", "flow_name", "version"], unique=True
    )
    op.create_table(
        "gobblin_requests",
        sa.Column("idempotency_key", sa.Text, primary_key=True),
        sa.Column("principal", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
    )
    op.create_index("gobblin_requests_by_age", "gobblin_requests", ["at"])
    op.create_table(
        "gobblin_flow_executions",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("execution_id", sa.BigInteger, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("trigger", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("is_kill_requested", sa.Boolean, nullable=False),
        sa.Column("is_over", sa.Boolean, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT),
    )
    op.create_index("gobblin_flow_executions_open", "gobblin_flow_executions", ["is_over", "created_at"])
    op.create_table(
        "gobblin_job_executions",
        sa.Column("flow_group", sa.Text, primary_key=True),
        sa.Column("flow_name", sa.Text, primary_key=True),
        sa.Column("execution_id", sa.BigInteger, primary_key=True),
        sa.Column("job_name", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("parents", sa.Text, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("processed_count", sa.BigInteger, nullable=False),
        sa.Column("low_watermark", sa.Text, nullable=False),
        sa.Column("high_watermark", sa.Text, nullable=False),
        sa.Column("started_at", _INSTANT),
        sa.Column("ended_at", _INSTANT),
    )
    op.create_table(
        "gobblin_outbox",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("executor", sa.Text, nullable=False),
        sa.Column("flow_group", sa.Text, nullable=False),
        sa.Column("flow_name", sa.Text, nullable=False),
        sa.Column("execution_id", sa.BigInteger, nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("order", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("gobblin_outbox_by_executor", "gobblin_outbox", ["executor", "number"])
    op.create_table(
        "gobblin_events",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("flow_group", sa.Text, nullable=False),
        sa.Column("flow_name", sa.Text, nullable=False),
        sa.Column("execution_id", sa.BigInteger, nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "gobblin_events_by_execution", "gobblin_events", ["flow_group", "flow_name", "execution_id", "number"]
    )
    op.create_table(
        "gobblin_roles",
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("until", _INSTANT, nullable=False),
    )
    op.create_table(
        "gobblin_audit",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
