"""Publishers in whole jobs: what a snapshot holds after each publication, what older ones hold, and what a manifest
says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.core.errors import UsageError, WatermarkMovedError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit import manifest, read_manifest
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import JobRun, run_job
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.engine.validation import check_publishers
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsSource

from .jobs import by_urn, job_spec, project, published, run

HERE = __name__
TENS = [{"type": "sql", "select": "id, id // 10 as tens"}]


def _job(rows: int, publisher: dict[str, Any] | None = None, unit_rows: int = 4, **parts: Any) -> JobSpec:
    main = {"name": "main"} | ({"publisher": publisher} if publisher else {})
    branches = {"fork": {"branches": [main, {"name": "history"}]}}
    return job_spec({"a": {"rows": rows, "unit_rows": unit_rows}}, **(branches | parts))


def _ids(root: Path, branch: str = "main", snapshot: int | None = None) -> list[int]:
    """Return the ids of a snapshot as a reader without a state store sees them."""
    found = read_published(root / "lake", "numbers", "a", snapshot)
    assert list(found.files) == list(load_published(project(root, _job(0)), _job(0), "a", snapshot).files)
    if branch not in found.rows:
        return []
    return sorted(found.to_arrow(branch).to_table(columns=["id"])["id"].to_pylist())


def _run(root: Path, *rows: int, publisher: dict[str, Any] | None = None, **parts: Any) -> None:
    for count in rows:
        result = run(root, _job(count, publisher, **parts))
        assert result.status is RunStatus.SUCCEEDED, result


def test_append_keeps_what_was_there(tmp_path: Path) -> None:
    _run(tmp_path, 5, 9, publisher={"type": "append"})
    assert _ids(tmp_path) == list(range(9))


def test_replace_publishes_all_work_units_together_and_nothing_older(tmp_path: Path) -> None:
    _run(tmp_path, 10, 19, 20, publisher={"type": "replace"}, execution={"merge_bytes": 0})
    assert [_ids(tmp_path, snapshot=n) for n in (1, 2, 3)] == [list(range(10)), list(range(10, 19)), [19]]
    assert _ids(tmp_path, "history") == list(range(20))
    # Nothing was deleted: older snapshots read as before.
    assert len(list((tmp_path / "lake/test/numbers/main/a").iterdir())) == 3 + 3 + 1


def test_replace_by_no_rows_leaves_the_branch_empty(tmp_path: Path) -> None:
    _run(tmp_path, 5, publisher={"type": "replace"})
    nothing = {"converters": [{"type": "sql", "where": "id < 5"}]}
    fork = {"branches": [{"name": "main", "publisher": {"type": "replace"}, **nothing}]}
    result = run(tmp_path, job_spec({"a": {"rows": 8}}, fork=fork))
    assert (by_urn(result)["a"].snapshot, by_urn(result)["a"].files_removed) == (2, 2)
    assert _ids(tmp_path) == []
    assert _ids(tmp_path, snapshot=1) == [0, 1, 2, 3, 4]


def test_replace_by_a_run_with_a_failed_work_unit_publishes_nothing(tmp_path: Path) -> None:
    _run(tmp_path, 8, publisher={"type": "replace"}, commit={"policy": "successful"})
    broken = {"a": {"rows": 16, "unit_rows": 4, "fail_at": 13}}
    fork = {"branches": [{"name": "main", "publisher": {"type": "replace"}}]}
    result = run(tmp_path, job_spec(broken, fork=fork, commit={"policy": "successful"}))
    assert by_urn(result)["a"].outcome is DatasetOutcome.FAILED
    assert _ids(tmp_path) == list(range(8))


def test_replace_partitions_touches_those_that_are_written_to(tmp_path: Path) -> None:
    parts = {"converters": TENS, "writer": {"type": "parquet", "partition_by": ["tens"]}}
    publisher = {"type": "replace_partitions"}
    _run(tmp_path, 15, 17, publisher=publisher, unit_rows=100, **parts)
    assert _ids(tmp_path) == [*range(10), 15, 16]
    _run(tmp_path, 33, publisher=publisher, unit_rows=5, **parts)
    assert _ids(tmp_path) == [*range(10), *range(17, 33)]
    assert _ids(tmp_path, "history") == list(range(33))


@pytest.mark.parametrize(("replace", "seen"), [(False, [0, 1, 2, 3, 4, 5]), (True, [3, 4, 5])])
def test_timestamped_makes_a_folder_per_publication(tmp_path: Path, replace: bool, seen: list[int]) -> None:
    _run(tmp_path, 3, 6, publisher={"type": "timestamped", "replace": replace}, unit_rows=2)
    folders = sorted(path.name for path in (tmp_path / "lake/test/numbers/main/a").iterdir())
    assert len(folders) == 2
    assert all(len(name) == len("20261121T101500123Z") and name.endswith("Z") for name in folders)
    assert _ids(tmp_path) == seen
    assert _ids(tmp_path, snapshot=1) == [0, 1, 2]


def test_timestamped_by_commit_keeps_partition_folders_inside(tmp_path: Path) -> None:
    parts = {"converters": TENS, "writer": {"type": "parquet", "partition_by": ["tens"]}}
    _run(tmp_path, 12, publisher={"type": "timestamped", "name": "commit"}, unit_rows=100, **parts)
    (folder,) = (tmp_path / "lake/test/numbers/main/a").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["tens=0", "tens=1"]
    assert all(path.name.startswith(folder.name) for path in folder.rglob("*.parquet"))
    assert _ids(tmp_path) == list(range(12))


def test_noop_reads_and_counts_and_publishes_nothing(tmp_path: Path) -> None:
    fork = {"branches": [{"name": "main", "publisher": {"type": "noop"}}]}
    result = by_urn(run(tmp_path, job_spec({"a": {"rows": 7}}, fork=fork)))["a"]
    assert (result.outcome, result.rows_by_branch, result.files, result.snapshot) == (
        DatasetOutcome.COMMITTED,
        {"main": 7},
        0,
        0,
    )
    assert str(result.actual_high) == "7"
    assert [path.name for path in (tmp_path / "lake").rglob("*") if path.is_file()] == []


def test_quarantine_is_appended_to_whatever_the_publisher(tmp_path: Path) -> None:
    policies = [{"name": "has_value", "type": "not_null", "columns": ["value"]}]
    _run(tmp_path, 11, 31, publisher={"type": "replace"}, row_policies=policies)
    found = read_published(tmp_path / "lake", "numbers", "a")
    assert found.rows == {"history": 27, "main": 18, "quarantine": 4}


def test_jobs_publisher_is_that_of_branches_without_one_and_snapshots_replace(tmp_path: Path) -> None:
    job = _job(1, {"type": "append"}).model_copy(update={"publisher": ConstructSpec(type="noop")})
    assert [job.publisher_of(branch).type for branch in job.fork.branches] == ["append", "noop"]
    snapshot = _job(1, extract={"namespace": "n", "table": "t", "type": "snapshot_only"})
    assert {snapshot.publisher_of(branch).type for branch in snapshot.fork.branches} == {"replace"}


def test_audit_counts_what_the_newest_snapshot_should_hold(tmp_path: Path) -> None:
    publisher = {"type": "replace"}
    _run(tmp_path, 10, 15, publisher=publisher)
    job = _job(15, publisher)
    source = RowsSource(RowsSource.Options.model_validate(job.source.options), ConstructContext("numbers", "/"))
    store = project(tmp_path, job).open_store()
    try:
        audit = audit_dataset(job, source, store, "a")
        assert audit is not None
        assert (audit.published_rows, audit.lost, audit.duplicated) == ({"main": 5, "history": 15}, 0, 0)
    finally:
        store.close()


def test_rollback_brings_replaced_files_back_and_forth_again(tmp_path: Path) -> None:
    publisher = {"type": "replace"}
    _run(tmp_path, 4, 8, publisher=publisher)
    job = _job(8, publisher)
    rollback(project(tmp_path, job), job, "a", 1)
    assert _ids(tmp_path) == [0, 1, 2, 3]
    rollback(project(tmp_path, job), job, "a", 2)
    assert _ids(tmp_path) == [4, 5, 6, 7]
    _run(tmp_path, 9, publisher=publisher)
    assert _ids(tmp_path) == [8]
    assert _ids(tmp_path, "history") == list(range(9))


def test_stale_run_never_removes_by_an_older_snapshot(tmp_path: Path) -> None:
    """A run that lost its lease while Spark worked decides after another has replaced the files."""
    publisher = {"type": "replace"}
    _run(tmp_path, 4, publisher=publisher)
    opened = project(tmp_path, _job(8, publisher))
    store = opened.open_store()
    try:
        with JobRun(JobContext.of(opened, _job(8, publisher), store), InlineRunner()) as slow:
            (decided,) = slow.extract(slow.plan()).datasets
        assert decided.sequence is not None
        assert len(decided.sequence.removed) == 1
        _run(tmp_path, 12, publisher=publisher)
        grant = store.acquire_leases("numbers", ["a"], LeaseOwner.current("slow"), timedelta(minutes=1))
        with pytest.raises(WatermarkMovedError):
            Committer(store, LocalStorage()).prepare(decided.sequence, grant.granted["a"].epoch)
    finally:
        store.close()
    assert _ids(tmp_path) == list(range(4, 12))


def test_run_cut_into_several_is_refused_where_a_publisher_replaces() -> None:
    cut: dict[str, Any] = {"execution": {"max_work_units": 3}}
    check_publishers(_job(5, {"type": "append"}, **cut))
    for publisher in ("replace", "replace_partitions"):
        with pytest.raises(UsageError, match=r"branch 'main': publisher .* replaces what was published"):
            check_publishers(_job(5, {"type": publisher}, **cut))


@pytest.mark.parametrize(
    ("publisher", "writer", "problem"),
    [
        ({"type": "delta"}, {"type": "csv"}, "takes Parquet files; .* not 'csv'"),
        ({"type": "sql_table", "url": "sqlite:///w.db", "table": "t"}, {"type": "orc"}, "takes Parquet files"),
        ({"type": "kafka_topic", "brokers": "b:1", "topic": "t"}, {"type": "jsonl"}, "takes Parquet files"),
        (
            {"type": "iceberg", "table": "a.b", "catalog": {"type": "rest"}},
            {"type": "parquet", "partition_by": ["day", {"column": "at"}]},
            "would lack day, in folder names only",
        ),
    ],
)
def test_writer_that_does_not_serve_a_publisher_is_refused(
    publisher: dict[str, Any], writer: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        check_publishers(_job(5, publisher, writer=writer))


def test_staged_rows_for_a_table_are_durable_before_the_sequence_is_stored(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watching(LocalStorage):
        def sync_dir(self, path: str) -> None:
            synced.append(path)
            super().sync_dir(path)

    class Watched(Project):
        def storage(self, job: JobSpec) -> Storage:
            return Watching()

    job = _job(4, fork={"branches": [{"name": "main", "publisher": {"type": f"{HERE}:TablePublisher"}}]})
    run_job(Watched(tmp_path, ProjectSpec(project="tests"), (job,)), job, runner=InlineRunner())
    assert any("/_gobblin/staging/" in path for path in synced)
    (note,) = (tmp_path / "lake/notes").iterdir()
    assert note.read_text() == "[4]"
    assert not list((tmp_path / "lake").rglob("*.parquet"))


class NoOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@register_commit_step
class NoteStep:
    """Writes a note beside the output: a table of a user's own."""

    type_name: ClassVar[str] = "test_note"
    version: ClassVar[int] = 1

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text

    def verify(self, storage: Storage) -> bool:
        return storage.size(self.path) is not None

    def execute(self, storage: Storage) -> None:
        storage.put_if_absent(self.path, self.text.encode())

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "text": self.text}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> NoteStep:
        return cls(**fields)

    def describe(self) -> str:
        return f"note {self.path}"


