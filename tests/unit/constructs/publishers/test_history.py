"""`mode: scd2` of Delta and Iceberg: the versions of rows that readers see; and `delete_missing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.publishers.changes import DELETED, read_changes
from gobblin_dagster.constructs.publishers.history import keep_history
from gobblin_dagster.constructs.publishers.merge_rule import History, MergeRule
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import InvalidSpecError, StepRefusedError, UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.validation import check_parts
from tests.unit.constructs.publishers.lake import STORAGE, T0, Lake, rows
from tests.unit.constructs.publishers.table_jobs import table_job
from tests.unit.engine.jobs import project, run

HISTORY: dict[str, Any] = {"mode": "scd2"}
SHOWN = ("id", "v", "valid_from", "valid_to")


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def versions(lake: Lake) -> list[tuple[Any, ...]]:
    """Return id, value, and the second after `T0` from and to which each version is valid."""
    found = [tuple(row[name] for name in SHOWN) for row in lake.rows()]
    return sorted((number, v, _since(begin), _since(end)) for number, v, begin, end in found)


def _since(at: datetime | None) -> int | None:
    return None if at is None else round((at - T0).total_seconds())


def second(number: int) -> datetime:
    return T0 + timedelta(seconds=number)


def test_versions_begin_and_end_when_they_are_published(lake: Lake) -> None:
    how = HISTORY | {"delete_when": "v = 'gone'"}
    lake.merge(rows((1, "a"), (2, "b"), (3, "c")), **how)
    lake.merge(rows((1, "a"), (2, "B"), (3, "gone"), (4, "d"), (9, "gone")), **how)
    assert versions(lake) == [(1, "a", 1, None), (2, "B", 2, None), (2, "b", 1, 2), (3, "c", 1, 2), (4, "d", 2, None)]

    again = lake.step(rows((3, "c"), (4, "e"), names="id v"), **how)
    again.execute(STORAGE)
    assert again.verify(STORAGE)
    again.execute(STORAGE)
    assert versions(lake)[3:] == [(3, "c", 1, 2), (3, "c", 3, None), (4, "d", 2, 3), (4, "e", 3, None)]


@pytest.mark.parametrize(
    ("there", "new"),
    [
        pytest.param(["x"], ["x"], id="text"),
        pytest.param([1], pa.array([1], pa.int16()), id="narrower integers"),
        pytest.param([b"x"], [b"x"], id="bytes"),
    ],
)
def test_keys_of_versions_are_compared_in_the_tables_type(lake: Lake, there: Any, new: Any) -> None:
    lake.merge(pa.table({"id": there, "v": ["a"]}), **HISTORY)
    lake.merge(pa.table({"id": new, "v": ["b"]}), **HISTORY)

    assert versions(lake) == [(there[0], "a", 1, 2), (there[0], "b", 2, None)]


def test_late_rows_end_no_version(lake: Lake) -> None:
    how: dict[str, Any] = HISTORY | {"by": ("n",), "delete_when": "v = 'gone'"}
    lake.merge(rows((1, "a", 5), (2, "b", 5), names="id v n"), **how)
    lake.merge(rows((1, "late", 4), (2, "gone", 4), (2, "later", 3), (3, "c", None), names="id v n"), **how)
    lake.merge(rows((2, "gone", 6), names="id v n"), **how)
    lake.merge(rows((2, "late", 4), names="id v n"), **how)

    assert versions(lake) == [(1, "a", 1, None), (2, "b", 1, 3), (3, "c", 2, None)]


def test_rows_that_are_read_again_in_parts_begin_no_version_after_a_deletion(lake: Lake) -> None:
    how: dict[str, Any] = HISTORY | {"by": ("n",), "delete_when": "v = 'gone'"}
    parts = [rows((1, "a", 1), names="id v n"), rows((1, "gone", 2), names="id v n")]
    for part in (*parts, *parts):
        lake.merge(part, **how)
    assert versions(lake) == [(1, "a", 1, 2)]

    lake.merge(rows((1, "b", 3), names="id v n"), **how)
    assert versions(lake) == [(1, "a", 1, 2), (1, "b", 5, None)]


def test_rows_take_their_place_by_valid_at_in_whatever_order_they_come(lake: Lake) -> None:
    how = HISTORY | {"valid_at": "at", "delete_when": "v = 'gone'", "valid_from": "since", "valid_to": "until"}

    def merge(*values: tuple[int, str, int]) -> None:
        lake.merge(rows(*((number, v, second(at)) for number, v, at in values), names="id v at"), **how)

    merge((1, "a", 1), (1, "c", 3), (2, "x", 1), (1, "c2", 3))
    merge((1, "b", 2), (2, "gone", 5), (1, "z", 0))
    merge((2, "y", 4), (2, "w", 6), (1, "gone", 3), (2, "x2", 1))

    found = sorted((row["id"], _since(row["since"]), _since(row["until"]), row["v"]) for row in lake.rows())
    assert found == [
        (1, 0, 1, "z"),
        (1, 1, 2, "a"),
        (1, 2, 3, "b"),
        (2, 1, 4, "x2"),
        (2, 4, 5, "y"),
        (2, 6, None, "w"),
    ]


def test_columns_that_come_begin_versions_and_those_that_go_do_not(lake: Lake) -> None:
    lake.merge(rows((1, "a"), (2, "b")), **HISTORY)
    lake.merge(rows((1, "a", None), (2, "b", 7), names="id v w"), **HISTORY)
    lake.merge(rows((1, "a"), (2, "b")), **HISTORY)

    assert versions(lake) == [(1, "a", 1, None), (2, "b", 1, 2), (2, "b", 2, None)]


def test_version_of_a_clock_that_went_back_begins_after_the_one_that_it_ends(lake: Lake) -> None:
    lake.merge(rows((1, "a")), **HISTORY)
    lake.now -= timedelta(seconds=5)
    step = lake.step(rows((1, "b")), **HISTORY)
    if lake.kind == "delta":  # its transaction numbers are times, so another dataset's commit must bring the row
        object.__setattr__(step, "number", 1 << 60)
    step.execute(STORAGE)

    new = second(1) + timedelta(microseconds=1)
    found = sorted((row["v"], row["valid_from"], row["valid_to"]) for row in lake.rows())
    assert found == [("a", second(1), new), ("b", new, None)]


def test_merge_that_dies_after_its_commit_is_done_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.merge(rows((1, "a")), **HISTORY)
    step = lake.step(rows((1, "b")), **HISTORY)
    change = type(step)._change  # type: ignore[attr-defined]

    def dies(*args: Any) -> bool:
        change(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(step), "_change", dies)
        with pytest.raises(KeyboardInterrupt):
            step.execute(STORAGE)
    assert step.verify(STORAGE)
    step.execute(STORAGE)
    assert versions(lake) == [(1, "a", 1, 2), (1, "b", 2, None)]


@pytest.mark.parametrize(
    ("new", "options", "says"),
    [
        (rows((1, "a", 1), names="id v valid_to"), {}, "have a column 'valid_to' already; set `valid_from`"),
        (rows((1, "a")), {"valid_at": "at"}, "there is no column at, which `valid_at` names"),
        (rows((1, None), names="id at"), {"valid_at": "at"}, "column 'at' of the key is null"),
    ],
)
def test_rows_without_their_times_are_refused(lake: Lake, new: pa.Table, options: dict[str, Any], says: str) -> None:
    with pytest.raises(StepRefusedError, match=says):
        lake.step(new, **HISTORY, **options).execute(STORAGE)


def test_table_that_kept_no_history_is_refused(lake: Lake) -> None:
    lake.merge(rows((1, "a")))
    with pytest.raises(StepRefusedError, match="rows without 'valid_from'"):
        lake.step(rows((1, "b")), **HISTORY).execute(STORAGE)
    assert [(row["id"], row["v"]) for row in lake.rows()] == [(1, "a")]


# -- the timeline ------------------------------------------------------------------------------------------------------
COLUMNS = History("at", "since", "until")
RULE = MergeRule(("id",), ("n",), history=COLUMNS)
EVENT = st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 2))


def _published(root: Path, table: pa.Table, events: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Return a table with history in which rows of id, time and count were published."""
    names = ["id", "at", "n"]
    path = root / "new.parquet"
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*events, strict=True)), strict=True))), path)
    schema = pa.schema([(name, pa.int64()) for name in names])
    changes = read_changes("test", [str(path)], schema, RULE, ConstructContext(job="", base_dir=""))
    whole = COLUMNS.columns(schema)

    def scan(names: Sequence[str], _: object) -> Iterator[pa.RecordBatch]:
        yield from table.select(names).to_batches()

    changes, rule = keep_history("test", changes, RULE, COLUMNS, whole, scan, datetime.now(UTC))
    held = {(row["id"], row["since"]): row for row in table.to_pylist()}
    for row in pa.Table.from_batches(changes.batches(whole), whole.append(pa.field(DELETED, pa.bool_()))).to_pylist():
        held[row["id"], row["since"]] = {name: row[name] for name in whole.names}
    assert rule.key == ("id", "since")
    assert changes.ends is not None
    for row in changes.ends.to_pylist():
        held[row["id"], row["since"]]["until"] = row["until"]
    return pa.Table.from_pylist([held[place] for place in sorted(held)], whole)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENT, min_size=1, max_size=8, unique_by=lambda one: one), cut=st.integers(0, 8))
