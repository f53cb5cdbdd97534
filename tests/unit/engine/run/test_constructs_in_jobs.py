"""What a job's converters, policies, forks and contracts do to what is published, in whole runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import CopyNotSupportedError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.task.copy_check import require_copies
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

ONE = {"branches": [{"name": "all"}]}
EVEN = {"type": "sql", "select": "*, CASE WHEN id % 2 = 0 THEN id::VARCHAR ELSE value END AS text"}
TEXT = {"type": "columns", "columns": {"text": {"type": "int64", "nulls": []}}}


def _job(rows: int, **parts: Any) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, **({"fork": ONE} | parts))


def _run(root: Path, job: JobSpec) -> DatasetResult:
    return by_urn(run(root, job))["a"]


def _tables(root: Path, job: JobSpec, branch: str = "all") -> list[pa.Table]:
    """Return the files of the newest snapshot in order of their ids."""
    store = project(root, job).open_store()
    try:
        files = [file for file in store.load_snapshot(job.job, "a") if file.branch == branch]
    finally:
        store.close()
    tables = [pq.read_table(file.path) for file in files]
    return sorted(tables, key=lambda table: table["id"][0].as_py() if "id" in table.column_names else 0)


def test_rows_that_a_converter_cannot_take_are_quarantined_and_the_others_published(tmp_path: Path) -> None:
    job = _job(120, converters=[EVEN, TEXT | {"on_error": "quarantine", "name": "numbers"}])
    dataset = _run(tmp_path, job)
    # Odd ids keep their text `v<id>`, which is no number.
    assert published(tmp_path, job, "a") == list(range(0, 120, 2))
    assert (dataset.rejected, dataset.rows_quarantined) == ({"numbers": 60}, 60)
    (rejected,) = _tables(tmp_path, job, "quarantine")
    assert rejected["policy"].unique().to_pylist() == ["numbers"]
    assert rejected["source_row"].to_pylist() == list(range(2, 121, 2))
    assert rejected["reason"][0].as_py() == "row 2, column 'text': expected int64, got 'v1'"


class OneSchema:
    """A fork operator that leaves out a branch for which it chooses rows."""

    def fork_schema(self, schema: pa.Schema) -> list[bool]:
        """Leave out the second branch."""
        return [True, False]

    def fork_record(self, record: dict[str, Any]) -> list[bool]:
        """Give even rows to both branches, and every third one to the second."""
        return [record["id"] % 2 == 0, record["id"] % 2 == 0 or record["id"] % 3 == 0]


def test_rows_for_a_branch_that_the_schema_leaves_out_are_told(tmp_path: Path) -> None:
    branches = [{"name": "all"}, {"name": "gone"}]
    job = _job(12, fork={"operator": {"type": "records", "operator": f"{__name__}:OneSchema"}, "branches": branches})
    dataset = _run(tmp_path, job)
    assert published(tmp_path, job, "a") == list(range(0, 12, 2))
    assert (dataset.rows_by_branch, dataset.rows_untaken) == ({"all": 6, "gone": 0}, 6)
    (note,) = dataset.notes
    assert "for branch 'gone' are not published there: its `fork_schema` leaves the branch out" in note


def test_one_bad_row_too_much_fails_the_work_unit(tmp_path: Path) -> None:
    job = _job(20, converters=[EVEN, TEXT | {"on_error": "skip", "max_errors": 9}])
    dataset = _run(tmp_path, job)
    assert dataset.outcome is DatasetOutcome.FAILED
    assert (
        "expected at most 9 bad rows (max_errors), got one more: row 20, column 'text'" in dataset.failures[0].message
    )


def test_bad_rows_of_a_branch_leave_the_other_branch_whole(tmp_path: Path) -> None:
    fork = {"branches": [{"name": "all"}, {"name": "numbers", "converters": [TEXT | {"on_error": "skip"}]}]}
    job = _job(10, converters=[EVEN], fork=fork, task_policies=[{"type": "row_count"}])
    dataset = _run(tmp_path, job)
    assert dataset.rows_by_branch == {"all": 10, "numbers": 5}
    assert dataset.rejected == {"numbers.columns": 5}


@pytest.mark.parametrize(("share", "outcome"), [(0.1, DatasetOutcome.COMMITTED), (0.09, DatasetOutcome.FAILED)])
@pytest.mark.parametrize("place", ["job", "branch"])
def test_share_of_rejected_rows_decides_over_the_work_unit(
    tmp_path: Path, place: str, share: float, outcome: DatasetOutcome
) -> None:
    policies = [
        {"type": "not_null", "columns": ["value"], "name": "has_value", "on_violation": "OPTIONAL", "max_share": share}
    ]
    parts = (
        {"row_policies": policies}
        if place == "job"
        else {"fork": {"branches": [{"name": "all", "row_policies": policies}]}}
    )
    dataset = _run(tmp_path, _job(200, **parts))
    assert dataset.outcome is outcome
    if outcome is DatasetOutcome.FAILED:
        assert (
            "'has_value' failed: expected at most 9.0000% of rows rejected; got 20 of 200"
            in dataset.failures[0].message
        )


def test_task_policies_that_look_at_rows_see_all_that_was_written(tmp_path: Path) -> None:
    rule = {
        "type": "sql_aggregate",
        "aggregates": {"rows": "count(*)", "high": "max(id)"},
        "rule": "rows = 250 AND high = 249",
    }
    dataset = _run(
        tmp_path, _job(250, task_policies=[rule, {"type": "file_size", "max_bytes": 1, "enforce": "OPTIONAL"}])
    )
    assert dataset.outcome is DatasetOutcome.COMMITTED
    assert [(one.policy, one.result, one.enforced) for one in dataset.policies] == [
        ("sql_aggregate", "passed", True),
        ("file_size", "failed", False),
    ]
    assert dataset.policies[0].detail == "expected rows = 250 AND high = 249; got rows 250, high 249"


def test_task_policy_of_type_fail_that_does_not_hold_publishes_nothing(tmp_path: Path) -> None:
    rule = {"type": "sql_aggregate", "aggregates": {"high": "max(id)"}, "rule": "high < 249", "enforce": "FAILED"}
    job = _job(250, task_policies=[rule])
    assert _run(tmp_path, job).outcome is DatasetOutcome.FAILED
    assert published(tmp_path, job, "a") == []


def test_origin_columns_hold_one_load_time_for_a_work_unit(tmp_path: Path) -> None:
    columns = {name: {"source": name} for name in ("run_id", "load_time", "source_row")}
    job = _job(250, converters=[{"type": "add", "columns": columns}])
    result = run(tmp_path, job)
    (table,) = _tables(tmp_path, job)
    assert len(table["load_time"].unique()) == 1
    assert table["run_id"].unique().to_pylist() == [result.run_id]
    assert table["source_row"].to_pylist() == list(range(1, 251))


NEW_COLUMN = {"type": "add", "columns": {"extra": 1}}
NO_VALUE = {"type": "drop", "columns": ["value"]}
NARROW = {"type": "columns", "columns": {"id": "int32"}}


def _second_run(root: Path, contract: str, *converters: dict[str, Any]) -> tuple[DatasetResult, list[pa.Table]]:
    """Publish five rows as they are, then three more through converters, under a contract."""
    _run(root, _job(5, schema_contract=contract))
    job = _job(8, schema_contract=contract, converters=converters)
    return _run(root, job), _tables(root, job)


def test_contract_evolve_adds_fills_in_and_keeps_the_wider_type(tmp_path: Path) -> None:
    dataset, tables = _second_run(tmp_path, "evolve", NEW_COLUMN, NO_VALUE, NARROW)
    assert tables[1].schema.names == ["id", "dataset", "extra", "value"]
    assert tables[1].schema.field("id").type == pa.int64()
    assert tables[1]["value"].null_count == 3
    assert dataset.notes == (
        "branch 'all': column 'extra' (int64) is new",
        "branch 'all': column 'value' (string) is gone",
        "branch 'all': column 'id' was int64, is int32",
    )


def test_contract_discard_keeps_the_published_columns(tmp_path: Path) -> None:
    dataset, tables = _second_run(tmp_path, "discard", NEW_COLUMN)
    assert tables[1].schema.equals(tables[0].schema)
    assert dataset.notes == ("branch 'all': column 'extra' (int64) is new",)


@pytest.mark.parametrize(
    ("contract", "converter", "problem"),
    [
        ("freeze", NEW_COLUMN,
         "schema contract 'freeze': expected .*a difference: branch 'all': column 'extra' .int64. is new"),
        ("fail", NO_VALUE, "schema contract 'fail': expected .*got a difference: 'value' is gone"),
        ("evolve", {"type": "columns", "columns": {"id": "string"}},
         "'id' was int64, is string, which is no wider type"),
    ],
    ids=["freeze", "fail", "evolve"],
)  # fmt: skip
def test_contract_that_is_broken_publishes_nothing_new(
    tmp_path: Path, contract: str, converter: dict[str, Any], problem: str
) -> None:
    dataset, tables = _second_run(tmp_path, contract, converter)
    assert dataset.outcome is DatasetOutcome.FAILED
    assert re.search(problem, dataset.failures[0].message)
    assert dataset.failures[0].branch == "all"
    assert [table.num_rows for table in tables] == [5]


def test_contract_discard_row_puts_rows_that_do_not_fit_aside(tmp_path: Path) -> None:
    odd = "CASE WHEN id = 5 THEN 'x' ELSE id::VARCHAR END AS id, dataset, value, CASE WHEN id = 6 THEN 1 END AS extra"
    dataset, tables = _second_run(tmp_path, "discard_row", {"type": "sql", "select": odd})

    assert [table["id"].to_pylist() for table in tables] == [[0, 1, 2, 3, 4], [7]]
    assert tables[1].schema.names == ["id", "dataset", "value"]
    assert dataset.rows_quarantined == 2
    aside = _tables(tmp_path, _job(8), "quarantine")[0].sort_by("source_row")
    assert aside["reason"].to_pylist() == [
        "column 'id': expected int64 as published before, got string",
        "column 'extra' is new",
    ]
    assert '"extra":1' in aside["record"][1].as_py().replace(" ", "")


def test_contract_of_a_branch_goes_before_the_jobs(tmp_path: Path) -> None:
    fork = {"branches": [{"name": "all", "schema_contract": "discard"}, {"name": "free"}]}
    _run(tmp_path, _job(5, fork=fork, schema_contract="evolve"))
    job = _job(8, fork=fork, schema_contract="evolve", converters=[NEW_COLUMN])
    _run(tmp_path, job)
    assert _tables(tmp_path, job)[1].schema.names == ["id", "dataset", "value"]
    assert _tables(tmp_path, job, "free")[1].schema.names == ["id", "dataset", "value", "extra"]


def test_job_without_contract_writes_what_comes(tmp_path: Path) -> None:
    _run(tmp_path, _job(5))
    job = _job(8, converters=[NEW_COLUMN])
    assert _run(tmp_path, job).notes == ()
    assert _tables(tmp_path, job)[1].schema.names == ["id", "dataset", "value", "extra"]


class LockScalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow has no types
    """Its Python value is a lock, which cannot be copied."""

    def as_py(self, **_: Any) -> Any:
        return threading.Lock()


class LockType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A column type whose values nobody can copy."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.lock")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> LockType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[LockScalar]:
        return LockScalar


class LockConverter:
    """Adds a column that cannot be copied."""

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, options: Options, context: ConstructContext) -> None:
        """Take no options."""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.append(pa.field("lock", LockType()))

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        locks = pa.ExtensionArray.from_storage(LockType(), chunk.batch.column("id"))
        yield Chunk(chunk.batch.append_column(pa.field("lock", LockType()), locks), chunk.file, chunk.rows)


def test_value_that_cannot_be_copied_fails_only_where_two_branches_take_its_row(tmp_path: Path) -> None:
    locks = {"type": "tests.unit.engine.run.test_constructs_in_jobs:LockConverter"}
    unlock = [{"type": "drop", "columns": ["lock"]}]
    branches = [{"name": "all", "converters": unlock}, {"name": "rest", "converters": unlock}]
    turns = _job(4, converters=[locks], fork={"operator": {"type": "round_robin"}, "branches": branches})
    assert _run(tmp_path / "one", turns).outcome is DatasetOutcome.COMMITTED
    both = _run(tmp_path / "both", _job(4, converters=[locks], fork={"branches": branches}))
    assert both.outcome is DatasetOutcome.FAILED
    assert both.failures[0].code == "copy-not-supported"
    assert (
        "Column 'lock', row 1: expected values that can be copied, got extension<tests.lock" in both.failures[0].message
    )


def test_copies_are_asked_for_by_row() -> None:
    rows = pa.record_batch({"lock": pa.ExtensionArray.from_storage(LockType(), pa.array([1, 2, 3], pa.int64()))})
    chunk = Chunk(rows, "f", pa.array([7, 8, 9], pa.int64()))
    first, last = pa.array([True, True, None]), pa.array([False, False, True])
    require_copies(chunk, [first, last, False])
    with pytest.raises(CopyNotSupportedError, match="row 9"):
        require_copies(chunk, [first, last, pa.array([False, False, True])])


def test_quarantine_of_converters_counts_as_quarantine_of_the_job() -> None:
    assert _job(1, converters=[TEXT | {"on_error": "quarantine"}]).has_quarantine is True
    assert _job(1, schema_contract="discard_row").has_quarantine is True
    assert _job(1, converters=[TEXT | {"on_error": "skip"}]).has_quarantine is False
