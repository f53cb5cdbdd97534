"""Snapshots: what readers find, and going back, with data and watermark together."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import DatasetBusyError, StorageError, UnfinishedSequenceError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit import crash_at
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import plan_rollback, rollback
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import run_in_child
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

ROWS = (10, 25, 40)
"""Rows in the source at each run; snapshot n holds the first ROWS[n - 1]."""


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job whose dataset has three snapshots."""
    for rows in ROWS:
        run(tmp_path, job_spec({"a": {"rows": rows}}))
    return job_spec({"a": {"rows": ROWS[-1]}})


@pytest.fixture
def store(tmp_path: Path, job: JobSpec) -> Iterator[StateStore]:
    opened = project(tmp_path, job).open_store()
    yield opened
    opened.close()


def ids(snapshot: PublishedSnapshot, branch: str = "all") -> list[int]:
    import pyarrow.parquet as pq

    return sorted(value for path in snapshot.paths(branch) for value in pq.read_table(path)["id"].to_pylist())


def test_every_snapshot_can_be_read_from_store_and_from_manifests(tmp_path: Path, job: JobSpec) -> None:
    for number, rows in enumerate(ROWS, 1):
        by_store = load_published(project(tmp_path, job), job, "a", number)
        assert ids(by_store) == list(range(rows))
        assert by_store.rows == {"all": rows, "masked": rows}
        assert read_published(str(tmp_path / "lake"), job.job, "a", number) == by_store
    newest = load_published(project(tmp_path, job), job, "a")
    assert newest == read_published(str(tmp_path / "lake"), job.job, "a")
    assert newest.snapshot == 3
    assert newest.folder("masked") == str(tmp_path / "lake/test/numbers/masked/a")


def test_unknown_branch_or_snapshot_is_refused_with_what_there_is(tmp_path: Path, job: JobSpec) -> None:
    with pytest.raises(UsageError, match=r"no branch 'none'\. It has all, masked"):
        load_published(project(tmp_path, job), job, "a").paths("none")
    with pytest.raises(UsageError, match=r"no snapshot 4\. The newest is 3"):
        load_published(project(tmp_path, job), job, "a", 4)
    with pytest.raises(UsageError, match="Nothing was published of dataset 'other'"):
        load_published(project(tmp_path, job), job, "other", 1)
    assert load_published(project(tmp_path, job), job, "other") == PublishedSnapshot(job.job, "other", 0, ())
    assert read_published(str(tmp_path / "lake"), job.job, "other").paths("all") == []


def test_branch_that_no_row_went_to_has_no_files_and_is_not_denied(tmp_path: Path) -> None:
    none = {"name": "none", "converters": [{"type": "sql", "where": "id < 0"}]}
    job = job_spec({"a": {"rows": 5}}, fork={"branches": [{"name": "all"}, none]})
    run(tmp_path, job)
    by_store = load_published(project(tmp_path, job), job, "a")
    for snapshot in (by_store, read_published(tmp_path / "lake", job.job, "a")):
        assert (snapshot.paths("none"), snapshot.paths("quarantine")) == ([], [])
        for read in (snapshot.to_arrow, snapshot.folder):
            with pytest.raises(UsageError, match=r"^Nothing was published of dataset 'a' in branch 'none'\.$"):
                read("none")
    with pytest.raises(UsageError, match=r"^Nothing was published of dataset 'other'\.$"):
        load_published(project(tmp_path, job), job, "other").folder()


def test_history_lists_what_each_snapshot_added(store: StateStore, job: JobSpec) -> None:
    found = list_snapshots(store, job.job, "a")
    assert [(one.snapshot, one.watermark, one.rows["all"], one.went_back_to) for one in found] == [
        (3, LongWatermark(40), 15, None),
        (2, LongWatermark(25), 15, None),
        (1, LongWatermark(10), 10, None),
    ]


def test_rollback_moves_data_and_watermark_together_and_the_next_run_reads_on(tmp_path: Path, job: JobSpec) -> None:
    plan = rollback(project(tmp_path, job), job, "a", 1, who="me", why="bad source")
    assert (plan.before.watermark, plan.after.watermark) == (LongWatermark(40), LongWatermark(10))
    assert len(plan.left) == 4

    assert published(tmp_path, job, "a") == list(range(10))
    lake = str(tmp_path / "lake")
    assert ids(read_published(lake, job.job, "a")) == list(range(10))
    assert [ids(read_published(lake, job.job, "a", n)) for n in (2, 3)] == [list(range(25)), list(range(40))]

    assert by_urn(run(tmp_path, job))["a"].rows_read == 30
    assert published(tmp_path, job, "a") == list(range(40))
    assert ids(read_published(lake, job.job, "a")) == list(range(40))
    state = load_state(tmp_path, job)
    assert (state.version, state.snapshot, state.generation, state.totals.rows_read) == (5, 5, 1, 40)


