"""`child_table` of publishers that merge: the items that readers see after their rows were changed, or deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.publishers.merge_rule import ChildTable, MergeRule
from gobblin_dagster.core.errors import InvalidSpecError, StepRefusedError, UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.publishers.lake import STORAGE, Lake
from tests.unit.constructs.publishers.table_jobs import table_job
from tests.unit.engine.jobs import run

CHILDREN: dict[str, Any] = {"child_table": {"list": "lines", "key_prefix": "of_"}, "delete_when": "op = 'D'"}
ITEM = pa.struct({"sku": pa.string(), "n": pa.int64()})
ORDERS = pa.schema({"id": pa.int64(), "op": pa.string(), "at": pa.int64(), "lines": pa.list_(ITEM)})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake("delta", tmp_path)


def orders(*values: tuple[int, str | None], op: str = "U", at: int = 1, schema: pa.Schema = ORDERS) -> pa.Table:
    """Return orders with a line for each letter."""
    rows = [
        {"id": key, "op": op, "at": at, "lines": None if skus is None else [*map(_line, skus)]} for key, skus in values
    ]
    return pa.Table.from_pylist(rows, schema)


def _line(sku: str) -> dict[str, Any]:
    return {"sku": sku, "n": ord(sku)}


def shown(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Return the items of each order, by their places."""
    found: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: (row["of_id"], row["lines_number"])):
        assert row["lines_number"] == len(found.get(row["of_id"], "")), "places have gaps, or stand twice"
        assert row["n"] == (None if row["sku"] is None else ord(row["sku"]))
        found[row["of_id"]] = found.get(row["of_id"], "") + row["sku"]
    return found


def items(lake: Lake) -> dict[int, str]:
    return shown(lake.rows())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_items_of_a_changed_row_are_replaced_and_those_of_a_deleted_row_go(tmp_path: Path, kind: str) -> None:
    lake = Lake(kind, tmp_path)
    lake.merge(orders((1, "abc"), (2, "de"), (3, "f"), (4, None), (5, "g")), **CHILDREN)
    assert items(lake) == {1: "abc", 2: "de", 3: "f", 5: "g"}

    lake.merge(orders((1, "x"), (2, ""), (4, "yz"), (6, "k")), orders((5, "g"), op="D"), **CHILDREN)
    assert items(lake) == {1: "x", 3: "f", 4: "yz", 6: "k"}


def test_of_several_versions_of_a_row_the_newest_counts_with_its_items_alone(lake: Lake) -> None:
    how = CHILDREN | {"by": ("at",)}
    lake.merge(orders((1, "abc"), at=5), orders((1, "late"), at=4), orders((2, "ab"), at=5), **how)
    lake.merge(orders((2, "cde"), at=4), orders((1, "z"), at=6), orders((1, "y"), op="D", at=2), **how)
    assert items(lake) == {1: "z", 2: "ab"}

    lake.merge(orders((1, "pqr"), (1, "t")), **CHILDREN)  # no order: the last one
    assert items(lake) == {1: "t", 2: "ab"}


def test_a_merge_is_done_once_and_one_that_changes_nothing_is_known(lake: Lake) -> None:
    lake.merge(orders((1, "ab")), **CHILDREN)
    step = lake.step(orders((1, "c"), (2, None)), **CHILDREN)
    step.execute(STORAGE)
    step.execute(STORAGE)
    assert items(lake) == {1: "c"}
    lake.merge(orders((2, None), (9, "x"), op="D"), **CHILDREN)
    assert items(lake) == {1: "c"}


def test_items_of_rows_that_a_full_extract_lacks_go(lake: Lake) -> None:
    how = CHILDREN | {"delete_missing": True}
    lake.merge(orders((1, "ab"), (2, "c"), (3, "d")), **how)
    lake.merge(orders((1, "x"), (3, "d")), **how)
    assert items(lake) == {1: "x", 3: "d"}


def test_an_item_takes_no_value_of_the_one_in_its_place_before(lake: Lake) -> None:
    wide = pa.schema([*list(ORDERS)[:3], pa.field("lines", pa.list_(pa.struct([*ITEM, pa.field("w", pa.int8())])))])
    first = [{"id": 1, "op": "U", "at": 1, "lines": [_line("a") | {"w": 7}]}]
    lake.merge(pa.Table.from_pylist(first, wide), **CHILDREN)
    lake.merge(orders((1, "b")), **CHILDREN)
    assert [(row["sku"], row["w"]) for row in lake.rows()] == [("b", None)]