class NotingPublisher:
    """Notes what it was shown."""

    Options = NoOptions

    def __init__(self, options: NoOptions, context: ConstructContext) -> None:
        assert (context.dataset_urn, context.branch) == ("a", "main")

    def publish(self, view: PublishView) -> Publication:
        assert all(file.path.startswith(view.folder + "/") for file in view.files)
        assert all(Path(path).is_file() for path in view.staged.values())
        text = f"{view.branch} {len(view.files)} {view.low or '-'} {view.high} {(view.schema or '').splitlines()[0]}"
        return Publication(steps=(NoteStep(f"{view.output_root}/notes/{view.commit_id}", text),))


@register_commit_step
class CountStep(NoteStep):
    """Reads staged files, as a load into a table does."""

    type_name = "test_count"

    def execute(self, storage: Storage) -> None:
        rows = [pq.read_metadata(path).num_rows for path in self.text.split(",")]
        storage.put_if_absent(self.path, str(rows).encode())


class TablePublisher(NotingPublisher):
    """Brings rows elsewhere and publishes no file."""

    def publish(self, view: PublishView) -> Publication:
        step = CountStep(f"{view.output_root}/notes/{view.commit_id}", ",".join(view.staged.values()))
        return Publication(steps=(step,), publishes_files=False)


