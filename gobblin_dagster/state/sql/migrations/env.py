"""Run by Alembic: migrate in the connection and transaction of `RevisionChain.upgrade`."""

from alembic import context

from gobblin_dagster.state.sql.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