def test_lists_in_lists_have_a_table_each(lake: Lake) -> None:
    part = pa.struct({"name": pa.string(), "notes": pa.list_(pa.string())})
    schema = pa.schema({"id": pa.int64(), "lines": pa.list_(pa.struct({"parts": pa.list_(part)}))})

    def made(*lines: list[str]) -> pa.Table:
        inside = [{"parts": [{"name": name, "notes": ["x"]} for name in names]} for names in lines]
        return pa.Table.from_pylist([{"id": 1, "lines": inside}], schema)

    how = {"child_table": {"list": "lines.parts", "drop": ["notes"]}}
    lake.merge(made(["a", "b"], ["c"]), **how)
    lake.merge(made([], ["d"], ["e"]), **how)
    found = sorted((row["lines_number"], row["parts_number"], row["name"]) for row in lake.rows())
    assert found == [(1, 0, "d"), (2, 0, "e")]
    assert set(lake.rows()[0]) == {"id", "lines_number", "parts_number", "name"}


@pytest.mark.parametrize(
    ("children", "problem"),
    [
        ({"list": "parts"}, "expected column 'parts'"),
        ({"list": "op"}, "'op': expected a list, got string"),
        ({"list": "lines", "drop": ["tax"]}, "`child_table.drop` names 'tax'; the items have sku, n"),
        ({"list": "lines", "drop": ["lines_number"]}, "names 'lines_number'; the items have sku, n"),
    ],
)
def test_rows_without_such_items_are_refused(tmp_path: Path, children: dict[str, Any], problem: str) -> None:
    step = Lake("delta", tmp_path).step(orders((1, "a")), child_table=children)
    with pytest.raises(StepRefusedError, match=f"`child_table` does not fit: .*{problem}"):
        step.execute(STORAGE)


def test_a_rule_is_read_from_steps_of_this_version_and_of_earlier_ones() -> None:
    rule = MergeRule(("id",), children=ChildTable("lines", "of_", ("parts",)))
    fields = {"key": ["id"], "newest_by": [], "delete_when": None, "delete_missing": False, "history": None}
    stored = fields | {"children": {"list": "lines", "key_prefix": "of_", "drop": ["parts"]}}
    assert MergeRule.from_json(json.loads(json.dumps(stored))) == rule
    assert MergeRule.from_json(fields) == MergeRule(("id",))


def job(publisher: dict[str, Any], **parts: Any) -> JobSpec:
    """Return a job over the JSON lines `in/c-*.jsonl`."""
    shape = {"id": "int64", "op": "string", "at": "int64", "lines": [{"sku": "string", "n": "int64"}]}
    files = {"type": "files", "path": "in/{dataset}-*.jsonl", "format": {"type": "jsonl", "columns": shape}}
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["id"]}
    return table_job(publisher, {}, **({"source": files, "extract": extract} | parts))


def test_parquet_snapshots_hold_the_items_too_and_older_ones_stay(tmp_path: Path) -> None:
    spec = job({"type": "merge", **CHILDREN})
    (tmp_path / "in").mkdir()
    for number, batch in enumerate(
        [orders((1, "abc"), (2, "de")), orders((1, "x"), (2, None), (3, "f")), orders((1, "x"), op="D")]
    ):
        lines = [json.dumps(row) for row in batch.to_pylist()]
        (tmp_path / f"in/c-{number}.jsonl").write_text("\n".join([*lines, ""]))
        result = run(tmp_path, spec)
        assert result.status is RunStatus.SUCCEEDED, result

    def snapshot(number: int | None) -> dict[int, str]:
        found = read_published(tmp_path / "lake", "numbers", "c", number).to_arrow("all").to_table()
        assert set(found.schema.names) == {"of_id", "lines_number", "sku", "n"}
        return shown(found.to_pylist())

    assert [snapshot(number) for number in (1, 2, None)] == [{1: "abc", 2: "de"}, {1: "x", 3: "f"}, {3: "f"}]


def test_child_tables_with_histories_or_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="`child_table` belongs to `mode: merge`"):
        check_parts(job({"type": "delta", "mode": "scd2", **CHILDREN}), tmp_path)
    folders = {"type": "parquet", "partition_by": ["op"], "keep_partition_columns": True}
    with pytest.raises(UsageError, match="leave out `partition_by`"):
        check_parts(job({"type": "merge", **CHILDREN}, writer=folders), tmp_path)


@pytest.mark.parametrize(
    "publisher",
    [{"type": "delta", "mode": "merge"}, {"type": "merge"}, {"type": "sql_table", "mode": "upsert", "table": "t"}],
    ids=lambda publisher: publisher["type"],
)
def test_converter_before_a_publisher_that_replaces_by_key_is_refused(
    tmp_path: Path, publisher: dict[str, Any]
) -> None:
    unnest = [{"type": "child_table", "list": "lines", "keys": ["id"]}]
    whole = publisher | {"key": ["id", "lines_number"]} | ({"url": "sqlite:///a.db"} if "table" in publisher else {})
    with pytest.raises(UsageError, match="when a list loses an item, its row would stay"):
        check_parts(job(whole, converters=unnest), tmp_path)
    if "mode" in publisher:
        check_parts(job(whole | {"mode": "append", "key": []}, converters=unnest), tmp_path)