def test_history_is_the_same_in_whatever_parts_and_order_rows_come(
    tmp_path: Path, events: list[tuple[int, int, int]], cut: int
) -> None:
    nothing = COLUMNS.columns(pa.schema([(name, pa.int64()) for name in ("id", "at", "n")])).empty_table()
    whole = _published(tmp_path, nothing, events)
    parts = nothing
    for part in (events[::-1][:cut], events[::-1][cut:]):
        parts = _published(tmp_path, parts, part) if part else parts

    assert parts.to_pylist() == whole.to_pylist()
    rows = whole.to_pylist()
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        is_last = following is None or following["id"] != row["id"]
        assert row["until"] == (None if is_last else following["since"])


# -- missing rows ------------------------------------------------------------------------------------------------------
MISSING: dict[str, Any] = {"delete_missing": True}


def test_rows_that_a_full_extract_lacks_are_deleted_or_ended(lake: Lake) -> None:
    lake.merge(rows((1, "a"), (2, "b")), **MISSING)
    lake.merge(rows((2, "B"), (3, "c")), **MISSING)
    assert [(row["id"], row["v"]) for row in lake.rows()] == [(2, "B"), (3, "c")]

    lake.merge(rows((3, "d")), joins=True, **MISSING)  # replayed rows are a part
    assert [(row["id"], row["v"]) for row in lake.rows()] == [(2, "B"), (3, "d")]


