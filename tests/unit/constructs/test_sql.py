from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from gobblin_dagster.constructs import sql, sql_limits
from gobblin_dagster.constructs.sql import SqlMasks, SqlSelect
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch


def _select(text: str) -> SqlSelect:
    return SqlSelect(text, "converter 'test'", CONTEXT)


@pytest.mark.parametrize(
    "expression",
    [
        "(SELECT count(*) FROM read_csv('{file}'))",
        "(SELECT count(*) FROM read_text('{file}'))",
        "(SELECT content FROM read_blob('{file}'))",
        "(SELECT count(*) FROM '{file}')",
        "(SELECT count(*) FROM glob('{folder}/*'))",
        "(SELECT count(*) FROM read_parquet('https://127.0.0.1:9/x.parquet'))",
        "getenv('HOME')",
        "1; COPY (SELECT 1) TO '{folder}/out.csv'",
        "1; ATTACH '{folder}/other.db'",
        "1; INSTALL httpfs",
        "1; LOAD httpfs",
        "1; SET enable_external_access = true",
        "1; SET lock_configuration = false",
    ],
)
def test_expression_reaches_nothing_but_its_batch(expression: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(ConvertError):
        _select(expression.format(file=secret, folder=tmp_path)).run(batch({"a": [1]}))
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    "statement",
    ["SET enable_external_access = true", "SET lock_configuration = false", "SET memory_limit = '64GB'", "LOAD httpfs"],
)
def test_connection_is_locked(statement: str) -> None:
    import duckdb

    with pytest.raises(duckdb.Error):
        sql._session()._connection.execute(statement)


def test_python_variables_are_out_of_reach() -> None:
    private = pa.table({"password": ["x"]})
    with pytest.raises(ConvertError, match="private"):
        _select("(SELECT password FROM private)").run(batch({"a": [1]}))
    assert private.num_rows == 1


def test_error_names_dataset_expression_columns_and_cause() -> None:
    with pytest.raises(ConvertError) as caught:
        _select("dep_tme + 1").schema(pa.schema([("dep_time", pa.int32()), ("dest", pa.string())]))
    text = str(caught.value)
    assert "'AA/EWR'" in text
    assert "'dep_tme + 1'" in text
    assert 'Referenced column "dep_tme" not found' in text
    assert text.endswith("columns: dep_time, dest")
    assert "LINE" not in text


def test_error_text_is_bounded() -> None:
    wide = pa.schema([(f"column_{at}", pa.int32()) for at in range(1000)])
    with pytest.raises(ConvertError, match=r"\(1000 in all\)") as caught:
        _select("x" * 10_000).schema(wide)
    assert len(str(caught.value)) < 1500


def test_comment_at_the_end_is_harmless() -> None:
    assert _select("a + 1 AS b -- one more").run(batch({"a": [1]})).to_pylist() == [{"b": 2}]


def test_schema_is_the_same_for_every_batch() -> None:
    given = pa.schema(
        [
            ("seen", pa.timestamp("s", "America/New_York")),
            ("large", pa.large_string()),
            ("view", pa.string_view()),
            ("plain", pa.string()),
            ("naive", pa.timestamp("ms")),
            ("bytes", pa.large_binary()),
        ]
    )
    select = _select("*, seen + INTERVAL 1 SECOND AS later, upper(plain) AS loud, 1.50 AS price")
    schema = select.schema(given)
    assert schema.field("seen").type == pa.timestamp("us", "America/New_York")
    assert schema.field("large").type == pa.large_string()
    assert schema.field("view").type == pa.string_view()
    assert schema.field("naive").type == pa.timestamp("ms")
    assert schema.field("bytes").type == pa.large_binary()
    assert schema.field("loud").type == pa.string()
    empty = given.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema=given)]
    nulls = pa.RecordBatch.from_pylist([{}, {}], schema=given)
    full = pa.RecordBatch.from_pylist(
        [{"seen": 1, "large": "a", "view": "b", "plain": "c", "naive": 1000, "bytes": b"x"}], schema=given
    )
    for one in (empty[0], nulls, full):
        result = select.run(one)
        assert result.schema.equals(schema)
        assert result.num_rows == one.num_rows
    assert select.run(full).column("seen")[0].value == 1_000_000


def test_masks_count_null_as_false() -> None:
    masks = SqlMasks(["a > 1", "a IS NULL"], "policy", CONTEXT).masks(batch({"a": [1, 2, None]}))
    assert [mask.to_pylist() for mask in masks] == [[False, True, False], [False, False, True]]
    assert all(mask.null_count == 0 for mask in masks)


def test_mask_that_is_not_boolean_is_refused_before_any_row() -> None:
    masks = SqlMasks(["a > 1", "a + 1"], "policy", CONTEXT)
    with pytest.raises(ConvertError, match=r"'a \+ 1': expected one boolean, got int64"):
        masks.check(pa.schema([("a", pa.int64())]))


def test_mask_that_smuggles_a_second_column_is_refused() -> None:
    with pytest.raises(ConvertError, match="expected one boolean, got bool, bool"):
        SqlMasks(["true) AS a, (false"], "policy", CONTEXT).masks(batch({"a": [1]}))


def test_masks_blame_the_expression_that_failed() -> None:
    masks = SqlMasks(["a = 'x'", "a::INTEGER = 1"], "policy", CONTEXT)
    with pytest.raises(ConvertError, match=r"'a::INTEGER = 1'.*Could not convert string 'x'") as caught:
        masks.masks(batch({"a": ["1", "x"]}))
    assert "a = 'x'" not in str(caught.value)


