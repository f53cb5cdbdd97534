from __future__ import annotations

import sqlite3

import pytest

from gobblin_dagster.constructs.sql.literal import sql_text


@pytest.mark.parametrize("text", ["", "it's", "''", "'; DROP TABLE t; --", "größe\n"])
def test_literal_is_read_back_as_the_text(text: str) -> None:
    with sqlite3.connect(":memory:") as database:
        assert database.execute(f"SELECT {sql_text(text)}").fetchone() == (text,)