def test_versions_that_a_full_extract_lacks_are_ended(lake: Lake) -> None:
    how = HISTORY | MISSING
    lake.merge(rows((1, "a"), (2, "b")), **how)
    lake.merge(rows((2, "b")), **how)
    lake.merge(rows((1, "a"), (3, "c")), **how)

    assert versions(lake) == [(1, "a", 1, 2), (1, "a", 3, None), (2, "b", 1, 3), (3, "c", 3, None)]


def test_key_that_was_missing_begins_a_version_also_while_other_rows_are_in_quarantine(lake: Lake) -> None:
    how: dict[str, Any] = HISTORY | MISSING | {"by": ("n",)}
    lake.merge(rows((1, "a", 1), (2, "b", 1), names="id v n"), **how)
    lake.merge(rows((2, "b", 1), names="id v n"), **how)
    lake.merge(rows((1, "a", 1), names="id v n"), left_out=1, **how)

    assert versions(lake) == [(1, "a", 1, 2), (1, "a", 3, None), (2, "b", 1, None)]


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_rows_of_others_are_not_missing(lake: Lake, mode: str) -> None:
    lake.options["mode"] = mode
    lake.merge(rows((2, "b")), branch="other")
    with pytest.raises(StepRefusedError, match="also has rows of job 'numbers', dataset 'c', branch 'other'"):
        lake.step(rows((3, "c")), **MISSING).execute(STORAGE)


def test_other_writers_are_known_after_their_commits_expired(lake: Lake) -> None:
    lake.merge(rows((1, "a")), branch="other")
    lake.merge(rows((2, "b")))
    _forget(lake)
    with pytest.raises(StepRefusedError, match="the table also has rows of "):
        lake.step(rows((3, "c")), **MISSING).execute(STORAGE)
    assert [row["id"] for row in lake.rows()] == [1, 2]