def test_statements_are_prepared_once_per_expression_and_schema() -> None:
    session = sql._session()
    select = _select("a * 12345 AS b")
    first = session.prepare("a * 12345 AS b", pa.schema([("a", pa.int64())]))
    select.run(batch({"a": [1]}))
    select.run(batch({"a": [2]}))
    assert session.prepare("a * 12345 AS b", pa.schema([("a", pa.int64())])) is first
    assert session.prepare("a * 12345 AS b", pa.schema([("a", pa.int32())])) is not first


def test_statements_beyond_the_limit_are_forgotten_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MAX_PREPARED", 3)
    session = sql._Session()
    schema = pa.schema([("a", pa.int64())])
    for round_ in range(2):
        for step in range(10):
            result = session.prepare(f"a + {step} AS b", schema).run(batch({"a": [round_]}))
            assert result.to_pylist() == [{"b": round_ + step}]
    assert len(session._prepared) == 3
    session.close()


def test_threads_have_their_own_connection() -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(sql._session())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in [*found, sql._session()]}) == 3


def test_forked_process_makes_its_own_connection() -> None:
    parent = sql._session()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        is_fresh = sql._session() is not parent and _select("a + 1 AS b").run(batch({"a": [1]})).num_rows == 1
        os.write(writer, b"1" if is_fresh else b"0")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0


def test_process_ends_without_a_word_on_stderr() -> None:
    code = (
        "import pyarrow as pa\n"
        "from gobblin_dagster.constructs.sql import SqlSelect\n"
        "from gobblin_dagster.core.constructs import ConstructContext\n"
        "SqlSelect('a', 'x', ConstructContext('j', '/')).run(pa.record_batch({'a': [1]}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_sql_session_of_one_thread_survives_a_fork_by_another() -> None:
    sql._session()
    codes: list[int] = []

    def fork() -> None:
        # Code before exec makes Python set itself up anew in the child, as it does when Spark's JVM is started.
        codes.append(subprocess.Popen([sys.executable, "-c", ""], preexec_fn=lambda: None).wait())  # noqa: PLW1509

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert codes == [0]


def test_error_of_the_engine_itself_ends_the_session_not_what_comes_after_it() -> None:
    huge = batch({"t": pa.array([10**13 * 3], pa.timestamp("s"))})
    with pytest.raises(ConvertError):
        _select("t::VARCHAR AS t").run(huge)
    assert _select("a + 1 AS b").run(batch({"a": [1]})).to_pydict() == {"b": [2]}


@pytest.mark.parametrize("expression", ["*", "a", "b"])
def test_columns_that_differ_in_case_only_are_refused(expression: str) -> None:
    rows = batch({"A": [1], "a": [2], "b": [3]})
    with pytest.raises(
        ConvertError, match="columns 'A' and 'a' differ in case only, which SQL does not see; `rename` one"
    ):
        _select(expression).run(rows)
    assert _select("*").run(batch({"É": [1], "é": [2]})).to_pydict() == {"É": [1], "é": [2]}


def test_nanoseconds_of_a_duration_are_not_cut() -> None:
    whole = batch({"d": pa.array([5000], pa.duration("ns"))})
    assert _select("d").run(whole).column(0)[0].as_py().nanoseconds == 5000
    with pytest.raises(ConvertError, match="would lose data"):
        _select("d").run(batch({"d": pa.array([1], pa.duration("ns"))}))
    with pytest.raises(ConvertError, match="column 'i': an interval in SQL has microseconds"):
        _select("i").run(batch({"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    assert _select("1 AS one").run(batch({"d": pa.array([1], pa.duration("ns"))})).num_rows == 1


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("list_sum(range(1000000000)) > n", "needs more memory than one batch may take"),
        ("length(repeat(n::varchar, 2000000000)) > 0", "needs more memory than one batch may take"),
        ("(SELECT len(list(i)) FROM range(1000000000) r(i)) > n", "needs more memory than one batch may take"),
        ("(SELECT count(*) FROM range(100000000000)) > n", "took more than 0.5 s for one batch, and was ended"),
        (
            "(WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT max(i) FROM t) > n",
            "took more than 0.5 s for one batch, and was ended",
        ),
        ("sleep_ms(60000) IS NULL", "took more than 0.5 s for one batch, and was ended"),
    ],
    ids=["list", "text", "table", "rows", "recursion", "sleep"],
)
def test_expression_that_takes_all_memory_or_time_is_ended_and_named(
    expression: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_limits, "TIME_LIMIT_S", 0.5 if "0.5 s" in reason else 60.0)
    before = resource.getrlimit(resource.RLIMIT_AS)
    rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
    sound = SqlMasks(["n > 1"], "policy 'p'", CONTEXT)
    with pytest.raises(ConvertError, match=re.escape(reason)) as caught:
        SqlMasks([expression], "policy 'p'", CONTEXT).masks(rows)
    assert expression[:20] in str(caught.value)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert sound.masks(rows)[0].to_pylist() == [False, True]


def test_process_forked_while_a_statement_runs_is_not_bounded() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    limits = sql_limits.Limits(duckdb.connect(":memory:"))
    limits.end()
    with limits:
        assert resource.getrlimit(resource.RLIMIT_AS) != before
        child = os.fork()
        if not child:
            os._exit(int(resource.getrlimit(resource.RLIMIT_AS) != before))
        assert os.waitpid(child, 0)[1] == 0
    assert resource.getrlimit(resource.RLIMIT_AS) == before
