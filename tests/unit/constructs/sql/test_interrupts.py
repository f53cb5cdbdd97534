"""Ctrl-C while DuckDB runs a statement, and while it asks Python for the batch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sql import session
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT

ROWS = pa.RecordBatch.from_pydict({"n": [1, 2]})


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def test_interrupt_in_the_midst_of_a_statement_is_no_fault_of_the_expression() -> None:
    # Endless for the first row alone: the check takes a batch without rows.
    endless = SqlMasks(["(SELECT count(*) FROM range(n * 100000000000)) > n"], "policy 'p'", CONTEXT)
    endless.check(ROWS.schema)
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        endless.masks(ROWS)
    timer.join()
    assert SqlMasks(["n > 1"], "policy 'p'", CONTEXT).masks(ROWS)[0].to_pylist() == [False, True]


def test_interrupt_while_the_batch_is_given_is_no_fault_of_the_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, requested_schema: object = None) -> object:
        raise KeyboardInterrupt

    masks = SqlMasks(["n > 1"], "policy 'p'", CONTEXT)
    masks.check(ROWS.schema)
    with monkeypatch.context() as patched:
        patched.setattr(session._Cell, "__arrow_c_stream__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            masks.masks(ROWS)
    assert masks.masks(ROWS)[0].to_pylist() == [False, True]


def test_error_of_an_expression_that_names_an_interrupt_stays_one() -> None:
    with pytest.raises(ConvertError, match="KeyboardInterrupt"):
        SqlMasks(["n > 1 OR error('KeyboardInterrupt') IS NULL"], "policy 'p'", CONTEXT).masks(ROWS)
