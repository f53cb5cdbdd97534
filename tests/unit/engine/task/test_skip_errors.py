"""How much a bad row costs, and what is no matter of rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gobblin_dagster.constructs.converters import blame
from gobblin_dagster.constructs.converters.each_row import EachRowConverter
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError, EnvironmentFaultError
from gobblin_dagster.engine.task import skip_errors
from gobblin_dagster.engine.task.skip_errors import TolerantConverter
from tests.unit.constructs.samples import chunk


class NoSevens(EachRowConverter):
    """Refuses the number 7, and counts the batches and rows that it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs = 0
        self.rows = 0
        self._error = error or ConvertError(dataset_urn="d", construct="NoSevens", problem="got 7")

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.runs += 1
        self.rows += batch.num_rows
        if pc.any(pc.equal(batch.column("n"), 7)).as_py():
            raise self._error
        return batch


def _numbers(bad: list[int], rows: int = 1024) -> Chunk:
    return chunk({"n": [7 if at in bad else 0 for at in range(rows)]}, first_row=0)


@pytest.mark.parametrize(("bad", "runs"), [([], 1), ([512], 21), ([0], 21), ([3, 900], 39)])
def test_bad_row_costs_two_runs_for_each_halving(bad: list[int], runs: int) -> None:
    converter = NoSevens()
    dropped: list[tuple[list[int], str]] = []
    tolerant = TolerantConverter(converter, 10, lambda part, why: dropped.append((part.rows.to_pylist(), why)))
    kept = [row for part in tolerant.convert(_numbers(bad)) for row in part.rows.to_pylist()]
    assert kept == [at for at in range(1024) if at not in bad]
    assert dropped == [([at], f"row {at}: got 7") for at in bad]
    # A single row is asked once more without rows and twice by itself, to name it.
    assert converter.runs <= runs + 2 * len(bad)
    assert converter.rows <= 1024 * (2 + len(bad))


def test_error_that_is_no_matter_of_rows_ends_the_work_unit_at_once() -> None:
    converter = NoSevens(EnvironmentFaultError(problem="No key.", hint=""))
    tolerant = TolerantConverter(converter, 10, lambda *_: pytest.fail("no row is to blame"))
    with pytest.raises(EnvironmentFaultError):
        list(tolerant.convert(_numbers([5])))
    assert converter.runs == 1


def test_row_is_looked_for_again_after_a_tolerant_converter() -> None:
    list(TolerantConverter(NoSevens(), 10, lambda *_: None).convert(_numbers([5])))
    with pytest.raises(ConvertError, match=r"file in/flights.csv, NoSevens: row 700: got 7"):
        list(NoSevens().convert(_numbers([700])))


@pytest.mark.parametrize("is_tolerant", [True, False])
def test_batch_that_took_too_long_is_tried_once_and_by_nobody_in_halves(is_tolerant: bool) -> None:
    slow = ConvertError(dataset_urn="d", construct="NoSevens", problem="took more than 60 s", is_of_rows=False)
    converter, dropped = NoSevens(slow), list[str]()
    tried = TolerantConverter(converter, 10, lambda _, reason: dropped.append(reason)) if is_tolerant else converter
    with pytest.raises(ConvertError, match="NoSevens: took more than 60 s"):
        list(tried.convert(_numbers([3])))
    assert (converter.runs, dropped) == (1, [])


@pytest.mark.parametrize("is_tolerant", [True, False])
def test_batch_that_took_too_much_memory_is_tried_in_parts_for_a_while_only(
    is_tolerant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skip_errors, "MEMORY_SEARCH_S", 0.0)
    monkeypatch.setattr(blame, "SEARCH_LIMIT_S", 0.0)
    large = ConvertError(dataset_urn="d", construct="NoSevens", problem="needs more memory", is_of_memory=True)
    converter = NoSevens(large)
    tried = TolerantConverter(converter, 10, lambda *_: pytest.fail("not found")) if is_tolerant else converter
    expected = (
        "NoSevens: needs more memory" if is_tolerant else "NoSevens: one of the rows 0 to 1023: needs more memory"
    )
    with pytest.raises(ConvertError, match=expected):
        list(tried.convert(_numbers([3])))
    assert converter.rows == 1024


@pytest.mark.parametrize("is_tolerant", [True, False])
def test_row_that_takes_too_much_memory_is_found(is_tolerant: bool) -> None:
    large = ConvertError(dataset_urn="d", construct="NoSevens", problem="needs more memory", is_of_memory=True)
    dropped: list[str] = []
    converter = NoSevens(large)
    if is_tolerant:
        list(TolerantConverter(converter, 10, lambda _, why: dropped.append(why)).convert(_numbers([3])))
    else:
        with pytest.raises(ConvertError) as caught:
            list(converter.convert(_numbers([3])))
        dropped.append(caught.value.problem)
    assert dropped == ["row 3: needs more memory"]
