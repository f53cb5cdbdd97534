import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.utils.sqlite import is_locked


def test_only_a_database_that_another_session_holds_is_locked(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as holder,
        closing(sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None)) as other,
    ):
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as held:
            other.execute("CREATE TABLE t (id integer)")
        holder.execute("ROLLBACK")
        with pytest.raises(sqlite3.OperationalError) as absent:
            other.execute("SELECT * FROM t")

    assert is_locked(held.value)
    assert not is_locked(absent.value)
    assert not is_locked(sqlite3.ProgrammingError("raised by Python's driver"))
    assert not is_locked(None)
