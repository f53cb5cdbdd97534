from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.cli.render.run import summary_line
from gobblin_dagster.constructs.sources.python import ReadUpTo
from gobblin_dagster.constructs.sources.python import source as python
from gobblin_dagster.core.errors import InvalidSpecError, SourceError, UsageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import ExecutionSpec, JobSpec, LimitSpec
from tests.unit.engine.jobs import by_urn, project, published, run


class Functions:
    """Functions that the jobs of these tests call; each test sets its own."""

    read: ClassVar[Callable[[Any], Any]]
    datasets: ClassVar[Callable[[], Any]]


def numbers(unit: Any) -> Iterator[dict[str, Any]]:
    for number in range(unit.low, unit.high):
        yield {"id": number, "name": f"{unit.dataset}-{number}"}


def spec(**options: Any) -> JobSpec:
    here = f"{__name__}:Functions"
    return JobSpec.model_validate(
        {
            "job": "made",
            "source": {"type": "python", "read": f"{here}.read", "datasets": f"{here}.datasets"} | options,
            "extract": {"namespace": "test", "table": "made"},
            "output": {"path": "lake"},
            "execution": {"retries": {"count": 0}},
        }
    )


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], None]:
    def put(read: Callable[[Any], Any], datasets: Any) -> None:
        monkeypatch.setattr(Functions, "read", staticmethod(read), raising=False)
        monkeypatch.setattr(Functions, "datasets", staticmethod(lambda: datasets), raising=False)

    return put


Put = Callable[[Any, Any], None]


def one(root: Path, job: JobSpec) -> DatasetResult:
    (dataset,) = run(root, job).datasets
    return dataset


def test_each_run_reads_from_where_the_last_one_ended(tmp_path: Path, put: Put) -> None:
    put(numbers, {"a": 3, "b": 0})
    results = by_urn(run(tmp_path, spec()))
    assert [results[urn].outcome for urn in ("a", "b")] == [DatasetOutcome.COMMITTED, DatasetOutcome.IDLE]
    assert by_urn(run(tmp_path, spec()))["a"].outcome is DatasetOutcome.IDLE
    put(numbers, {"a": 7, "b": 2})
    run(tmp_path, spec())
    assert published(tmp_path, spec(), "a", "main") == [0, 1, 2, 3, 4, 5, 6]
    assert published(tmp_path, spec(), "b", "main") == [0, 1]


def test_dataset_that_was_never_read_is_not_up_to_date(tmp_path: Path, put: Put) -> None:
    put(numbers, {"a": 3, "b": 2})
    job = spec(start=3)
    assert {one.low for one in plan_job(project(tmp_path, job), job).datasets} == {None}
    assert summary_line(run(tmp_path, job)).startswith(
        "Job made: nothing to do, 0 datasets up to date, 2 without anything to read yet"
    )
    put(numbers, {"a": 4, "b": 2})
    run(tmp_path, job)
    assert "1 dataset up to date, 1 without anything to read yet" in summary_line(run(tmp_path, job))


