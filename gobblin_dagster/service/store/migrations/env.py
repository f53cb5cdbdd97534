"""Run by Alembic: migrate on the connection, and in the transaction, that `RevisionChain.upgrade` opened."""

from alembic import context

from gobblin_dagster.service.store.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
