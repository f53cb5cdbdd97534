"""Positions of extractors: all rows below a position were handed out, none at or above it, for all batch sizes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.files.positions import position_behind
from gobblin_dagster.constructs.sources.files.source import FilesSource
from gobblin_dagster.constructs.sources.incremental import in_order
from gobblin_dagster.constructs.sources.incremental.in_order import InOrder
from gobblin_dagster.constructs.sources.python.source import PythonExtractor, ReadUpTo
from gobblin_dagster.constructs.sources.query.source import QuerySource
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Extractor, PositionedExtractor, SourceContext
from gobblin_dagster.core.errors import ExtractError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark
from gobblin_dagster.core.watermark.ranges import WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.testing.protocol.scenario import SetClock

NOON = datetime(2013, 1, 10, 12, tzinfo=UTC)


def _positions(extractor: Extractor) -> Iterator[tuple[str | None, list[Any]]]:
    """Yield, after each chunk, the position and the rows so far, and once more at the end or the fault."""
    assert isinstance(extractor, PositionedExtractor)
    seen: list[Any] = []
    try:
        for chunk in extractor.chunks():
            seen += chunk.batch.column("id").to_pylist()
            mark = extractor.position()
            yield (None if mark is None else str(mark)), list(seen)
    except ExtractError:
        pass
    mark = extractor.position()
    yield (None if mark is None else str(mark)), list(seen)


def _chunks(batches: list[list[int]]) -> Iterator[Chunk]:
    rows = 0
    for batch in batches:
        numbers = pa.array(range(rows + 1, rows + 1 + len(batch)), pa.int64())
        rows += len(batch)
        yield Chunk(pa.RecordBatch.from_pydict({"id": pa.array(batch, pa.int64())}), "t", numbers)


@given(st.lists(st.lists(st.integers(0, 6), max_size=6), max_size=6), st.integers(1, 4))
def test_rows_in_order_are_cut_only_where_a_value_ends(batches: list[list[int]], held: int) -> None:
    values = sorted(value for batch in batches for value in batch)
    given_batches, at = [], 0
    for batch in batches:
        given_batches.append(values[at : at + len(batch)])
        at += len(batch)
    cut = InOrder("id", lambda value: value // 2, ValueError)
    before, in_order.MAX_HELD_ROWS = in_order.MAX_HELD_ROWS, held
    try:
        out: list[int] = []
        rows: list[int] = []
        for chunk in cut.cut(_chunks(given_batches)):
            out += chunk.batch["id"].to_pylist()
            rows += chunk.rows.to_pylist()
            if cut.reached is not None:
                assert out == [value for value in values if value // 2 < cut.reached]
    finally:
        in_order.MAX_HELD_ROWS = before
    assert (out, rows) == (values, list(range(1, len(values) + 1)))


@pytest.mark.parametrize(("limit_rows", "first"), [(2, 6), (6, 6), (7, 7), (30, None)])
def test_chunk_ends_at_the_limit_but_behind_rows_that_are_read_again(limit_rows: int, first: int | None) -> None:
    low = 5  # rows before it, and the first one at it, were read before
    cut = InOrder("id", int, ValueError, limit_rows, low=low)
    seen: list[tuple[int, int]] = []
    rows = 0
    for chunk in cut.cut(_chunks([list(range(4)), list(range(4, 20))])):
        rows += chunk.batch.num_rows
        if cut.reached is not None and cut.reached > low and rows >= limit_rows:
            seen.append((rows, cut.reached))
    assert seen[:1] == ([] if first is None else [(first, first)])


@pytest.mark.parametrize("batches", [[[1, 3, 2]], [[1, 3], [2]]])
def test_rows_out_of_order_are_refused(batches: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="rows are not in ascending order of 'id'"):
        list(InOrder("id", int, ValueError).cut(_chunks(batches)))


def test_query_reads_in_order_and_stands_behind_whole_values(tmp_path: Path) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    shop.execute("CREATE TABLE t (id INTEGER, day DATE)")
    shop.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"2013-01-0{1 + n % 3}") for n in range(9)])
    shop.close()
    context = ConstructContext(job="j", base_dir=str(tmp_path), in_order=True)
    options = QuerySource.Options.model_validate(
        {
            "url": "sqlite:///shop.db",
            "tables": ["t"],
            "fetch_rows": 2,
            "watermark": {"column": "day", "type": "date"},
        }
    )
    source = QuerySource(options, context)
    assert source.tells_positions()
    (offer,) = source.plan(SourceContext(Extract("n", "t"), {}, lambda _: True, SetClock(NOON)))
    (unit,) = offer.work_units
    found = dict(_positions(source.extractor(unit)))
    firsts, seconds = [0, 3, 6], [1, 4, 7]
    assert sorted(found["2013-01-02"]) == firsts
    assert sorted(found["2013-01-03"]) == sorted(firsts + seconds)
    assert sorted(found[None]) == list(range(9))


def test_rows_that_overlap_are_no_position_for_a_limit(tmp_path: Path) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    shop.execute("CREATE TABLE t (id INTEGER)")
    shop.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(9)])
    shop.close()
    context = ConstructContext(job="j", base_dir=str(tmp_path), in_order=True, limit_rows=2)
    given = {"url": "sqlite:///shop.db", "tables": ["t"], "watermark": {"column": "id", "type": "long"}}
    source = QuerySource(QuerySource.Options.model_validate(given), context)
    (offer,) = source.plan(SourceContext(Extract("n", "t"), {}, lambda _: True, SetClock(NOON)))
    unit = replace(offer.work_units[0], low=LongWatermark(4))
    again = replace(unit, read={**unit.read, "from": 1})
    assert next(_positions(source.extractor(again))) == ("5", [1, 2, 3, 4])


def _python(function: Callable[[Any], Any], high: int = 20_000) -> PythonExtractor:
    unit = WorkUnit("u", "a", LongWatermark(0), LongWatermark(high))
    return PythonExtractor(unit, function, "here:read", {"id": "int64"})


def test_function_that_says_how_far_it_got_has_a_position_there() -> None:
    def read(unit: Any) -> Iterator[Any]:
        for number in range(unit.low, unit.high):
            if number % 3000 == 0:
                yield ReadUpTo(number)
            if number == 7001:
                raise ValueError("the API is gone")
            yield {"id": number}

    found = [(mark, len(rows)) for mark, rows in _positions(_python(read))]
    assert found == [("0", 0), ("3000", 3000), ("6000", 6000), ("6000", 6000)]


def test_batches_of_a_function_stand_where_a_position_follows_them() -> None:
    def read(_: Any) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"id": [1, 2]})
        yield ReadUpTo(3)
        yield pa.RecordBatch.from_pydict({"id": [3, 4]})

    assert list(_positions(_python(read))) == [
        (None, [1, 2]),
        ("3", [1, 2]),
        (None, [1, 2, 3, 4]),
        (None, [1, 2, 3, 4]),
    ]


def test_function_that_says_nothing_has_no_position_behind_its_rows() -> None:
    assert [mark for mark, _ in _positions(_python(lambda unit: iter([{"id": 1}])))] == [None, None]


@pytest.mark.parametrize("position", ["x", NOON, None])
def test_position_of_another_kind_is_an_error(position: Any) -> None:
    with pytest.raises(ExtractError, match="yielded ReadUpTo"):
        list(_python(lambda unit: iter([{"id": 1}, ReadUpTo(position)])).chunks())


def _folder(root: Path, path: str, names: list[str], **options: Any) -> tuple[FilesSource, WorkUnit]:
    for number, name in enumerate(names):
        file = root / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"id\n{2 * number}\n{2 * number + 1}\n")
    body = {"path": path, "format": {"type": "csv"}, "files_per_work_unit": 50} | options
    source = FilesSource(FilesSource.Options.model_validate(body), ConstructContext("j", str(root), in_order=True))
    (offer,) = source.plan(SourceContext(Extract("n", "t"), {}, lambda _: True, SetClock(NOON)))
    (unit,) = offer.work_units
    return source, unit


@pytest.mark.parametrize(
    ("path", "names", "options", "ends"),
    [
        pytest.param(
            "in/{dataset}/{date:%Y-%m-%d}-*.csv",
            ["a/2013-01-01-x.csv", "a/2013-01-01-y.csv", "a/2013-01-03-x.csv"],
            {},
            [None, "2013-01-03", "2013-01-04"],
            id="dates",
        ),
        pytest.param(
            "in/{dataset}/*.csv",
            ["a/1.csv", "a/2.csv", "a/3.csv"],
            {"new_files": "name"},
            ["after a/1.csv", "after a/2.csv", "after a/3.csv"],
            id="names",
        ),
        pytest.param(
            "in/{dataset}/*.csv",
            ["a/1.csv", "a/2.csv", "a/3.csv"],
            {"new_files": "modified"},
            ["1 file", "2 files", "3 files"],
            id="remembered",
        ),
    ],
)
def test_files_stand_behind_each_whole_one(
    tmp_path: Path, path: str, names: list[str], options: dict[str, Any], ends: list[str | None]
) -> None:
    source, unit = _folder(tmp_path, path, names, **options)
    found: dict[int, str | None] = {}
    extractor = source.extractor(unit)
    assert isinstance(extractor, PositionedExtractor)
    rows = 0
    for chunk in extractor.chunks():
        rows += chunk.batch.num_rows
        if chunk.batch.num_rows:
            assert extractor.position() is None, "a part of a file is no position"
        else:
            mark = extractor.position()
            found[rows] = None if mark is None else str(mark).partition(", newest")[0]
            if mark is not None:
                WatermarkInterval(unit.low, mark)
                WatermarkInterval(mark, unit.expected_high)
    assert found == dict(zip((2, 4, 6), ends, strict=True))


def test_files_without_a_position_between_them_have_none() -> None:
    days = [TimestampWatermark(datetime(2013, 1, day, tzinfo=UTC)) for day in (1, 2)]
    unit = WorkUnit("u", "a", days[0], days[1])
    files = [{"path": "x", "date": "2013-01-01"}, {"path": "y", "date": "2013-01-01"}]
    assert [position_behind(unit, files, done) for done in range(3)] == [days[0], None, days[1]]
