from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql import session
from gobblin_dagster.constructs.sql.select import SqlSelect
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
    [
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '64GB'",
        "SET temp_directory = '/tmp'",
        "LOAD httpfs",
    ],
)
def test_connection_is_locked(statement: str) -> None:
    with pytest.raises(duckdb.Error):
        session.thread_session()._connection.execute(statement)


def test_rows_beyond_the_memory_limit_go_to_few_bytes_below_the_folder_of_temporary_files() -> None:
    settings = _select(
        "current_setting('temp_directory') AS folder, current_setting('max_temp_directory_size') AS size"
    )
    (found,) = settings.run(batch({"a": [1]})).to_pylist()
    assert Path(found["folder"]).parent == Path(tempfile.gettempdir())
    assert found["size"] == "953.6 MiB"


def test_no_progress_bar_is_written_among_what_a_command_prints() -> None:
    (found,) = _select("current_setting('enable_progress_bar') AS bar").run(batch({"a": [1]})).to_pylist()
    assert found == {"bar": False}


def test_python_variables_are_out_of_reach() -> None:
    private = pa.table({"password": ["x"]})
    with pytest.raises(ConvertError, match="private"):
        _select("(SELECT password FROM private)").run(batch({"a": [1]}))
    assert private.num_rows == 1


def test_statements_are_prepared_once_per_expression_and_schema() -> None:
    own = session.thread_session((CONTEXT.base_dir, CONTEXT.job))
    select = _select("a * 12345 AS b")
    first = own.prepare("a * 12345 AS b", pa.schema([("a", pa.int64())]))
    select.run(batch({"a": [1]}))
    select.run(batch({"a": [2]}))
    assert own.prepare("a * 12345 AS b", pa.schema([("a", pa.int64())])) is first
    assert own.prepare("a * 12345 AS b", pa.schema([("a", pa.int32())])) is not first


def test_statements_beyond_the_limit_are_forgotten_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_PREPARED", 3)
    own = session.Session()
    schema = pa.schema([("a", pa.int64())])
    for round_ in range(2):
        for step in range(10):
            result = own.prepare(f"a + {step} AS b", schema).run(batch({"a": [round_]}))
            assert result.to_pylist() == [{"b": round_ + step}]
    assert len(own._prepared) == 3
    own.close()


def test_expressions_of_another_job_are_out_of_reach() -> None:
    of_another = SqlSelect("'its-token' AS token", "converter 'test'", replace(CONTEXT, job="another"))
    of_another.run(batch({"a": [1]}))
    statements = "(SELECT string_agg(statement) FROM duckdb_prepared_statements()) AS found"
    (found,) = _select(statements).run(batch({"a": [1]})).to_pylist()
    assert "duckdb_prepared_statements" in found["found"]
    assert "its-token" not in found["found"]


def test_threads_have_their_own_connection() -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(session.thread_session())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in [*found, session.thread_session()]}) == 3


def test_forked_process_makes_its_own_connection() -> None:
    parent = session.thread_session()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        is_fresh = session.thread_session() is not parent and _select("a + 1 AS b").run(batch({"a": [1]})).num_rows == 1
        os.write(writer, b"1" if is_fresh else b"0")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0


def test_process_ends_without_a_word_on_stderr() -> None:
    code = (
        "import pyarrow as pa\n"
        "from gobblin_dagster.constructs.sql.select import SqlSelect\n"
        "from gobblin_dagster.core.constructs import ConstructContext\n"
        "SqlSelect('a', 'x', ConstructContext('j', '/')).run(pa.record_batch({'a': [1]}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_sql_session_of_one_thread_survives_a_fork_by_another() -> None:
    session.thread_session()
    codes: list[int] = []

    def fork() -> None:
        # Code before exec makes Python initialise again in the child, as it does when Spark's JVM is started.
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


CODED = pa.list_(pa.dictionary(pa.int32(), pa.string()), 2)
PLACE = pa.struct([("at", pa.struct([("x", pa.int64()), ("on", pa.bool_())]))])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (CODED, [["a", "b"], ["b", "c"], None, ["c", None]]),
        (pa.struct([("codes", CODED)]), [{"codes": ["a", "b"]}, None, {"codes": ["b", "a"]}, {"codes": None}]),
        (pa.struct([("code", CODED.value_type)]), [None, None, None, None]),
        (PLACE, [{"at": {"x": 1, "on": True}}, None, {"at": None}, {"at": {"x": 4, "on": False}}]),
        (pa.list_(pa.null()), [None, [], [None, None], None]),
        (pa.list_(PLACE), [[{"at": {"x": 1, "on": True}}], None, [], [None, {"at": {"x": 4, "on": None}}]]),
    ],
    ids=[
        "dictionary in list",
        "dictionary in list in struct",
        "dictionary in null struct",
        "struct in struct",
        "nulls in list",
        "struct in struct in list",
    ],
)
def test_parts_of_nested_columns_are_read_as_they_are(kind: pa.DataType, values: list[object]) -> None:
    """Whatever the memory of a batch is like: DuckDB took codes for values, and refused parts."""
    rows = pa.record_batch({"v": pa.array(values, kind)}).slice(1)
    statement = session.thread_session().prepare("v", rows.schema)
    assert statement.run(rows).column("v").to_pylist() == values[1:]
