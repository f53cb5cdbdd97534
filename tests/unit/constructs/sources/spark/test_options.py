"""Options of source `spark`, messages for Spark's errors, and positions behind snapshots: without Spark."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType
from gobblin_dagster.constructs.sources.spark.column import Column
from gobblin_dagster.constructs.sources.spark.errors import read_error, spark_gone, spark_problem
from gobblin_dagster.constructs.sources.spark.frames import quoted
from gobblin_dagster.core.errors import ExtractError, SparkLostError, TransientError
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.watermark.table_snapshot import TableSnapshotWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.context import TaskInput

FILES = {"format": "parquet", "path": "data"}
LONG = {"watermark": {"column": "id", "type": "long"}}
ICEBERG = {"table": "lake.db.t", "watermark": {"snapshot": "iceberg"}}


@pytest.mark.parametrize(
    "options",
    [
        FILES | LONG,
        FILES,
        {"format": "jdbc", "options": {"url": "jdbc:x", "dbtable": "t", "fetchsize": 100}} | LONG,
        {"table": "a.b.{dataset}", "datasets": ["x*", "y"]} | LONG,
        {"query": "select * from {v}", "views": {"v": FILES}} | LONG,
        {"query": "/* all\n */ -- of it\n ((SELECT 1 as id))"} | LONG,
        ICEBERG | {"snapshots_per_work_unit": 3},
        {"format": "delta", "path": "d", "watermark": {"snapshot": "delta"}},
        FILES
        | {"watermark": {"column": "day", "type": "date"}, "max_watermark": "CURRENTDATE-2", "start": "2026-01-01"},
    ],
    ids=["files", "full", "jdbc", "globs", "query", "comments", "iceberg", "delta", "days"],
)
def test_declaration_holds(options: dict[str, Any]) -> None:
    assert registry.check(ConstructKind.SOURCE, "spark", options) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "expected one of `format`"),
        (FILES | {"query": "select 1"}, "expected one of `format`"),
        ({"path": "data"}, "`path` and `columns` need a `format`"),
        ({"table": "t", "path": "data"}, "`table` takes no `path`"),
        ({"query": "select 1", "options": {"a": 1}}, "a `query` reads tables and `views`"),
        (FILES | {"views": {"v": FILES}}, "`views` are for a `query`"),
        ({"query": "select 1", "views": {"v": FILES}}, "the query does not read {v}"),
        (FILES | {"sql": "select 1"}, "expected a query over {rows}"),
        (FILES | {"datasets": ["a"]}, "need each other"),
        ({"format": "csv", "path": "{dataset}"}, "need each other"),
        ({"format": "csv", "path": "{dataset}", "datasets": ["a", "a"]}, "a more than once"),
        ({"format": "csv", "path": "{dataset}", "datasets": ["a*"]}, "globs need a `table`"),
        (FILES | {"watermark": {}}, "either `column`"),
        (FILES | {"watermark": {"column": "a", "snapshot": "delta"}}, "either `column`"),
        (ICEBERG | {"watermark": {"snapshot": "iceberg", "type": "long"}}, "type: is that of a `column`"),
        (FILES | {"watermark": {"snapshot": "iceberg"}}, "snapshots need a `table`, or `format: iceberg`"),
        ({"query": "select 1", "watermark": {"snapshot": "iceberg"}}, "snapshots need a `table`"),
        (ICEBERG | {"start": 3}, "start: is for a `watermark` with a `column`"),
        (FILES | {"nulls": "include"}, "nulls: is for a `watermark` with a `column`"),
        (FILES | LONG | {"snapshots_per_work_unit": 1}, "is for a `watermark` with a `snapshot`"),
        (FILES | LONG | {"start": "x"}, "start: expected a whole number"),
        (FILES | LONG | {"lag": "5m"}, "lag: expected a number of positions"),
        (FILES | LONG | {"partition_interval": 0}, "expected more than nothing"),
        (FILES | LONG | {"max_watermark": "CURRENTDATE"}, "max_watermark: is for times"),
        (FILES | {"watermark": {"column": "at"}, "max_watermark": "TODAY"}, "max_watermark: expected CURRENTDATE"),
        (FILES | LONG | {"function": "nothing"}, "expected text that matches"),
        ({"query": "-- all\n drop table t"} | LONG, "query: expected a query that begins with select, with, from"),
        (FILES | LONG | {"sql": "insert into t select * from {rows}"}, "sql: expected a query that begins with select"),
        (FILES | LONG | {"paht": "x"}, "unknown key; did you mean 'path'?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_is_named(options: dict[str, Any], problem: str) -> None:
    faults = registry.check(ConstructKind.SOURCE, "spark", options)
    assert any(problem in why for _, why in faults), faults


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03;\n'Project",
            "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        ),
        (
            "An error occurred while calling o1.load.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: iceberg. Make sure. SQLSTATE: 42K02\n\tat x",
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: iceberg. Make sure. Add its package to "
            "gobblin.yaml: `spark: "
            "{conf: {spark.jars.packages: org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0}}`.",
        ),
        ("java.io.IOException: no space left\n\tat y", "no space left."),
        (
            "o1.collect.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while "
            "reading file x. SQLSTATE: KD001\n\tat y\nCaused by: org.apache.spark.SparkException: [MALFORMED] "
            "Malformed: [2,null].\n\tat z\n"
            'Caused by: java.lang.NumberFormatException: For input string: "x"\n',
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file x: [MALFORMED] Malformed: [2,null].",
        ),
        (
            "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file x. "
            "SQLSTATE: KD001\n\tat y\nCaused by: org.apache.spark.sql.catalyst.parser.ParseException: \n"
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'with'. SQLSTATE: 42601 (line 1, pos 31)\n\n== SQL ==\n",
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file x: "
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'with'.",
        ),
        (
            "java.sql.SQLException: No suitable driver\n\tat z",
            "No suitable driver. Add its JDBC driver to gobblin.yaml: "
            "`spark: {conf: {spark.jars.packages: group:artifact:version}}`.",
        ),
        ("", "RuntimeError."),
    ],
    ids=["condition", "package", "java", "cause", "cause in the next line", "driver", "empty"],
)
def test_error_of_spark_is_one_line(text: str, problem: str) -> None:
    assert spark_problem(RuntimeError(text)) == problem


def test_lost_tasks_are_transient_and_faults_of_the_data_are_not() -> None:
    lost = RuntimeError("Job aborted due to stage failure: Task 0 failed 4 times: ExecutorLostFailure")
    assert isinstance(read_error(lost, "d"), TransientError)
    data = RuntimeError("Job aborted due to stage failure: [CAST_INVALID_INPUT] The value 'x' cannot be cast")
    assert isinstance(read_error(data, "d"), ExtractError)


def test_jvm_that_has_ended_is_named_however_spark_dresses_it_and_a_refusal_elsewhere_is_none() -> None:
    connect = "def connect(): raise ConnectionRefusedError(111, 'Connection refused')"
    found: dict[str, Any] = {}
    for place in ("py4j", "own"):
        exec(compile(connect, f"/lib/{place}/clientserver.py", "exec"), found)
        try:
            try:
                found["connect"]()
            except OSError as error:
                raise RuntimeError(f"[CANNOT_PARSE_DATATYPE] Unable to parse datatype. {error}.") from None
        except RuntimeError as error:
            found[place] = error
    gone = read_error(found["py4j"], "d")
    assert isinstance(gone, SparkLostError)
    assert gone.problem == "Spark has ended: its JVM crashed or was killed."
    assert spark_gone(found["own"]) is None
    assert isinstance(read_error(found["own"], "d"), ExtractError)


@pytest.mark.parametrize(
    ("kind", "cursor", "low", "high", "bound"),
    [
        ("bigint", CursorType.LONG, 0, 1 << 63, "highest"),
        ("timestamp", CursorType.TIMESTAMP, 0, Cursor(CursorType.TIMESTAMP).step(datetime.max) + 1, "highest"),
        ("timestamp_ntz", CursorType.TIMESTAMP, -(10**17), 0, "lowest"),
        ("date", CursorType.DATE, 1, date.max.toordinal() + 1, "highest"),
    ],
)
def test_value_that_nothing_comes_after_is_named(
    kind: str, cursor: CursorType, low: int, high: int, bound: str
) -> None:
    column = Column("`at`", kind, Cursor(cursor))
    column.require_positions(high, low)  # nothing is read
    column.require_positions(max(low, 1), high - 1)
    with pytest.raises(
        ValueError, match=f"the {bound} value of column `at` is at the edge of the range of `type: {cursor}`"
    ):
        column.require_positions(low, high)


def test_name_is_quoted_whatever_it_holds() -> None:
    assert quoted("a`b; drop") == "`a``b; drop`"


def test_places_behind_snapshots_are_ordered_stored_and_merged() -> None:
    marks = [TableSnapshotWatermark(0, 0), TableSnapshotWatermark(2, 900), TableSnapshotWatermark(3, 7)]
    ranges = CommittedRanges(TableSnapshotWatermark, {})
    for low, high in ((marks[1], marks[2]), (marks[0], marks[1])):
        ranges = ranges.add(WatermarkInterval(low, high))
    assert CommittedRanges.from_json(ranges.to_json()) == ranges
    assert (str(ranges), ranges.watermark) == ("[0@0, 3@7)", marks[2])
    task = TaskInput(WorkUnit("0", "d", marks[0], marks[2]), commit_id="c1")
    assert from_json(TaskInput, to_json(task)) == task


@pytest.mark.parametrize("text", ["7", "a@b", ""])
def test_text_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected number@snapshot|invalid literal"):
        TableSnapshotWatermark.position_from_json(text)
