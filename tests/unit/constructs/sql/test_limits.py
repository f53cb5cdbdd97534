from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql import limits
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.memory import limit_in_force
from tests.unit.constructs.samples import CONTEXT


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
    monkeypatch.setattr(limits, "TIME_LIMIT_S", 0.5 if "0.5 s" in reason else 60.0)
    before = resource.getrlimit(resource.RLIMIT_AS)
    rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
    sound = SqlMasks(["n > 1"], "policy 'p'", CONTEXT)
    with pytest.raises(ConvertError, match=re.escape(reason)) as caught:
        SqlMasks([expression], "policy 'p'", CONTEXT).masks(rows)
    assert expression[:20] in str(caught.value)
    assert caught.value.is_of_rows is caught.value.is_of_memory is ("0.5 s" not in reason)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert sound.masks(rows)[0].to_pylist() == [False, True]


def test_lower_limit_of_the_process_is_named_and_no_row_is_to_blame() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
    large = SqlMasks(["list_sum(range(1000000000)) > n"], "policy 'p'", CONTEXT)
    large.check(rows.schema)
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + limits.GROWTH_LIMIT_BYTES - (1 << 26), before[1]))
    try:
        with pytest.raises(ConvertError, match="set by `ulimit -v`") as caught:
            large.masks(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert not caught.value.is_of_rows
    assert "SET threads" not in str(caught.value)


def test_expression_that_took_all_memory_leaves_it_to_the_next_one() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    with pytest.raises(ConvertError, match="needs more memory"):
        SqlMasks(["(SELECT len(list(i)) FROM range(1000000000) r(i)) > n"], "policy 'p'", CONTEXT).masks(rows)
    large = SqlMasks(["(SELECT len(list(i)) FROM range(8000000) r(i)) > n"], "policy 'p'", CONTEXT)
    assert large.masks(rows)[0].to_pylist() == [True]


def test_many_large_expressions_each_have_the_memory_of_one_batch() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1]})
    for number in range(7):  # each keeps 80 MB of the 512 MB
        large = SqlMasks([f"(SELECT len(list(i)) FROM range(8000000) r(i)) > n + {number}"], "policy 'p'", CONTEXT)
        assert large.masks(rows)[0].to_pylist() == [True]


def test_process_forked_while_a_statement_runs_is_not_bounded() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    bound = limits.Limits(duckdb.connect(":memory:"))
    bound.end()
    with bound:
        assert resource.getrlimit(resource.RLIMIT_AS) != before
        child = os.fork()
        if not child:
            os._exit(int(resource.getrlimit(resource.RLIMIT_AS) != before))
        assert os.waitpid(child, 0)[1] == 0
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_ctrl_c_as_the_bound_is_set_does_not_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    bound = limits.Limits(duckdb.connect(":memory:"))
    bound.end()
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), bound:
            pass
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_limit_that_others_set_is_not_told_as_that_of_expressions() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = limits.Limits(duckdb.connect(":memory:"))
    bound.end()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
    try:
        with bound:
            assert "set by the SQL expressions that it runs" in limit_in_force()
        assert "may use 33,554,432 MB, set by `ulimit -v`" in limit_in_force()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@pytest.mark.parametrize("growth", [1 << 30, limits.GROWTH_LIMIT_BYTES], ids=["1 GiB", "as it is"])
def test_statement_may_be_the_first_thing_of_a_process_that_needs_memory_of_arrow(growth: int) -> None:
    # Arrow's allocator reserves 1 GiB at once; where it took the last of the bound, the process was aborted.
    program = f"""
import pyarrow as pa
from gobblin_dagster.constructs.sql import limits
from gobblin_dagster.constructs.sql.session import thread_session
limits.GROWTH_LIMIT_BYTES = {growth}
session = thread_session()
with session.limits:
    print(session.prepare("id + 1 AS next", pa.schema([("id", pa.int64())])).schema)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "next: int64\n"), done.stderr
