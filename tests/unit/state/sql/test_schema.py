from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.errors import CorruptRecordError, StorageError, StoreVersionError
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.database.engine import make_engine, parse_url
from gobblin_dagster.state import open_store
from gobblin_dagster.state.sql import migrations
from gobblin_dagster.state.sql.schema import CHAIN, REVISIONS
from gobblin_dagster.state.sql.tables import VERSION_TABLE, dataset_states, metadata, snapshot_files
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    URN,
    files_of,
    in_order,
    sequence,
    state,
    take,
    wish,
)
from tests.services.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database())


def migrate(engine: Engine, revision: str) -> None:
    """Bring an empty database to an old revision, as a program of that time did."""
    with engine.execution_options(gobblin_write=True).begin() as connection:
        replace(CHAIN, revisions=(revision,)).upgrade(connection, "a test's store")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = make_engine(parse_url(url))
    yield engine
    engine.dispose()


def test_migrations_from_empty_make_the_tables_that_the_code_knows(url: str, engine: Engine) -> None:
    open_store(url, Path()).close()

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == REVISIONS[-1]
        found = {name: inspect(connection).get_indexes(name) for name in metadata.tables}
    # What Alembic does not compare: which rows the partial indexes hold.
    partial = {
        index["name"]: str(next(iter(index["dialect_options"].values())))
        for indexes in found.values()
        for index in indexes
        if any(option.endswith("_where") for option in index.get("dialect_options", {}))
    }
    assert set(partial) == {"gobblin_sequences_one_blocking", "gobblin_sequences_unreported"}
    assert all(state in partial["gobblin_sequences_one_blocking"] for state in ("prepared", "aborting", "quarantined"))
    assert "committed" in partial["gobblin_sequences_unreported"]


def test_the_known_revisions_are_those_that_have_a_migration() -> None:
    scripts = ScriptDirectory(str(Path(str(migrations.__file__)).parent))

    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


def test_a_store_of_an_older_version_is_upgraded_and_keeps_its_data(url: str, engine: Engine) -> None:
    migrate(engine, "0001")
    assert "gobblin_startpoints" not in inspect(engine).get_table_names()
    files = files_of(sequence("one"))
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(
            dataset_states.insert().values(job=JOB, dataset_urn=URN, version=1, body=serialization.to_json(state(1)))
        )
        rows = [{**asdict(file), "job": JOB, "dataset_urn": URN} for file in files]
        connection.execute(snapshot_files.insert().values(rows))

    store = open_store(url, Path())

    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == in_order(files)
    assert store.load_startpoints(JOB) == {}
    seq = sequence("two", 1)
    store.record(seq, take(store).epoch, CommitEffect(state(2), files_of(seq), [files[0].path]))
    assert store.load_snapshot(JOB, URN) == in_order([*files[1:], *files_of(seq)])
    assert store.load_snapshot(JOB, URN, 1) == in_order(files)
    store.close()


def test_files_of_commits_by_an_older_program_beside_are_counted_by_the_next_commit(url: str, engine: Engine) -> None:
    store = open_store(url, Path())
    one, two, three = sequence("one"), sequence("two", 1), sequence("three", 2)
    epoch = take(store).epoch
    store.record(one, epoch, CommitEffect(state(1), files_of(one)))
    store.record(two, epoch, CommitEffect(state(2), files_of(two), [files_of(one)[0].path]))
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(dataset_states.update().values(files=7, removals=7, counted_version=1))

    held = store.load_snapshot(JOB, URN)
    store.record(three, epoch, CommitEffect(state(3), files_of(three), [files_of(two)[0].path]))

    assert store.load_snapshot(JOB, URN, 2) == held
    assert len(store.load_history(JOB, URN)) == 3 * len(files_of(one))
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(snapshot_files.delete().where(snapshot_files.c.path == held[0].path))
    with pytest.raises(CorruptRecordError, match="list of files"):
        store.load_snapshot(JOB, URN)
    store.close()


def test_startpoints_of_an_older_version_are_for_whole_datasets(url: str, engine: Engine) -> None:
    migrate(engine, "0005")
    older = {one.name: one for one in fields(Startpoint)}.keys() - {"partition", "source", "is_copy", "generation"}
    saved = [wish(), wish(urn="größe")]
    with engine.execution_options(gobblin_write=True).begin() as connection:
        for one in saved:
            body = {key: value for key, value in serialization.to_document(one).items() if key in older}
            row = {
                "job": JOB,
                "urn": one.dataset_urn,
                "id": one.id,
                "body": json.dumps(body | {"format": "Startpoint/1"}),
            }
            statement = "INSERT INTO gobblin_startpoints (job, dataset_urn, id, body) VALUES (:job, :urn, :id, :body)"
            connection.execute(text(statement), row)

    store = open_store(url, Path())

    assert store.list_startpoints(JOB) == saved
    part = replace(wish(), partition="a-0")
    store.save_startpoint(part)
    assert store.list_startpoints(JOB) == [saved[0], part, saved[1]]
    store.close()


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(url: str, engine: Engine) -> None:
    open_store(url, Path()).close()
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        for table in metadata.tables:
            connection.execute(text(f"DROP TABLE {table}"))

    with pytest.raises(
        StoreVersionError, match=f"has version 9999; this program knows up to {REVISIONS[-1]}"
    ) as caught:
        open_store(url, Path())

    assert (caught.value.found, caught.value.known) == ("9999", REVISIONS[-1])
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == [VERSION_TABLE]
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all() == ["9999"]


@pytest.mark.parametrize("lost", [f"DELETE FROM {VERSION_TABLE}", f"DROP TABLE {VERSION_TABLE}"], ids=["row", "table"])
def test_store_without_its_version_is_refused_in_words_and_opens_once_it_is_back(
    url: str, engine: Engine, lost: str
) -> None:
    open_store(url, Path()).close()
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(text(lost))
    with pytest.raises(StorageError, match=f"has tables, but nothing in `{VERSION_TABLE}`") as caught:
        open_store(url, Path())
    statements = str(caught.value).partition("add what is missing: ")[2].rstrip(".").split("; ")
    with engine.execution_options(gobblin_write=True).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    open_store(url, Path()).close()


def test_an_interrupted_migration_is_done_again(url: str, engine: Engine) -> None:
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)"))

    store = open_store(url, Path())

    assert store.list_jobs() == []
    store.close()


def test_a_failed_migration_leaves_nothing_behind(url: str, engine: Engine) -> None:
    with engine.execution_options(gobblin_write=True).begin() as connection:
        connection.execute(text("CREATE TABLE gobblin_runs (another INTEGER)"))

    with pytest.raises(Exception, match="gobblin_runs"):
        open_store(url, Path())

    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["gobblin_runs"]


def test_programs_that_open_a_new_store_at_once_share_it(url: str) -> None:
    def open_and_ask(_: int) -> list[str]:
        store = open_store(url, Path())
        jobs = store.list_jobs()
        store.close()
        return jobs

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(open_and_ask, range(8))) == [[]] * 8
