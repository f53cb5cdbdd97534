"""Alembic migrations of the service's tables; the rules are those of `state.sql.migrations`."""
