"""Which columns of a database become wider; on real servers: `test_publish_postgres`, `test_publish_mariadb`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from gobblin_dagster.constructs.publishers.sql_widen import held_type
from gobblin_dagster.core.run_record import DatasetOutcome
from tests.unit.constructs.publishers.table_jobs import table_job
from tests.unit.constructs.publishers.test_sql_table import APPEND, query
from tests.unit.engine.jobs import run


@pytest.mark.parametrize(
    ("column", "dialect", "held"),
    [
        (sa.INTEGER(), "postgresql", pa.int32()),
        (sa.REAL(), "postgresql", pa.float32()),
        (sa.NUMERIC(50, 2), "postgresql", pa.decimal256(50, 2)),
        (sa.NUMERIC(), "postgresql", None),
        (postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql", pa.timestamp("ms", "UTC")),
        (postgresql.DOMAIN("whole", sa.INTEGER()), "postgresql", None),
        (sa.VARCHAR(3), "postgresql", None),
        (mysql.INTEGER(unsigned=True), "mysql", pa.uint32()),
        (mysql.TINYINT(display_width=1), "mariadb", None),
        (mysql.MEDIUMINT(), "mariadb", pa.int32()),
        (mysql.FLOAT(), "mariadb", pa.float32()),
        (mysql.DATETIME(), "mariadb", pa.timestamp("s")),
        (mysql.TIMESTAMP(fsp=6), "mariadb", None),
        (sa.INTEGER(), "sqlite", None),
    ],
)
def test_column_holds_the_values_of_a_type(
    column: sa.types.TypeEngine[Any], dialect: str, held: pa.DataType | None
) -> None:
    assert held_type(column, dialect) == held


def test_sqlite_holds_fractions_and_large_numbers_without_a_change(tmp_path: Path) -> None:
    def run_with(rows: int, value: str) -> DatasetOutcome:
        converters = [{"type": "sql", "select": f"id, {value} AS v"}]
        job = table_job(APPEND, {"c": {"rows": rows}}, converters=converters, schema_contract="evolve")
        return run(tmp_path, job).datasets[0].outcome

    outcomes = [run_with(1, "7::INTEGER"), run_with(2, "0.1::DOUBLE")]
    assert outcomes == [DatasetOutcome.COMMITTED] * 2
    assert query(tmp_path, "SELECT v FROM numbers ORDER BY id") == [(7,), (0.1,)]
