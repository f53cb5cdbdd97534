"""What source `spark` would read, by its options: the job's own files, tables and topics, by whatever name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.job import JobSpec

OUTPUT = "lake/n/t/main/n.t"
SQLITE = {"type": "sql_table", "url": "sqlite:///s.db", "table": "orders"}
POSTGRES = {"type": "sql_table", "url": "postgresql://127.0.0.1:5555/d", "table": "orders"}
MARIADB = {"type": "sql_table", "url": "mysql://db/shop", "table": "orders"}
TOPIC = {"type": "kafka_topic", "brokers": "localhost:9092", "topic": "a.b"}


def jdbc(url: str, table: str, **more: Any) -> dict[str, Any]:
    return {"format": "jdbc", "options": {"url": f"jdbc:{url}", "dbtable": table}, **more}


def kafka(**options: str) -> dict[str, Any]:
    return {"format": "kafka", "options": {"kafka.bootstrap.servers": "127.0.0.1", **options}}


@pytest.mark.parametrize(
    ("source", "publisher", "is_refused"),
    [
        ({"format": "parquet", "path": OUTPUT}, "append", True),
        ({"format": "parquet", "options": {"Path": OUTPUT}}, "append", True),
        ({"format": "parquet", "path": "{data,la{b,k}e}/n/t/main/{n.t,x}"}, "append", True),
        ({"format": "parquet", "path": "{data,la{b,d}e}/n/t/main/{n.t,x}"}, "append", False),
        (jdbc("sqlite:s.db", "Orders"), SQLITE, True),
        (jdbc("sqlite:other.db", "Orders"), SQLITE, False),
        (jdbc("postgresql://localhost:5555/d?user=a", "public.ORDERS"), POSTGRES, True),
        (jdbc("postgresql://localhost:5555/d", '"ORDERS"'), POSTGRES, False),
        (jdbc("postgresql://localhost:5555/d?currentSchema=mart", "orders"), POSTGRES, False),
        (jdbc("postgresql://localhost:5555/d", "(select * from orders) o"), POSTGRES, False),
        (jdbc("postgresql://localhost:5555/d", "public.{dataset}", datasets=["x", "orders"]), POSTGRES, True),
        (jdbc("postgresql://localhost:5555/d", "public.{dataset}", datasets=["x", "y"]), POSTGRES, False),
        (jdbc("mariadb://db:3306/shop", "`orders`"), MARIADB, True),
        (jdbc("mysql://db/other", "shop.orders"), MARIADB, True),
        (jdbc("oracle:thin:@db:1521", "orders"), MARIADB, False),
        (kafka(subscribe="x, a.b"), TOPIC, True),
        (kafka(subscribePattern="a.*"), TOPIC, True),
        (kafka(assign='{"a.b": [0]}'), TOPIC, True),
        (kafka(subscribe="a_b", subscribePattern="(?U-", assign="["), TOPIC, False),
    ],
)
def test_own_output_is_refused(tmp_path: Path, source: dict[str, Any], publisher: Any, is_refused: bool) -> None:
    watermark = {"column": "id", "type": "long"}
    parts = {"extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}, "publisher": publisher}
    job = JobSpec.model_validate({"job": "j", "source": {"type": "spark", "watermark": watermark, **source}, **parts})
    if not is_refused:
        check_parts(job, tmp_path)
        return
    with pytest.raises(UsageError, match="the source would read what branch 'main' publishes"):
        check_parts(job, tmp_path)