def test_table_that_is_ours_alone_stays_so_after_its_commits_expired(lake: Lake) -> None:
    lake.merge(rows((1, "a"), (2, "b")), **MISSING)
    lake.merge(rows((2, "b")), **MISSING)
    _forget(lake)
    lake.merge(rows((3, "c")), **MISSING)
    assert [row["id"] for row in lake.rows()] == [3]


def test_table_of_an_earlier_version_whose_first_snapshots_expired_needs_a_word(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.merge(rows((1, "a")))
    lake.merge(rows((2, "b")))
    with lake.iceberg().transaction() as transaction:
        transaction.remove_properties("gobblin.writer")
    _forget(lake)
    with pytest.raises(StepRefusedError, match="its first snapshots have expired") as caught:
        lake.step(rows((3, "c")), **MISSING).execute(STORAGE)
    with lake.iceberg().transaction() as transaction:
        transaction.set_properties({"gobblin.writer": str(caught.value).split('"')[-2]})
    lake.merge(rows((3, "c")), **MISSING)
    assert [row["id"] for row in lake.rows()] == [3]


def _forget(lake: Lake) -> None:
    """Expire all but the newest commit, as the lake's own tools do."""
    if lake.kind == "iceberg":
        newest = lake.iceberg().current_snapshot().snapshot_id
        old = [one.snapshot_id for one in lake.iceberg().snapshots() if one.snapshot_id != newest]
        lake.iceberg().maintenance.expire_snapshots().by_ids(old).commit()
        return
    table = DeltaTable(f"{lake.root}/lake/test/numbers/all")
    table.create_checkpoint()
    for entry in sorted(Path(f"{lake.root}/lake/test/numbers/all/_delta_log").glob("*.json"))[:-1]:
        entry.unlink()


FULL: dict[str, Any] = {"extract": {"namespace": "test", "table": "numbers", "type": "snapshot_only"}}


def test_full_extracts_delete_in_tables_of_their_own(tmp_path: Path) -> None:
    alone = {"type": "delta", "mode": "merge", "key": ["id"], "delete_missing": True, "table": "dataset"}
    for count in (5, 3):
        result = run(tmp_path, table_job(alone, {"c": {"rows": count}, "d": {"rows": 4}}, **FULL))
        assert result.status is RunStatus.SUCCEEDED
    assert DeltaTable(f"{tmp_path}/lake/test/numbers/all/c").to_pyarrow_table()["id"].to_pylist() == [0, 1, 2]

    shared = table_job({**alone, "table": "branch"}, {"c": {"rows": 3}, "d": {"rows": 4}}, **FULL)
    planned = plan_job(project(tmp_path, shared), shared).datasets
    assert "would share the target 'all (one table for all datasets; `table: dataset`" in planned[0].problem


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "merge", "delete_missing": True}, "`delete_missing` needs full extracts"),
        ({"mode": "scd2", "key": []}, "`mode: scd2` needs `key`"),
    ],
)
def test_job_without_what_it_needs_is_refused_when_it_is_checked(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        check_parts(table_job({"type": "delta", "key": ["id"], **options}, {"c": {"rows": 1}}), tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "merge", "valid_at": "at"}, "`valid_at` belongs to `mode: scd2`"),
        ({"valid_to": "until"}, "`valid_to` belongs to `mode: scd2`"),
        ({"delete_missing": True}, "`delete_missing` belongs to `mode: merge | scd2`"),
        ({"mode": "scd2", "valid_to": "valid_from"}, "name two columns"),
        ({"mode": "scd2", "valid_at": "at", "delete_missing": True}, "leave out one"),
    ],
)
def test_options_that_belong_to_another_mode_are_refused(lake: Lake, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        lake.step(rows((1, "a")), **({"mode": "append", "key": []} | options))
    assert says in str(caught.value)


def test_rules_of_steps_that_earlier_versions_stored_are_read() -> None:
    stored: dict[str, Any] = {"key": ["id"], "newest_by": [], "delete_when": None}
    assert MergeRule.from_json(stored) == MergeRule(("id",))

    history = {"valid_at": "", "valid_from": "a", "valid_to": "b"}
    assert MergeRule.from_json({**stored, "history": history}).history == History("", "a", "b")
