"""A job whose source would read the table or topic that it publishes to is refused when it is checked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.job import JobSpec

SQL = {"type": "query", "watermark": {"column": "id", "type": "long"}}
TOPIC = {"type": "kafka_topic", "brokers": "127.0.0.1:9092,b:1", "topic": "orders"}


def check(root: Path, source: dict[str, Any], publisher: dict[str, Any], branches: Sequence[str] = ()) -> None:
    body = {"job": "j", "source": source, "publisher": publisher, "output": {"path": "lake"}}
    if branches:
        body["fork"] = {"operator": {"type": "round_robin"}, "branches": [{"name": name} for name in branches]}
    check_parts(JobSpec.model_validate(body | {"extract": {"namespace": "n", "table": "t"}}), root)


def table(url: str, name: str) -> dict[str, Any]:
    return {"type": "sql_table", "url": url, "table": name}


@pytest.mark.parametrize(
    ("source", "publisher"),
    [
        (SQL | {"url": "sqlite:///x.db", "tables": ["t"]}, table("sqlite:///x.db", "main.t")),
        (SQL | {"url": "sqlite:///x.db", "include": [".*"]}, table("sqlite:///./x.db", "x_{dataset}")),
        (SQL | {"url": "sqlite:///x.db", "tables": ["orders"]}, table("sqlite:///x.db", "Main.Orders")),
        (SQL | {"url": "sqlite:///x.db", "include": [r"main\.ord.*"]}, table("sqlite:///x.db", "Orders")),
        (SQL | {"url": "postgresql://u:w@localhost/d", "tables": ["t"]}, table("postgres://127.0.0.1:5432/d", "t")),
        (SQL | {"url": "mysql://h/d", "tables": ["d.t"]}, table("mariadb+pymysql://H:3306/d", "t")),
        (SQL | {"url": "postgresql:///d?host=%2Ftmp", "tables": ["t"]}, table("postgresql://[::1]/d", "t")),
        ({"type": "kafka", "brokers": "LOCALHOST:9092", "topics": ["or.*"]}, TOPIC),
        ({"type": "kafka", "brokers": "PLAINTEXT://[::1]", "topics": ["or.*"]}, TOPIC),
        ({"type": "kafka", "brokers": "b:1", "exclude": ["orders"]}, TOPIC),  # the notes of commits are left
    ],
    ids=["table", "pattern", "case", "case of a pattern", "ports", "backends", "socket", "topic", "broker", "notes"],
)
def test_source_that_reads_the_jobs_own_table_or_topic_is_refused(
    tmp_path: Path, source: dict[str, Any], publisher: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"would read what branch 'main' publishes \((?!.*:w@).*\), again and again"):
        check(tmp_path, source, publisher)


@pytest.mark.parametrize(
    ("options", "read", "is_refused"),
    [
        ("-csearch_path=shop", "shop.t", True),
        ("-c search_path=Shop,public", "shop.t", True),
        ('--search-path="Shop"', "Shop.t", True),
        ('-cwork_mem=4MB -csearch_path="$user",\\ shop', "shop.t", True),
        ("-csearch_path=shop", "public.t", False),
        ("-cwork_mem=4MB", "public.t", True),
    ],
)
def test_table_without_a_schema_is_in_that_of_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, read: str, is_refused: bool
) -> None:
    """Rows of `shop.t` were doubled by each run, and a job that reads `public.t` was refused."""
    source = SQL | {"url": "postgresql://h/d", "tables": [read]}
    with pytest.raises(UsageError, match="would read what branch 'main'") if is_refused else nullcontext():
        check(tmp_path, source, table(f"postgresql://h/d?options={quote(options)}", "t"))
    monkeypatch.setenv("PGOPTIONS", options)
    with pytest.raises(UsageError, match="would read what branch 'main'") if is_refused else nullcontext():
        check(tmp_path, source, table("postgresql://h/d", "t"))


@pytest.mark.parametrize(
    "url", ["sqlite:///jobs/../x.db", "sqlite:///file.db", "sqlite:///folder/x.db", "sqlite:///hard.db"]
)
def test_file_of_sqlite_by_another_name_is_the_jobs_own_too(tmp_path: Path, url: str) -> None:
    (tmp_path / "x.db").touch()
    (tmp_path / "hard.db").hardlink_to(tmp_path / "x.db")
    (tmp_path / "file.db").symlink_to(tmp_path / "x.db")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="would read what branch 'main' publishes"):
        check(tmp_path, SQL | {"url": url, "tables": ["t"]}, table("sqlite:///x.db", "t"))


@pytest.mark.parametrize(
    ("path", "more", "is_refused"),
    [
        ("lake/n/t/main/n.t", {}, True),
        ("lake/n/t/main/n.t/", {}, True),
        ("file://{root}/lake/n/t/ma*/n.t", {}, True),
        ("file:{root}/lake/n/t/main/n.t", {}, True),
        ("lake/n/t/main/{dataset}", {"datasets": ["a", "b"]}, True),
        ("lake/n/t/main/n.t/*.parquet", {}, True),
        ("*/n/t/main/n.t", {}, True),
        ("lake/n", {"options": {"recursiveFileLookup": True}}, True),
        ("lake/n", {}, False),  # Spark reads no folders below but those of partitions
        ("lake/n/t/main/n.t/*.csv", {}, False),
        ("lake/n/u/main/n.t", {}, False),
        ("s3a://bucket/lake", {}, False),
    ],
)
def test_spark_reads_no_folder_that_the_job_publishes_to(
    tmp_path: Path, path: str, more: dict[str, Any], is_refused: bool
) -> None:
    """Each run read what the last one wrote: 2, 4, 8 rows."""
    source = {"type": "spark", "format": "parquet", "path": path.replace("{root}", str(tmp_path))} | more
    mark = {"watermark": {"column": "id", "type": "long"}}
    with pytest.raises(UsageError, match="would read what branch 'main' publishes") if is_refused else nullcontext():
        check(tmp_path, source | mark, {"type": "append"})


def test_spark_reads_no_bucket_that_the_job_publishes_to_under_another_scheme(tmp_path: Path) -> None:
    spark = {"type": "spark", "format": "parquet", "path": "s3a://b/lake/n/t/main/n.t", "watermark": SQL["watermark"]}
    body = {"job": "j", "source": spark, "extract": {"namespace": "n", "table": "t"}, "output": {"path": "s3://b/lake"}}
    with pytest.raises(UsageError, match="would read what branch 'main' publishes"):
        check_parts(JobSpec.model_validate(body), tmp_path)


def test_spark_reads_no_partitions_that_the_job_publishes(tmp_path: Path) -> None:
    spark = {"type": "spark", "format": "parquet", "path": "lake/n/t/main/n.t", "watermark": SQL["watermark"]}
    writer = {"type": "parquet", "partition_by": ["id"]}
    body = {"job": "j", "source": spark, "writer": writer, "extract": {"namespace": "n", "table": "t"}}
    with pytest.raises(UsageError, match="would read what branch 'main' publishes"):
        check_parts(JobSpec.model_validate(body | {"output": {"path": "lake"}}), tmp_path)


@pytest.mark.parametrize(
    ("source", "publisher"),
    [
        (SQL | {"url": "sqlite:///x.db", "tables": ["s"]}, table("sqlite:///x.db", "t")),
        (SQL | {"url": "sqlite:///y.db", "tables": ["t"]}, table("sqlite:///x.db", "t")),
        (SQL | {"url": "postgresql://h/d", "tables": ["t"]}, table("postgresql://h/d", "T")),
        (SQL | {"url": "postgresql:///d?host=a", "tables": ["t"]}, table("postgresql:///d?host=b", "t")),
        (SQL | {"url": "sqlite:///x.db", "query": "select id from t"}, table("sqlite:///x.db", "t")),
        (
            SQL | {"url": "sqlite:///x.db", "include": [".*"], "exclude": [r"main\.(t|gobblin_commits)"]},
            table("sqlite:///x.db", "t"),
        ),
        ({"type": "kafka", "brokers": "127.0.0.1:9092", "topics": ["other"]}, TOPIC),
        ({"type": "kafka", "brokers": "c:1"}, TOPIC),
    ],
    ids=["table", "database", "case in PostgreSQL", "hosts of options", "query", "excluded", "topic", "cluster"],
)
def test_other_tables_and_topics_are_read(tmp_path: Path, source: dict[str, Any], publisher: dict[str, Any]) -> None:
    check(tmp_path, source, publisher)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "files", "format": "parquet", "path": "LAKE/{dataset:**}/*"},
        {"type": "spark", "format": "parquet", "path": "LAKE/n/t/main/n.t"} | {"watermark": SQL["watermark"]},
    ],
    ids=["files", "spark"],
)
def test_output_is_known_in_other_case_where_the_file_system_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any]
) -> None:
    check(tmp_path, source, {"type": "append"})  # two folders
    monkeypatch.setattr(Path, "samefile", lambda one, other: str(one).lower() == str(other).lower())
    with pytest.raises(UsageError, match="would read what branch 'main' publishes"):
        check(tmp_path, source, {"type": "append"})


def test_check_takes_no_time_for_each_pair_of_dataset_and_branch(tmp_path: Path) -> None:
    names = ",".join(f"d{number}" for number in range(300))
    source = {"type": "files", "format": "parquet", "path": f"in/{{dataset:{names}}}/*"}
    begin = time.process_time()
    check(tmp_path, source, {"type": "append"}, branches=[f"b{number}" for number in range(300)])
    assert time.process_time() - begin < 3
