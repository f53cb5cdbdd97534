"""Tables of the service, as SQLAlchemy Core knows them.

The migrations under `migrations/` make the tables; a test holds both descriptions equal. What the database must check,
find or sort by stands in columns of its own; the rest is JSON. Instants whose name ends in `_ms` are epoch
milliseconds, because Gobblin's execution ids are.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, Text, false

from gobblin_dagster.database.types import UtcDateTime

metadata = MetaData()

VERSION_TABLE = "gobblin_service_version"
"""Alembic's own table: the revision of the service's tables."""

# SQLite counts up by itself in INTEGER columns only.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

flows = Table(
    "gobblin_flows",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("change", Text, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("is_paused", Boolean, nullable=False),
    Column("managed_by", Text, nullable=False),
    # What filters ask for.
    Column("template_uris", Text, nullable=False),
    Column("cron", Text),
    Column("is_run_immediately", Boolean, nullable=False),
    Column("owning_group", Text),
    # The scheduler's: empty if the flow is not to fire.
    Column("next_fire_ms", BigInteger),
    Index("gobblin_flows_due", "next_fire_ms"),
    Index("gobblin_flows_by_name", "flow_name"),
    Index("gobblin_flows_by_owner", "owning_group"),
)
"""Flows that exist; the newest version of each."""

flow_properties = Table(
    "gobblin_flow_properties",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    # Stands for the value in the index: PostgreSQL indexes no text of more than 2,700 bytes. Empty in rows of programs
    # before revision 0005.
    Column("value_digest", Text, nullable=False, server_default=""),
    Index("gobblin_flow_properties_by_value", "name", "value_digest"),
)
"""Properties of the flows that exist, for filters."""

flow_versions = Table(
    "gobblin_flow_versions",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("flow_group", Text, nullable=False),
    Column("flow_name", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("change", Text, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("is_paused", Boolean, nullable=False),
    Column("managed_by", Text, nullable=False),
    Index("gobblin_flow_versions_key", "flow_group", "flow_name", "version", unique=True),
    sqlite_autoincrement=True,
)
"""Every version of every flow, and the list of all changes that other nodes read."""

requests = Table(
    "gobblin_requests",
    metadata,
    Column("idempotency_key", Text, primary_key=True),
    Column("principal", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Index("gobblin_requests_by_age", "at"),
)
"""Answers to requests that carried an `Idempotency-Key`."""

executions = Table(
    "gobblin_flow_executions",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("execution_id", BigInteger, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("is_kill_requested", Boolean, nullable=False),
    Column("is_over", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # Empty if the execution may take as long as it likes.
    Column("finish_by", UtcDateTime),
    Column("on_failure", Text, nullable=False, server_default="FINISH_ALL_POSSIBLE"),
    # For whom it runs; empty in rows of programs before revision 0007.
    Column("user_name", Text, nullable=False, server_default=""),
    # The group that owns the flow; empty if none does, and in rows of programs before revision 0010.
    Column("owning_group", Text, nullable=False, server_default=""),
    Index("gobblin_flow_executions_open", "is_over", "created_at"),
    Index("gobblin_flow_executions_ended", "ended_at"),
)
"""Executions of flows; one row for each fire time, so that none fires twice."""

jobs = Table(
    "gobblin_job_executions",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("execution_id", BigInteger, primary_key=True),
    Column("job_name", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("parents", Text, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("executor", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("processed_count", BigInteger, nullable=False),
    Column("low_watermark", Text, nullable=False),
    Column("high_watermark", Text, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("start_within_s", BigInteger),
    # Empty unless the job waits for its start, and must have started by then.
    Column("start_by", UtcDateTime),
    # The node whose executor took the job; empty before.
    Column("holder", Text, nullable=False, server_default=""),
    # Whether a person ended this job.
    Column("is_kill_requested", Boolean, nullable=False, server_default=false()),
    # The flow that has the job: a child, with its version, if the execution is one of a flow of flows.
    Column("of_group", Text, nullable=False, server_default=""),
    Column("of_name", Text, nullable=False, server_default=""),
    Column("of_version", BigInteger),
    Index("gobblin_job_executions_to_start", "start_by"),
    Index("gobblin_job_executions_by_name", "job_name", "execution_id"),
    Index("gobblin_job_executions_of_flow", "of_group", "of_name", "execution_id"),
)
"""Jobs of executions."""

outbox = Table(
    "gobblin_outbox",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("executor", Text, nullable=False),
    Column("flow_group", Text, nullable=False),
    Column("flow_name", Text, nullable=False),
    Column("execution_id", BigInteger, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("order", Text, nullable=False),
    Index("gobblin_outbox_by_executor", "executor", "number"),
    sqlite_autoincrement=True,
)
"""Orders to executors (`start`, `stop`), written in the transaction that decided them; deleted once handed over."""

events = Table(
    "gobblin_events",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("flow_group", Text, nullable=False),
    Column("flow_name", Text, nullable=False),
    Column("execution_id", BigInteger, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False),
    Index("gobblin_events_by_execution", "flow_group", "flow_name", "execution_id", "number"),
    sqlite_autoincrement=True,
)
"""What happened in executions, in order; `job_name` is empty for what concerns the whole flow."""

roles = Table(
    "gobblin_roles",
    metadata,
    Column("role", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until", UtcDateTime, nullable=False),
)
"""Which node holds which role, and until when."""

nodes = Table(
    "gobblin_nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("program", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    Column("clock_at", UtcDateTime, nullable=False),
    # The executor whose jobs the process runs; empty if it is a node of the service.
    Column("executor", Text, nullable=False, server_default=""),
    # What a worker can do, as JSON.
    Column("about", Text, nullable=False, server_default="{}"),
)
"""Processes of the service and workers, and when each was last heard of."""

worker_jobs = Table(
    "gobblin_worker_jobs",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("execution_id", BigInteger, primary_key=True),
    Column("job_name", Text, primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("executor", Text, nullable=False),
    Column("body", Text, nullable=False),
    # The worker that took the job; empty before.
    Column("holder", Text, nullable=False),
    # The engine's run; empty until the job was handed over.
    Column("run_id", Text, nullable=False),
    Column("is_stop_requested", Boolean, nullable=False),
    Column("is_over", Boolean, nullable=False),
    # The newest report as JSON, its status, and the newest status that the service has taken in.
    Column("report", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("told", Text, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Index("gobblin_worker_jobs_open", "executor", "is_over"),
)
"""Jobs that were ordered from workers: each attempt is one row, so that it begins once however often it is ordered."""

topology_files = Table(
    "gobblin_topology_files",
    metadata,
    Column("name", Text, primary_key=True),
    # Empty once the file was deleted: its row stays, so that versions only grow.
    Column("body", Text),
    Column("version", BigInteger, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("changed_by", Text, nullable=False),
)
"""Topology files that came over REST; versions count all changes of all files."""

state_places = Table(
    "gobblin_state_places",
    metadata,
    Column("executor", Text, primary_key=True),
    Column("place", Text, primary_key=True),
)
"""Where workers of each executor have kept watermarks."""

ways = Table(
    "gobblin_ways",
    metadata,
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    # What the flow said of its way, and the names of its jobs, as JSON.
    Column("route", Text, nullable=False),
    Column("jobs", Text, nullable=False),
)
"""The ways that routed flows took last."""

flow_places = Table(
    "gobblin_flow_places",
    metadata,
    Column("job_name", Text, primary_key=True),
    # A digest: PostgreSQL indexes no text of more than 2,700 bytes.
    Column("place", Text, primary_key=True),
    Column("flow_group", Text, primary_key=True),
    Column("flow_name", Text, primary_key=True),
    Column("rows_digest", Text, nullable=False, server_default=""),
    Index("gobblin_flow_places_of_flow", "flow_group", "flow_name"),
    Index("gobblin_flow_places_by_place", "place"),
)
"""Where the jobs of the flows of the catalog publish, and what, as these were posted or began last."""

audit = Table(
    "gobblin_audit",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False),
    Column("principal", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("digest", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""Who did what, and what was refused; each row's digest covers the one before it."""