def load_state(root: Path, job: JobSpec) -> DatasetState:
    opened = project(root, job).open_store()
    try:
        return opened.load_dataset_states(job.job)["a"]
    finally:
        opened.close()


def test_rollback_can_be_undone_by_another(tmp_path: Path, job: JobSpec, store: StateStore) -> None:
    rollback(project(tmp_path, job), job, "a", 2)
    rollback(project(tmp_path, job), job, "a", 3)
    assert published(tmp_path, job, "a") == list(range(40))
    assert by_urn(run(tmp_path, job))["a"].outcome == "idle"
    assert [(one.snapshot, one.went_back_to) for one in list_snapshots(store, job.job, "a")][:2] == [(5, 3), (4, 2)]


def test_rollback_goes_to_the_watermark_that_made_the_snapshot_not_to_a_persons_later_move(
    tmp_path: Path, job: JobSpec, store: StateStore
) -> None:
    opened = project(tmp_path, job)
    change = plan_reset(load_state(tmp_path, job), who="me", why="test", now=opened.clock.now())
    apply_change(store, change)
    run(tmp_path, job)
    assert len(published(tmp_path, job, "a")) == 80
    rollback(opened, job, "a", 3)
    assert load_state(tmp_path, job).watermark == LongWatermark(40)
    assert by_urn(run(tmp_path, job))["a"].outcome == "idle"
    assert published(tmp_path, job, "a") == list(range(40))


@pytest.mark.parametrize(
    ("to", "problem"),
    [(3, "is the newest already"), (0, "has no snapshot 0"), (4, "has no snapshot 4"), (-1, "has no snapshot -1")],
)
def test_rollback_to_what_is_not_there_is_refused(store: StateStore, job: JobSpec, to: int, problem: str) -> None:
    before = store.load_dataset_states(job.job)
    with pytest.raises(UsageError, match=problem):
        plan_rollback(store, job, "a", to, before["a"].updated_at)
    assert store.load_dataset_states(job.job) == before


def test_rollback_while_a_run_holds_the_dataset_is_refused(tmp_path: Path, job: JobSpec, store: StateStore) -> None:
    store.acquire_leases(job.job, ["a"], LeaseOwner.current("other-run"), timedelta(seconds=60))
    with pytest.raises(DatasetBusyError, match="held by run other-run"):
        rollback(project(tmp_path, job), job, "a", 1)
    assert published(tmp_path, job, "a") == list(range(40))


def test_rollback_before_recovery_is_refused(tmp_path: Path, job: JobSpec) -> None:
    later = job_spec({"a": {"rows": 50}})
    run_in_child(lambda: run_crashing(tmp_path, later))
    with pytest.raises(UnfinishedSequenceError):
        rollback(project(tmp_path, job), job, "a", 1)
    run(tmp_path, later)
    rollback(project(tmp_path, job), job, "a", 1)
    assert published(tmp_path, job, "a") == list(range(10))


def run_crashing(root: Path, job: JobSpec) -> None:
    from gobblin_dagster.engine.run.job_run import run_job
    from gobblin_dagster.testing.inline_runner import InlineRunner

    run_job(project(root, job), job, runner=InlineRunner(), commit_listener=crash_at(1))


def test_rollback_to_a_snapshot_with_a_lost_file_is_refused(tmp_path: Path, job: JobSpec) -> None:
    Path(load_published(project(tmp_path, job), job, "a", 1).paths("masked")[0]).unlink()
    with pytest.raises(StorageError, match=r"roll back.*parquet: it is gone"):
        rollback(project(tmp_path, job), job, "a", 1)
    assert load_state(tmp_path, job).snapshot == 3


def test_rollback_names_a_file_that_is_a_link_to_itself_and_what_to_do(tmp_path: Path, job: JobSpec) -> None:
    """It ended as `error[system]`, with the words of the system alone."""
    lost = Path(load_published(project(tmp_path, job), job, "a", 1).paths("masked")[0])
    lost.unlink()
    lost.symlink_to(lost.name)
    with pytest.raises(StorageError, match=r"roll back.*parquet: it cannot be read: .*links. Restore it, or choose"):
        rollback(project(tmp_path, job), job, "a", 1)
    assert load_state(tmp_path, job).snapshot == 3


def test_manifest_of_a_rollback_that_a_crash_left_out_is_written_by_the_next_run(tmp_path: Path, job: JobSpec) -> None:
    rollback(project(tmp_path, job), job, "a", 1)
    lake = str(tmp_path / "lake")
    for number in (2, 3, 4):
        Path(manifest_path(lake, job.job, "a", number)).unlink()
    run(tmp_path, job)
    assert ids(read_published(lake, job.job, "a")) == list(range(40))
    assert [ids(read_published(lake, job.job, "a", n)) for n in (2, 3, 4)] == [
        list(range(25)),
        list(range(40)),
        list(range(10)),
    ]