class ThievingPublisher(NotingPublisher):
    """Removes what it was not shown."""

    def publish(self, view: PublishView) -> Publication:
        return Publication(removed=("/etc/passwd",))


class WanderingPublisher(NotingPublisher):
    """Wants its files elsewhere."""

    def subfolder(self, view: PublishView) -> str:
        return "../../other"


def test_publisher_of_ones_own_sees_its_files_and_adds_steps(tmp_path: Path) -> None:
    _run(tmp_path, 8, publisher={"type": f"{HERE}:NotingPublisher"})
    (note,) = (tmp_path / "lake/notes").iterdir()
    assert note.read_text() == "main 2 0 8 id: int64"
    assert published(tmp_path, _job(8), "a", "main") == list(range(8))


@pytest.mark.parametrize(
    ("publisher", "problem"),
    [
        ("ThievingPublisher", "it removes /etc/passwd, which it does not hold"),
        ("WanderingPublisher", "not a plain relative"),
    ],
)
def test_publisher_that_oversteps_fails_its_dataset_alone(tmp_path: Path, publisher: str, problem: str) -> None:
    result = run(tmp_path, _job(4, {"type": f"{HERE}:{publisher}"}))
    (failure,) = by_urn(result)["a"].failures
    assert failure.code == "step-refused"
    assert problem in failure.message


