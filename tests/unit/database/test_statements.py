"""Engines that share the SQL of their statements."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from gobblin_dagster.database.statements import share_statements


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQL that was made so far."""
    texts: list[str] = []
    make = SQLCompiler.__init__

    def noted(self: SQLCompiler, *arguments: object, **options: object) -> None:
        make(self, *arguments, **options)  # type: ignore[arg-type]  # passes on what it got
        texts.append(str(self))

    monkeypatch.setattr(SQLCompiler, "__init__", noted)
    return texts


def read(path: Path, columns: list[str], place: str = "") -> list[tuple[object, ...]]:
    """Read a table with an engine of its own, and with one that is made of it, as stores have."""
    engine = sa.create_engine(f"sqlite:///{path}")
    share_statements(engine, place)
    reader = engine.execution_options(reads=True)
    statement: sa.Executable = sa.select(*map(sa.literal_column, columns)).select_from(sa.table("t"))
    with reader.connect() as connection:
        return list(map(tuple, connection.execute(statement)))


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    for number, path in enumerate(paths):
        with sa.create_engine(f"sqlite:///{path}").begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t AS SELECT ? AS id", (number,))
    return paths


def test_second_engine_makes_no_sql_again_and_reads_its_own_database(made: list[str], tables: list[Path]) -> None:
    place = str(tables)  # of this test
    assert read(tables[0], ["id"], place) == [(0,)]
    assert made == ["SELECT id \nFROM t"]
    assert read(tables[1], ["id"], place) == [(1,)]
    assert len(made) == 1


def test_engines_of_databases_of_users_share_within_one_database(made: list[str], tables: list[Path]) -> None:
    for path in (*tables, *tables):
        read(path, ["id"], str(path))
    assert len(made) == 2


def test_long_statements_are_not_kept(made: list[str], tables: list[Path]) -> None:
    for _ in range(2):
        read(tables[0], ["id", "'" + "x" * 20_000 + "'"], str(tables))
    assert len(made) == 2


def test_engine_of_another_kind_makes_its_own_sql(made: list[str], tables: list[Path]) -> None:
    place = str(tables)
    read(tables[0], ["id"], place)
    engine = sa.create_engine(f"sqlite:///{tables[0]}", paramstyle="named")  # known to the dialect
    share_statements(engine, place)
    with engine.connect() as connection:
        connection.execute(sa.select(sa.column("id")).select_from(sa.table("t")))
    assert len(made) == 2