def test_rollback_whose_manifest_cannot_be_written_stands_and_says_that_readers_do_not_see_it(
    tmp_path: Path, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str, data: bytes) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", refuse)
        with pytest.raises(StorageError, match=r"The snapshot is committed; readers of manifests find it after the "):
            rollback(project(tmp_path, job), job, "a", 1)
    assert (load_state(tmp_path, job).snapshot, load_state(tmp_path, job).watermark) == (4, LongWatermark(10))
    clean(project(tmp_path, job), job)
    assert ids(read_published(str(tmp_path / "lake"), job.job, "a")) == list(range(10))


def test_rollback_is_a_commit_that_dagster_hears_of(tmp_path: Path, job: JobSpec, store: StateStore) -> None:
    plan = rollback(project(tmp_path, job), job, "a", 1)
    newest = store.load_unreported(job.job)[-1]
    assert (newest.state, newest.version_read) == (SequenceState.COMMITTED, plan.before.version)


def _shaped(select: str, rows: int, **writer: Any) -> JobSpec:
    return job_spec(
        {"a": {"rows": rows}},
        fork={"branches": [{"name": "all"}]},
        converters=[{"type": "sql", "select": select}],
        writer={"type": "parquet"} | writer,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("id, 'x' AS b", "id", [(0, "x"), (1, "x"), (2, None), (3, None)]),
        ("id", "id, 'x' AS b", [(0, None), (1, None), (2, "x"), (3, "x")]),
        ("id, 7::INTEGER AS b", "id, 3000000000::BIGINT AS b", [(0, 7), (1, 7), (2, 3 * 10**9), (3, 3 * 10**9)]),
        ("id, NULL AS b", "id, 'x' AS b", [(0, None), (1, None), (2, "x"), (3, "x")]),
    ],
    ids=["removed", "added", "widened", "null first"],
)
def test_snapshot_as_arrow_has_the_columns_of_all_files(
    tmp_path: Path, before: str, after: str, expected: list[tuple[int, Any]]
) -> None:
    run(tmp_path, _shaped(before, 2))
    run(tmp_path, _shaped(after, 4))
    rows = read_published(tmp_path / "lake", "numbers", "a").to_arrow("all").to_table().to_pylist()
    assert sorted((row["id"], row["b"]) for row in rows) == expected


def test_snapshot_whose_files_have_no_type_in_common_is_no_arrow_dataset(tmp_path: Path) -> None:
    run(tmp_path, _shaped("id", 2))
    run(tmp_path, _shaped("'00' || id AS id", 4))
    with pytest.raises(UsageError, match="Files of dataset 'a', branch 'all', have no types in common"):
        read_published(tmp_path / "lake", "numbers", "a").to_arrow("all")


def test_folders_come_back_with_the_types_that_their_columns_had(tmp_path: Path) -> None:
    run(tmp_path, _shaped("id, '0' || id AS p, DATE '2020-01-01' AS d", 2, partition_by=["p", "d"]))
    table = read_published(tmp_path / "lake", "numbers", "a").to_arrow("all").to_table()
    assert sorted(table["p"].to_pylist()) == ["00", "01"]
    assert table["d"].to_pylist() == [date(2020, 1, 1)] * 2


def test_types_that_text_does_not_tell_come_from_the_state(tmp_path: Path) -> None:
    select = "'00' || id AS id, '' AS empty, 0.10::DECIMAL(9, 2) AS price, 'b;c' AS day"
    job = _shaped(select, 2, type="csv", delimiter=";", partition_by=["day"])
    run(tmp_path, job)
    rows = load_published(project(tmp_path, job), job, "a").to_arrow("all").to_table().to_pylist()
    assert rows == [{"id": f"00{n}", "empty": "", "price": Decimal("0.10"), "day": "b;c"} for n in range(2)]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"header": False}, {}), ({}, {"header": False}), ({"delimiter": ";"}, {}), ({}, {"delimiter": ";"})],
    ids=str,
)
def test_file_that_was_written_with_other_options_is_not_misread(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """A first row would become the names of columns, or the names a row."""
    run(tmp_path, _shaped("'00' || id AS id, 'x' AS b", 2, type="csv", **before))
    job = _shaped("'00' || id AS id, 'x' AS b", 4, type="csv", **after)
    run(tmp_path, job)
    with pytest.raises(UsageError, match=r"was written with other options \(`header`, `delimiter`\) than its writer"):
        load_published(project(tmp_path, job), job, "a").to_arrow("all")


def test_column_that_is_in_files_and_folders_keeps_its_type(tmp_path: Path) -> None:
    run(tmp_path, _shaped("id, id::SMALLINT AS p", 2, partition_by=["p"], keep_partition_columns=True))
    table = read_published(tmp_path / "lake", "numbers", "a").to_arrow("all").to_table()
    assert str(table.schema.field("p").type) == "int16"
