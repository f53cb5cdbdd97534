"""`mode: merge` of Delta and Iceberg: what their readers see after merges, killed ones, and ones that are refused."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gobblin_dagster.constructs.publishers.delta_steps import MergeIntoDeltaStep
from gobblin_dagster.constructs.publishers.iceberg_steps import MergeIntoIcebergStep
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.validation import check_parts
from tests.unit.constructs.publishers.lake import STORAGE, T0, Lake, rows
from tests.unit.constructs.publishers.table_jobs import ROWS, check_exactly_once, table_job
from tests.unit.engine.jobs import project, run


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def test_rows_are_replaced_added_and_deleted_by_key(lake: Lake) -> None:
    names = "id v op"
    lake.merge(rows((1, "a", "I"), (2, "b", "I"), (3, "c", "I"), names=names), delete_when="op = 'D'")
    lake.merge(rows((2, "B", "U"), (3, "c", "D"), (4, "d", "I"), (9, "", "D"), names=names), delete_when="op = 'D'")

    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "a"), (2, "B"), (4, "d")]


def test_of_two_rows_with_one_key_the_newest_counts_and_an_older_one_undoes_nothing(lake: Lake) -> None:
    how = {"by": ("n",), "delete_when": "v = 'gone'"}
    lake.merge(
        rows((1, "new", 7), (1, "old", 3), (2, "a", 5), (2, "b", 5), names="id v n"),
        rows((3, "x", None), (2, "c", 5), names="id v n"),
        **how,
    )
    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "new"), (2, "c"), (3, "x")]

    lake.merge(rows((1, "late", 6), (2, "gone", 4), (3, "y", 1), (4, "z", 1), names="id v n"), **how)
    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "new"), (2, "c"), (3, "y"), (4, "z")]


def test_null_is_less_than_all_values_in_whichever_publication_it_comes(lake: Lake) -> None:
    how = {"by": ("n", "m")}
    lake.merge(rows((1, "kept", 7, 1), (2, "old", None, 5), (3, "kept", None, 5), names="id v n m"), **how)
    late = rows((1, "x", None, 9), (2, "new", None, 6), (3, "x", None, None), (4, "y", 1, 1), names="id v n m")
    lake.merge(late, **how)
    assert [row["v"] for row in lake.rows()] == ["kept", "new", "kept", "y"]


def test_keys_of_several_columns_with_odd_names_and_types(lake: Lake) -> None:
    def made(*values: tuple[str, date, int]) -> pa.Table:
        texts, days, numbers = zip(*values, strict=True)
        return pa.table({"My `Id": list(texts), "a.day": list(days), "id": pa.array(numbers, pa.int32())})

    one, two = date(2026, 1, 1), date(2026, 1, 2)
    key = ["My `Id", "a.day"]
    lake.merge(made(("it's", one, 1), ("it's", two, 2), ("", one, 3)), key=key)
    lake.merge(made(("it's", two, 20), ("", two, 4)), key=key)

    assert [row["id"] for row in lake.rows()] == [1, 3, 4, 20]


ACUTE = ("caf\u00e9", "cafe\u0301")
NAN = float("nan")


def instants(zone: str, *hours: int) -> pa.Array:
    return pa.array([T0 + timedelta(hours=hour) for hour in hours], pa.timestamp("us", zone))


@pytest.mark.parametrize(
    ("there", "new", "expected"),
    [
        pytest.param(ACUTE[:1], ACUTE[1:], [(ACUTE[1], 0), (ACUTE[0], 0)], id="texts of two normal forms differ"),
        pytest.param(
            ["x", "", "X"], ["x ", "\0"], [("", 1), ("\0", 1), ("X", 2), ("x", 0), ("x ", 0)], id="blanks count"
        ),
        pytest.param([b"a", b"b"], [b"b"], [(b"a", 0), (b"b", 0)], id="bytes"),
        pytest.param([True, False], [True], [(False, 1), (True, 0)], id="booleans"),
        pytest.param([1, 2], pa.array([2], pa.int8()), [(1, 0), (2, 0)], id="narrower integers"),
        pytest.param(
            instants("UTC", 1, 2),
            instants("Europe/Berlin", 2),
            [(T0 + timedelta(hours=1), 0), (T0 + timedelta(hours=2), 0)],
            id="instants of other zones",
        ),
        pytest.param(
            pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(9, 2)),
            pa.array([Decimal("2.0")], pa.decimal128(8, 1)),
            [(Decimal("1.50"), 0), (Decimal("2.00"), 0)],
            id="decimals of another scale",
        ),
    ],
)  # fmt: skip
def test_keys_are_equal_if_their_values_are(lake: Lake, there: Any, new: Any, expected: list[Any]) -> None:
    lake.merge(pa.table({"id": there, "n": range(len(there))}))
    lake.merge(pa.table({"id": new, "n": range(len(new))}))

    assert sorted((row["id"], row["n"]) for row in lake.rows()) == sorted(expected)


def test_decimal_that_the_tables_scale_would_round_is_refused(lake: Lake) -> None:
    lake.merge(pa.table({"id": pa.array([Decimal("1.5")], pa.decimal128(3, 1))}))
    with pytest.raises(StepRefusedError):
        lake.step(pa.table({"id": pa.array([Decimal("1.54")], pa.decimal128(3, 2))})).execute(STORAGE)

    assert [row["id"] for row in lake.rows()] == [Decimal("1.5")]


def test_nan_is_newer_than_every_number_and_null_older(lake: Lake) -> None:
    how: dict[str, Any] = {"by": ("n",)}
    lake.merge(rows((1, "a", NAN), (1, "b", 5.0), (2, "a", 5.0), (3, "a", NAN), (4, "a", None), names="id v n"), **how)
    lake.merge(rows((1, "B", 7.0), (2, "B", NAN), (3, "B", NAN), (4, "B", NAN), names="id v n"), **how)

    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "a"), (2, "B"), (3, "B"), (4, "B")]


def test_keys_of_one_megabyte_and_values_of_ten_are_merged(lake: Lake) -> None:
    key, value = "k" * 1_000_000, "v" * 10_000_000
    lake.merge(rows((1, key, ""), (2, "", "w"), names="id v w"), key=["v"])
    lake.merge(rows((3, key, value), names="id v w"), key=["v"])

    assert [(row["id"], row["v"] == key, row["w"] == value) for row in lake.rows()] == [(2, 0, 0), (3, 1, 1)]


def test_columns_that_come_are_added_and_those_that_go_keep_their_values(lake: Lake) -> None:
    lake.merge(rows((1, "a"), (2, "b")))
    lake.merge(rows((2, 5), (3, 6), names="id w"))

    assert lake.rows() == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "b", "w": 5},
        {"id": 3, "v": None, "w": 6},
    ]


def test_key_and_order_columns_are_widened_by_values_that_the_former_types_cannot_hold(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    small = pa.schema([("id", pa.int32()), ("n", pa.int32()), ("v", pa.string())])
    lake.merge(pa.table({"id": [1, 2], "n": [1, 9], "v": ["a", "b"]}, schema=small), by=("n",))
    lake.merge(rows((1, 1 << 40, "A"), (2, 3, "late"), (1 << 40, 1, "c"), names="id n v"), by=("n",))

    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "A"), (2, "b"), (1 << 40, "c")]


def test_columns_of_a_delta_table_are_widened_once_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("delta", tmp_path)
    small = pa.schema([("id", pa.int32()), ("price", pa.decimal128(5, 2)), ("v", pa.float32())])
    lake.merge(pa.table({"id": [1, 2], "price": [Decimal("1.10"), Decimal("2.20")], "v": [0.5, 1.5]}, schema=small))
    wide = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 3)), ("v", pa.float64()), ("w", pa.string())])
    new = {"id": [2, 1 << 40], "price": [Decimal("2.201"), None], "v": [0.1, 0.2], "w": ["x", "y"]}
    step = lake.step(pa.table(new, schema=wide))
    with monkeypatch.context() as patched:
        patched.setattr(MergeIntoDeltaStep, "_merge", _dies)
        with pytest.raises(KeyboardInterrupt):
            step.execute(STORAGE)
    assert [row["id"] for row in lake.rows()] == [1, 2]
    assert not step.verify(STORAGE)
    step.execute(STORAGE)

    assert pa.schema(DeltaTable(f"{tmp_path}/lake/test/numbers/all").schema().to_arrow()) == wide
    assert [(row["id"], row["price"], row["v"], row["w"]) for row in lake.rows()] == [
        (1, Decimal("1.100"), 0.5, None),
        (2, Decimal("2.201"), 0.1, "x"),
        (1 << 40, None, 0.2, "y"),
    ]
    lake.merge(
        pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([2.0], pa.float32())})
    )  # narrower rows are cast
    assert lake.rows()[0]["v"] == 2.0


def _dies(*_: Any) -> None:
    raise KeyboardInterrupt


def test_widening_that_loses_against_another_writer_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("delta", tmp_path)
    lake.merge(pa.table({"id": pa.array([1], pa.int32())}))
    step, widen = lake.step(rows((2, "b"))), MergeIntoDeltaStep._widen

    def race(self: MergeIntoDeltaStep, table: Any, schema: pa.Schema) -> None:
        monkeypatch.setattr(MergeIntoDeltaStep, "_widen", widen)
        write_deltalake(table.table_uri, pa.table({"id": pa.array([3], pa.int32())}), mode="append")
        widen(self, table, schema)

    monkeypatch.setattr(MergeIntoDeltaStep, "_widen", race)
    step.execute(STORAGE)

    assert [row["id"] for row in lake.rows()] == [1, 2, 3]


def test_table_whose_key_was_renamed_is_refused(lake: Lake) -> None:
    """A new column of this name would be null in all rows of the table, so that none of them would be replaced."""
    lake.merge(rows((1, "a"), (2, "b")))
    if lake.kind == "delta":
        renamed = rows((1, "a"), (2, "b"), names="number v")
        write_deltalake(lake.root / "lake/test/numbers/all", renamed, mode="overwrite", schema_mode="overwrite")
    else:
        with lake.iceberg().update_schema() as update:
            update.rename_column("id", "number")
    with pytest.raises(StepRefusedError, match="has no column id, by which rows are merged; it has number, v"):
        lake.merge(rows((1, "A")))
    assert sorted(row["v"] for row in lake.rows()) == ["a", "b"]


def test_delta_table_that_takes_no_merges_is_refused_at_once(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    lake.merge(rows((1, "a")))
    DeltaTable(tmp_path / "lake/test/numbers/all").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(StepRefusedError, match="append-only"):
        lake.merge(rows((1, "b")))


@pytest.mark.parametrize("files", [[((1, "a"), (2, "b"), (1, "c"))], [((1, "a"), (2, "b")), ((1, "c"),)]])
def test_table_with_two_rows_of_a_key_is_refused(lake: Lake, files: list[Any]) -> None:
    for file in files:
        lake.append(rows(*file))
    before = lake.rows()
    with pytest.raises(StepRefusedError) as caught:
        lake.step(rows((1, "x"), (2, "y"), (3, "z"))).execute(STORAGE)

    assert "several rows with one key (id), so it is not known which one to replace: id=1 (1 of the 3" in str(
        caught.value
    )
    assert lake.rows() == before
    lake.merge(rows((2, "y"), (3, "z")))  # the keys of these are single


def test_file_of_which_delete_files_leave_no_row_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.merge(rows((1, "a"), (2, "b")))
    (emptied,) = lake.files()
    deleted = {emptied: [pa.chunked_array([[0, 1]])]}
    monkeypatch.setattr("pyiceberg.io.pyarrow._read_all_delete_files", lambda *_: deleted)
    lake.merge(rows((2, "c")))

    assert [(row["id"], row["v"]) for row in lake.rows()] == [(2, "c")]


def test_only_files_with_a_changed_row_are_written_again(lake: Lake) -> None:
    lake.merge(rows((1, "a"), (2, "b")))
    lake.merge(rows((3, "c"), (4, "d")))
    lake.merge(rows((11, "x")))
    before = lake.files()
    lake.merge(rows((2, "B"), (9, "new")))

    assert len(before & lake.files()) == 2
    assert [row["v"] for row in lake.rows()] == ["a", "B", "c", "d", "new", "x"]


def test_merge_that_changes_nothing_is_known_to_the_table(lake: Lake) -> None:
    lake.merge(rows((1, "a")))
    lake.merge(rows((2, "b")), delete_when="true")

    assert [row["id"] for row in lake.rows()] == [1]


def test_merge_that_is_done_again_changes_nothing(lake: Lake) -> None:
    first = lake.step(rows((1, "a")))
    first.execute(STORAGE)
    lake.merge(rows((1, "b")))
    assert first.verify(STORAGE)
    first.execute(STORAGE)

    assert [row["v"] for row in lake.rows()] == ["b"]


def test_partitioned_tables_keep_their_partitions(lake: Lake) -> None:
    if lake.kind == "iceberg":
        lake.merge(rows((1, "a")))
        with lake.iceberg().update_spec() as update:
            update.add_identity("v")
    lake.merge(rows((1, "a"), (2, "b")), folder="v=a/")
    lake.merge(rows((2, "c"), (3, "a")), folder="v=c/")

    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "a"), (2, "c"), (3, "a")]
    assert len({path for path in lake.files() if "v=a/" in path}) in {1, 2}


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        (rows((1, "a"), (None, "b")), {}, "column 'id' of the key is null in row 2 of"),
        (rows((1.5, "a")), {}, "column 'id' of the key is double"),
        (rows((1, "a")), {"key": ["ID"]}, "there is no column ID, which `key` names; there are id, v"),
        (rows((1, "a")), {"by": ("at",)}, "there is no column at, which `extract.delta_fields` names"),
        (rows(([1], "a")), {}, "which cannot be compared"),
        (rows((1, "a")), {"delete_when": "gone"}, "`delete_when` does not fit"),
        (rows((1, "a")), {"delete_when": "v::INT > 3"}, "Could not convert string 'a'"),
    ],
)
def test_rows_that_cannot_be_merged_are_refused(
    lake: Lake, table: pa.Table, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(StepRefusedError) as caught:
        lake.step(table, **options).execute(STORAGE)
    assert says in str(caught.value)


def test_files_whose_types_disagree_are_refused(lake: Lake) -> None:
    with pytest.raises(StepRefusedError, match="its files disagree"):
        lake.step(rows((1, 1)), rows((2, "x"))).execute(STORAGE)


def test_staged_files_that_are_gone_wait_for_a_person(lake: Lake) -> None:
    step = lake.step(rows((1, "a")))
    for path in lake.root.glob("*.parquet"):
        path.unlink()
    with pytest.raises(StepRefusedError, match="is gone, and the table does not know the commit"):
        step.execute(STORAGE)


# -- whole jobs --------------------------------------------------------------------------------------------------------
KEY = {"key": ["dataset", "id"]}
STEPS: dict[str, type[CommitStep]] = {"delta": MergeIntoDeltaStep, "iceberg": MergeIntoIcebergStep}


def test_rows_are_in_the_table_once_whatever_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> list[int]:
        return [row["id"] for row in lake.rows()]

    check_exactly_once(lake.root, lake.publisher | KEY, read, STEPS[lake.kind], monkeypatch)


def test_null_in_the_key_fails_its_work_unit_with_file_and_row(tmp_path: Path) -> None:
    job = table_job({"type": "delta", "mode": "merge", "key": ["value"]}, {"c": {"rows": 12}})
    (result,) = run(tmp_path, job).datasets

    assert "null in value, its key, in row 1; put such rows aside" in result.failures[0].message
    assert not (tmp_path / "lake/test/numbers/all").exists()


def test_key_that_no_row_has_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/c.csv").write_text("id,v\n1,a\n")
    job = table_job(
        {"type": "delta", "mode": "merge", "key": ["nr"]},
        {},
        source={"type": "files", "path": "in/{dataset}.csv", "format": "csv"},
    )
    (planned,) = plan_job(project(tmp_path, job), job).datasets
    (result,) = run(tmp_path, job).datasets

    assert "there is no column nr, which `key` names; there are id, v" in planned.notes[-1]
    assert "there is no column nr, which `key` names; there are id, v" in result.failures[0].message


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, "`mode: merge` needs `key`, or `extract.primary_keys`"),
        (
            {"writer": {"type": "parquet", "partition_by": ["dataset"]}},
            "set the writer's `keep_partition_columns: true`",
        ),
    ],
)
def test_job_that_cannot_merge_is_refused_when_it_is_checked(tmp_path: Path, parts: dict[str, Any], says: str) -> None:
    key = KEY if parts else {}
    job = table_job({"type": "delta", "mode": "merge", **key}, ROWS, **parts)
    with pytest.raises(UsageError, match="mode: merge") as caught:
        check_parts(job, tmp_path)
    assert says in str(caught.value)