def test_clean_deletes_replaced_files_once_no_kept_snapshot_holds_them(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"publisher": {"type": "replace"}, "unit_rows": 100, "commit": {"keep_snapshots": 2}}
    _run(tmp_path, 10, 20, 30, 40, **parts)
    job = _job(40, **parts)
    opened = project(tmp_path, job)
    before = set((tmp_path / "lake/test/numbers").rglob("*.parquet"))
    (expired,) = clean(opened, job, dry_run=True).expired
    assert (expired.snapshots, {file.branch for file in expired.files}) == ((1, 2), {"main"})
    assert clean(opened, job).expired == (expired,)
    assert before - set((tmp_path / "lake/test/numbers").rglob("*.parquet")) == {Path(f.path) for f in expired.files}
    assert [_ids(tmp_path, snapshot=n) for n in (3, 4)] == [list(range(20, 30)), list(range(30, 40))]
    assert _ids(tmp_path, "history") == list(range(40))
    with pytest.raises(UsageError, match="has no snapshot 2: it has expired"):
        read_published(tmp_path / "lake", "numbers", "a", 2)
    assert clean(opened, job).expired == ()
    rollback(opened, job, "a", 3)
    assert _ids(tmp_path) == list(range(20, 30))
    _run(tmp_path, 35, **parts)
    (expired,) = clean(opened, job).expired
    assert (expired.snapshots, [file.snapshot for file in expired.files]) == ((4,), [4, 4])
    assert _ids(tmp_path, snapshot=5) == list(range(20, 30))
    assert _ids(tmp_path) == list(range(30, 35))
    assert _ids(tmp_path, "history") == list(range(35))


def test_show_tells_how_many_files_a_snapshot_dropped(tmp_path: Path) -> None:
    _run(tmp_path, 8, 9, publisher={"type": "replace"})
    store = project(tmp_path, _job(9)).open_store()
    try:
        assert [(one.files, one.removed) for one in list_snapshots(store, "numbers", "a")] == [(2, 2), (4, 0)]
    finally:
        store.close()


def test_whole_manifests_are_written_every_so_many_and_spare_the_reader_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "WHOLE_EVERY", 8)
    reads: list[str] = []

    class Watching(LocalStorage):
        def read(self, path: str) -> bytes:
            reads.append(path)
            return super().read(path)

    for count in range(1, 13):
        run(tmp_path, _job(count, {"type": "replace"}))
    lake = str(tmp_path / "lake")
    for snapshot in (1, 7, 8, 9, 12):
        reads.clear()
        files = read_manifest(Watching(), lake, "numbers", "a", snapshot)
        assert _paths(files, "main") == 1
        assert _paths(files, "history") == snapshot
        assert len(reads) == {1: 1, 7: 7, 8: 1, 9: 2, 12: 5}[snapshot]
    assert _ids(tmp_path, snapshot=10) == [9]
    for path in (tmp_path / "lake/_gobblin/manifests/numbers/a").iterdir():
        path.unlink()
    run(tmp_path, _job(13, {"type": "replace"}))
    assert [_ids(tmp_path, snapshot=n) for n in range(1, 14)] == [[n] for n in range(13)]


def _paths(files: Sequence[Any], branch: str) -> int:
    return sum(file.branch == branch for file in files)