def test_limit_of_time_ends_a_slow_function_at_the_position_it_told(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(unit: Any) -> Iterator[Any]:
        for row in numbers(unit):
            yield row
            if row["id"] % 2:
                yield ReadUpTo(row["id"] + 1)

    monkeypatch.setattr(python, "_BATCH_S", 0.0)
    put(slow, {"a": 9})
    limited = ExecutionSpec(limit=LimitSpec(seconds=1e-9))
    job = spec(columns={"id": "int64", "name": "string"}).model_copy(update={"execution": limited})
    assert [one(tmp_path, job).rows_read for _ in range(6)] == [2, 2, 2, 2, 1, 0]
    assert published(tmp_path, job, "a", "main") == list(range(9))


def test_positions_are_cut_into_work_units_and_a_failed_one_is_read_again_alone(tmp_path: Path, put: Put) -> None:
    asked: list[tuple[int, int]] = []

    def fails_once(unit: Any) -> Iterator[dict[str, Any]]:
        asked.append((unit.low, unit.high))
        if unit.low == 10 and len(asked) < 4:
            raise ValueError("not today")
        yield from numbers(unit)

    put(fails_once, {"a": 25})
    body = spec(positions_per_work_unit=10, start=0).model_dump() | {"commit": {"policy": "successful"}}
    job = JobSpec.model_validate(body)
    failure = one(tmp_path, job).failures[0].message
    assert "raised ValueError: not today (test_source.py:" in failure
    assert sorted(asked) == [(0, 10), (10, 20), (20, 25)]
    run(tmp_path, job)
    assert asked[3:] == [(10, 20)]
    assert published(tmp_path, job, "a", "main") == list(range(25))


def test_without_datasets_the_position_is_the_time(tmp_path: Path, put: Put) -> None:
    bounds: list[tuple[datetime, datetime]] = []

    def read(unit: Any) -> Iterator[dict[str, Any]]:
        bounds.append((unit.low, unit.high))
        yield {"id": len(bounds)}

    put(read, None)
    job = spec(datasets=None, start=datetime(2026, 1, 1, tzinfo=UTC))
    run(tmp_path, job)
    run(tmp_path, job)
    assert bounds[0][0] == datetime(2026, 1, 1, tzinfo=UTC)
    assert bounds[0][1] == bounds[1][0] < bounds[1][1]
    assert published(tmp_path, job, "test.made", "main") == [1, 2]


def test_dicts_and_batches_may_be_mixed(tmp_path: Path, put: Put) -> None:
    def read(unit: Any) -> Iterator[Any]:
        yield {"id": 1}
        yield pa.RecordBatch.from_pydict({"id": pa.array([2, 3], pa.int32())})
        yield from ({"id": number} for number in range(4, 12_000))

    put(read, {"a": 1})
    assert one(tmp_path, spec()).rows_read == 11_999
    assert published(tmp_path, spec(), "a", "main") == list(range(1, 12_000))


def test_declared_columns_fill_missing_fields_and_allow_no_rows(tmp_path: Path, put: Put) -> None:
    put(lambda unit: [{"id": 1}, {"tags": ["x"]}] if unit.low == 0 else [], {"a": 1})
    job = spec(columns={"id": "int64", "tags": ["string"]})
    assert one(tmp_path, job).rows_read == 2
    put(lambda unit: [], {"a": 2})
    assert one(tmp_path, job).outcome is DatasetOutcome.COMMITTED
    assert one(tmp_path, job).outcome is DatasetOutcome.IDLE


def test_first_rows_may_have_different_fields(tmp_path: Path, put: Put) -> None:
    put(lambda unit: [{"id": 1}, {"id": 2, "more": 3}], {"a": 1})
    assert one(tmp_path, spec()).rows_read == 2
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    assert pq.read_table(file).to_pylist() == [{"id": 1, "more": None}, {"id": 2, "more": 3}]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": 1}, 5], "row 2: yielded int"),
        ([{"id": 1}, {"id": "x"}], "row 2: yielded 'x' in the column id beside values of another kind"),
        ([*[{"id": 1}] * 5000, {"id": 1, "more": 2}], "row 5001: yielded the field(s) more"),
        ([pa.RecordBatch.from_pydict({"id": [1]}), pa.RecordBatch.from_pydict({"x": [1]})], "the field(s) x"),
        (7, "'int' object is not iterable"),
        ([{"id": 1}, None, {"id": 3}], "row 2: yielded NoneType"),
        ([{"id": 2**70}], f"row 1: yielded {2**70} in the column id: "),
        ([*[{"id": "a"}] * 5000, {"id": "\ud800"}], r"row 5001: yielded '\ud800' in the column id, which is string: "),
        ([{1: 1}], "row 1: yielded the field(s) 1, expected texts as names."),
        ({"id": 1}, "returned dict, expected an iterator"),
        (None, "returned NoneType, expected an iterator"),
        ([], "yielded no field, so its columns are not known. Declare `columns`."),
        ([{}, {}], "yielded no field"),
        (
            [*[{"id": 1}] * 5000, {"id": 1}, {"id": 1.5}],
            "row 5002: yielded 1.5 in the column id, which holds whole numbers",
        ),
        ([*[{"id": {"x": 1}}] * 5000, {"id": {"x": 1, "y": 2}}], "row 5001: yielded the field(s) id.y"),
        ([*[{"id": [{"x": 1}]}] * 5000, {"id": [{"y": 2}]}], "row 5001: yielded the field(s) id.y"),
    ],
    ids=[
        "no row",
        "other type",
        "new field",
        "other batch",
        "no iterator",
        "none",
        "too large",
        "no text",
        "no name",
        "one dict",
        "no yield",
        "no rows",
        "empty rows",
        "fraction",
        "nested field",
        "field in a list",
    ],
)
def test_what_does_not_fit_is_told_with_its_row(tmp_path: Path, put: Put, rows: Any, said: str) -> None:
    put(lambda unit: rows, {"a": 1})
    failed = one(tmp_path, spec())
    assert failed.outcome is DatasetOutcome.FAILED
    assert said in failed.failures[0].message
    assert not failed.failures[0].transient


