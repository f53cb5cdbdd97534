"""The migrations make the tables that the code knows."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import StoreVersionError
from gobblin_dagster.service.store.schema import CHAIN
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import VERSION_TABLE, metadata


def test_migrations_make_the_tables_that_the_code_knows(store: ServiceStore) -> None:
    with store.read() as transaction:
        context = MigrationContext.configure(transaction, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_store_of_a_newer_program_is_refused_and_left_alone(store: ServiceStore, store_url: str) -> None:
    with store.write() as transaction:
        transaction.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreVersionError, match="9999"):
        ServiceStore(store_url, SystemClock())
    with store.read() as transaction:
        assert transaction.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "9999"


def test_service_and_state_store_share_a_database(store: ServiceStore, store_url: str) -> None:
    from gobblin_dagster.state.sql.store import SqlStateStore

    SqlStateStore(store_url, SystemClock()).close()
    with store.read() as transaction:
        assert CHAIN.is_current(transaction, store.url)
    assert CHAIN.revisions[0] == "0001"