def test_lost_connection_is_transient_and_the_function_is_closed(tmp_path: Path, put: Put) -> None:
    closed = []

    def read(unit: Any) -> Iterator[Any]:
        try:
            yield {"id": 1}
            raise ConnectionResetError("gone")
        finally:
            closed.append(True)

    put(read, {"a": 1})
    assert one(tmp_path, spec()).failures[0].transient
    assert closed == [True]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({"a": 1.5}, "a whole number or a datetime"),
        ({"a": datetime(2026, 1, 1)}, "time zone"),
        ({"a": True}, "got True"),
    ],
)
def test_end_that_is_no_position_fails_its_dataset_alone(tmp_path: Path, put: Put, ends: Any, said: str) -> None:
    put(numbers, ends | {"good": 2})
    results = by_urn(run(tmp_path, spec()))
    assert said in results["a"].failures[0].message
    assert results["good"].outcome is DatasetOutcome.COMMITTED


def test_change_of_kind_is_refused(tmp_path: Path, put: Put) -> None:
    put(numbers, {"a": 2})
    run(tmp_path, spec())
    put(numbers, {"a": datetime(2026, 1, 1, tzinfo=UTC)})
    assert "stored watermark is of type 'long'" in one(tmp_path, spec()).failures[0].message
    assert "of another type" in one(tmp_path, spec(start=5)).failures[0].message


def test_fault_of_datasets_fails_the_job(tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    put(numbers, ["a"])
    with pytest.raises(SourceError, match="returned \"\\['a'\\]\""):
        run(tmp_path, spec())
    monkeypatch.setattr(Functions, "datasets", staticmethod(lambda: 1 / 0))
    with pytest.raises(SourceError, match="raised ZeroDivisionError"):
        run(tmp_path, spec())


def test_what_a_module_and_its_functions_print_stands_among_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = (
        "print('at import')\ndef ends():\n    print('called')\n    return {'a': 1}\n"
        "def read(unit):\n    yield {'id': 1}\n"
    )
    (tmp_path / "talkative.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    job = spec(read="talkative:read", datasets="talkative:ends")
    plan_job(project(tmp_path, job), job)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "at import\ncalled\n")


def test_function_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_such_module"):
        run(tmp_path, spec(datasets="no_such_module:datasets"))
    with pytest.raises(InvalidSpecError, match="read"):
        run(tmp_path, spec(read="weather"))


@pytest.mark.parametrize("columns", [None, {"id": "int64", "name": "string"}], ids=["settled", "declared"])
def test_limit_of_rows_ends_a_function_with_its_next_position(
    tmp_path: Path, put: Put, columns: dict[str, str] | None
) -> None:
    def read(unit: Any) -> Iterator[Any]:
        for number in range(unit.low, unit.high):
            yield {"id": number, "name": "x"}
            if number % 4 == 3:
                yield ReadUpTo(number + 1)

    put(read, {"a": 40})
    job = spec(columns=columns) if columns else spec()
    job = job.model_copy(update={"execution": ExecutionSpec(limit=LimitSpec(rows=10))})
    assert [one(tmp_path, job).rows_read for _ in range(5)] == [12, 12, 12, 4, 0]
    assert published(tmp_path, job, "a", "main") == list(range(40))
