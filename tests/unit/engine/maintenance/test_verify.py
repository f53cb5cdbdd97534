"""Verifying what is published: whatever differs from the state store is named, and manifests are written again."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.manifest import list_all_manifests
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.verify import Differs, Verification, verify
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.storage.local import LocalStorage
from gobblin_dagster.testing.damage import DAMAGES, Damage
from gobblin_dagster.testing.faults import Fault, FaultPoints, Halted, counted_storage, halt_after, is_look
from tests.unit.constructs.publishers.table_jobs import table_job
from tests.unit.engine.jobs import job_spec, project, run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Publish two datasets in three snapshots."""
    for rows in (3, 5, 8):
        run(tmp_path, job_spec({"a": {"rows": rows}, "b/1": {"rows": rows}}))
    return tmp_path


def check(root: Path, *urns: str, **options: Any) -> Verification:
    job = job_spec({"a": {"rows": 8}, "b/1": {"rows": 8}})
    return verify(project(root, job), job, urns or None, **options)


def found(done: Verification) -> set[tuple[str, str]]:
    own = {(one.dataset_urn, diff.what.value) for one in done.datasets for diff in one.differences}
    return own | {("", diff.what.value) for diff in done.extra}


def _put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _put_nested(path: Path) -> None:
    path.write_text("[" * 100_000)


def test_nothing_differs_of_what_was_just_published(lake: Path) -> None:
    done = check(lake, checksum=True)
    assert found(done) == set()
    assert done.is_whole
    assert [(one.dataset_urn, one.snapshot, one.files) for one in done.datasets] == [("a", 3, 6), ("b/1", 3, 6)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_named_alone_and_repaired_where_the_store_knows_better(lake: Path, damage: Damage) -> None:
    damage.strike(str(lake / "lake"), "numbers", "a")
    before = check(lake)
    expected = {("" if damage.differs is Differs.FILE_EXTRA else "a", damage.differs.value)}
    if damage.needs_checksum:
        assert found(before) == set()
        before = check(lake, checksum=True)
    assert found(before) == expected
    assert not before.is_whole
    done = check(lake, checksum=damage.needs_checksum, repair=True)
    assert done.is_whole is damage.is_mendable
    assert (found(check(lake, checksum=damage.needs_checksum)) == set()) is damage.is_mendable
    if damage.is_mendable:
        files = read_published(lake / "lake", "numbers", "a").files
        assert sum(file.rows for file in files if file.branch == "all") == 8


@pytest.mark.parametrize("repair", [False, True])
def test_what_a_run_commits_meanwhile_is_no_difference(
    lake: Path, monkeypatch: pytest.MonkeyPatch, repair: bool
) -> None:
    """Its manifest was "unknown", as if the store had been set back, and its files were "in no snapshot"."""
    rows = iter([13, 21])

    def listed(*args: Any) -> tuple[list[int], list[int]]:
        if more := next(rows, 0):
            run(lake, job_spec({"a": {"rows": more}, "b/1": {"rows": 8}, "new": {"rows": more}}))
        return list_all_manifests(*args)

    monkeypatch.setattr("gobblin_dagster.engine.maintenance.verify.list_all_manifests", listed)
    done = check(lake, repair=repair)
    assert found(done) == set()
    assert [(one.dataset_urn, one.snapshot, one.note) for one in done.datasets] == [("a", 5, ""), ("b/1", 3, "")]


def test_a_dataset_that_changes_with_each_look_is_noted(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = iter(range(10, 100, 10))

    def listed(*args: Any) -> tuple[list[int], list[int]]:
        run(lake, job_spec({"a": {"rows": next(rows)}}))
        return list_all_manifests(*args)

    monkeypatch.setattr("gobblin_dagster.engine.maintenance.verify.list_all_manifests", listed)
    (one,) = check(lake, "a").datasets
    assert one.note == "runs worked on it each time that it was compared"


def test_leases_are_asked_for_all_datasets_that_differ_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_spec({f"d{number}": {"rows": 1} for number in range(6)})
    run(tmp_path, job)
    for manifest in (tmp_path / "lake/_gobblin/manifests/numbers").rglob("*.json"):
        manifest.write_text("cut")
    asked: list[str] = []
    load = SqlStateStore.load_leases

    def loaded(store: SqlStateStore, job: str) -> dict[str, Lease]:
        asked.append(job)
        return load(store, job)

    monkeypatch.setattr(SqlStateStore, "load_leases", loaded)
    assert len(found(verify(project(tmp_path, job), job))) == 6
    assert len(asked) == 3


def test_verifying_changes_nothing_unless_it_shall_repair(lake: Path) -> None:
    for path in (lake / "lake/_gobblin/manifests/numbers/a").iterdir():
        path.write_text("cut")
    check(lake, checksum=True)
    assert {path.read_text() for path in (lake / "lake/_gobblin/manifests/numbers/a").iterdir()} == {"cut"}


def test_one_dataset_is_compared_alone_with_what_lies_beside_its_files(lake: Path) -> None:
    (lake / "lake/_gobblin/manifests/numbers/a/0000000002.json").unlink()
    beside = next((lake / "lake/test").rglob("*b*1/*.parquet")).with_name("stranger.parquet")
    beside.write_text("who am I?")
    done = check(lake, "b/1")
    assert found(done) == {("", "file extra")}
    assert [one.path for one in done.extra] == [str(beside)]


@pytest.mark.parametrize("is_one", [True, False])
def test_published_file_in_a_folder_that_was_made_in_another_case_is_not_extra_where_case_does_not_count(
    lake: Path, monkeypatch: pytest.MonkeyPatch, is_one: bool
) -> None:
    """Such as `k=A/1.parquet` behind `k=a/2.parquet`: both are in the folder `k=a` there."""
    walked = LocalStorage.walk_files

    def other_case(self: LocalStorage, path: str) -> Iterator[str]:
        return (one.replace("/test/", "/Test/") for one in walked(self, path))

    monkeypatch.setattr(LocalStorage, "walk_files", other_case)
    monkeypatch.setattr(LocalStorage, "folds_case", lambda *_: is_one)
    assert found(check(lake)) == (set() if is_one else {("", "file extra")})


def test_files_of_other_jobs_and_hidden_ones_are_not_extra(lake: Path) -> None:
    other = job_spec({"c": {"rows": 3}}, job="others")
    run(lake, other)
    (lake / "lake/.hidden").write_text("x")
    (lake / "lake/_SUCCESS").write_text("x")
    assert found(check(lake)) == set()


def test_files_of_another_project_in_the_same_output_are_not_extra_but_those_that_only_a_lost_store_knew(
    tmp_path: Path,
) -> None:
    """They were "in no snapshot", though the manifests beside them list them."""
    ours, theirs = (
        job_spec({"a": {"rows": 3}}, job=name, output={"path": str(tmp_path / "lake")}) for name in ("ours", "theirs")
    )
    run(tmp_path / "one", ours)
    run(tmp_path / "two", theirs)
    assert found(verify(project(tmp_path / "one", ours), ours)) == set()
    (tmp_path / "lake/_gobblin/manifests/theirs/a/0000000001.json").write_text("cut")
    assert found(verify(project(tmp_path / "one", ours), ours)) == {("", "file extra")}
    assert found(verify(project(tmp_path / "three", theirs), theirs)) == {("", "file extra")}


@pytest.mark.parametrize("table", ["branch", "dataset"])
def test_files_that_a_table_writes_itself_are_not_extra_and_those_of_lost_commits_are(
    tmp_path: Path, table: str
) -> None:
    publisher = {"type": "delta", "mode": "merge", "key": ["id"], "table": table}
    job = table_job(publisher, {"a": {"rows": 3}})
    run(tmp_path, job)
    assert list((tmp_path / "lake/test").rglob("part-*.parquet"))
    assert found(verify(project(tmp_path, job), job)) == set()
    (log,) = (tmp_path / "lake/test").rglob("_delta_log")
    lost = log.with_name(f"{'0a' * 16}-wu-00001.parquet")
    lost.write_text("left by a crash")
    (extra,) = verify(project(tmp_path, job), job).extra
    assert extra.path == str(lost)


def test_manifests_of_rolled_back_and_replaced_snapshots_are_as_they_should_be(lake: Path) -> None:
    job = job_spec({"a": {"rows": 8}})
    rollback(project(lake, job), job, "a", 1)
    run(lake, job_spec({"a": {"rows": 9}, "b/1": {"rows": 8}}))
    assert found(check(lake, checksum=True)) == set()


@pytest.mark.parametrize(("put", "named"), [(_put_pipe, "manifest missing"), (_put_nested, "manifest cut")])
def test_manifest_that_would_hold_or_overflow_its_reader_is_named_and_repaired(
    lake: Path, put: Callable[[Path], None], named: str
) -> None:
    put(lake / "lake/_gobblin/manifests/numbers/a/0000000003.json")
    with pytest.raises(CorruptRecordError, match=r"Manifest .*0000000003\.json"):
        read_published(lake / "lake", "numbers", "a")
    assert found(check(lake)) == {("a", named)}
    assert check(lake, repair=True).is_whole
    assert found(check(lake)) == set()


def test_manifest_that_is_a_link_to_itself_keeps_no_other_from_being_compared(lake: Path) -> None:
    manifest = lake / "lake/_gobblin/manifests/numbers/a/0000000002.json"
    manifest.unlink()
    manifest.symlink_to(manifest)
    (lake / "lake/_gobblin/manifests/numbers/b%2F1/0000000001.json").unlink()
    assert found(check(lake)) == {("a", "manifest cut"), ("b/1", "manifest missing")}
    assert check(lake, repair=True).is_whole


def test_nothing_differs_after_the_output_was_moved_behind_a_link(
    lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk") / "lake"
    (lake / "lake").rename(disk)
    (lake / "lake").symlink_to(disk)
    run(lake, job_spec({"a": {"rows": 9}, "b/1": {"rows": 8}}))
    assert found(check(lake, checksum=True)) == set()
    manifest = disk / "_gobblin/manifests/numbers/a/0000000001.json"
    as_written = manifest.read_text()
    manifest.unlink()
    assert found(check(lake, repair=True)) == {("a", "manifest missing")}
    assert manifest.read_text() == as_written
    assert read_published(disk, "numbers", "a").rows["all"] == 9


def test_dataset_that_a_run_holds_is_not_repaired_and_says_so(lake: Path) -> None:
    manifest = lake / "lake/_gobblin/manifests/numbers/a/0000000001.json"
    manifest.unlink()
    store = project(lake).open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner.current("another"), timedelta(minutes=5))
    done = check(lake, repair=True)
    (a, _) = done.datasets
    assert "another" in a.note
    assert not done.is_whole
    assert not manifest.exists()
    store.close()


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    body = json.loads(path.read_text())
    for entries in body["branches"].values():
        for entry in entries:
            entry["path"] = change(entry["path"])
    path.write_text(json.dumps(body))


@pytest.mark.parametrize("evil", ["../../../../etc/hostname", "/etc/hostname", "test/../../secret", ".."])
def test_readers_refuse_manifests_that_lead_out_of_the_output(lake: Path, evil: str) -> None:
    _rewrite(lake / "lake/_gobblin/manifests/numbers/a/0000000002.json", lambda _: evil)
    with pytest.raises(CorruptRecordError, match=r"which lies outside of .*gobblin verify --repair"):
        read_published(lake / "lake", "numbers", "a")
    assert read_published(lake / "lake", "numbers", "a", 1).files
    assert check(lake, repair=True).is_whole
    assert read_published(lake / "lake", "numbers", "a").files


def test_manifest_that_cannot_be_repaired_keeps_no_other_from_being_repaired(lake: Path) -> None:
    folder = lake / "lake/_gobblin/manifests/numbers"
    (folder / "a/0000000002.json").unlink()
    (folder / "a/0000000002.json").mkdir()
    (folder / "b%2F1/0000000002.json").unlink()
    done = check(lake, repair=True)
    notes = {one.dataset_urn: one.note for one in done.datasets}
    assert (notes["b/1"], done.is_whole) == ("", False)
    assert "0000000002.json" in notes["a"]
    assert found(check(lake)) == {("a", "manifest missing")}


def test_published_file_that_cannot_be_opened_keeps_no_other_from_being_compared(lake: Path) -> None:
    file = next((lake / "lake/test/numbers/all/a").glob("*.parquet"))
    file.unlink()
    file.symlink_to(file.name)
    assert found(check(lake)) == {("a", "file altered")}


def test_repair_that_is_killed_anywhere_leaves_one_manifest_missing_at_most_and_the_next_one_heals_all(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lake / "lake/_gobblin/manifests/numbers/a"
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    storage_of = Project.storage

    def repair(*faults: Fault) -> FaultPoints:
        for path in folder.iterdir():
            path.write_text("cut")
        points = FaultPoints(*faults)
        monkeypatch.setattr(Project, "storage", lambda own, job: counted_storage(storage_of(own, job), points))
        with suppress(Halted):
            check(lake, "a", repair=True)
        monkeypatch.setattr(Project, "storage", storage_of)
        return points

    killed = [at for at, name in enumerate(repair().trace, start=1) if not is_look(name)]
    assert len(killed) >= 6
    for at in killed:
        repair(Fault(at, halt_after))
        assert len(list(folder.iterdir())) >= len(whole) - 1
        assert check(lake, "a", repair=True).is_whole
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_types_of_columns_that_were_edited_in_the_newest_manifest_are_named_and_repaired(lake: Path) -> None:
    newest = lake / "lake/_gobblin/manifests/numbers/a/0000000003.json"
    body = json.loads(newest.read_text())
    newest.write_text(json.dumps(body | {"schemas": body["schemas"] | {"all": "id: string\nvalue: string"}}))
    assert found(check(lake)) == {("a", "manifest edited")}
    assert check(lake, repair=True).is_whole
    assert json.loads(newest.read_text()) == body


@pytest.fixture
def cleaned(tmp_path: Path) -> Path:
    """Publish three snapshots, go back to the first one, publish again, and let all but two snapshots expire."""
    job = job_spec({"a": {"rows": 3}}, commit={"keep_snapshots": 2})
    for rows in (3, 5):
        run(tmp_path, job_spec({"a": {"rows": rows}}))
    rollback(project(tmp_path, job), job, "a", 1)
    run(tmp_path, job_spec({"a": {"rows": 8}}))
    (expired,) = clean(project(tmp_path, job), job).expired
    assert expired.snapshots == (2,)
    assert found(check(tmp_path, checksum=True)) == set()
    return tmp_path


@pytest.mark.parametrize("number", [4, 9], ids=["too high", "above the newest"])
def test_marker_that_hides_snapshots_is_refused_by_readers_or_named_and_deleted(cleaned: Path, number: int) -> None:
    lake = cleaned / "lake"
    marker = lake / f"_gobblin/manifests/numbers/a/{number:010d}.oldest"
    marker.touch()
    if number == 9:
        with pytest.raises(CorruptRecordError, match=r"0000000009.oldest.*snapshots below 9 as expired"):
            read_published(lake, "numbers", "a")
    else:
        with pytest.raises(UsageError, match="it has expired"):
            read_published(lake, "numbers", "a", 3)
    assert found(check(cleaned)) == {("a", "marker wrong")}
    assert check(cleaned, repair=True).is_whole
    assert not marker.exists()
    assert [len(read_published(lake, "numbers", "a", one).files) for one in (3, 4)] == [2, 4]
    assert found(check(cleaned)) == set()


def test_marker_that_was_deleted_is_written_again(cleaned: Path) -> None:
    marker = cleaned / "lake/_gobblin/manifests/numbers/a/0000000003.oldest"
    marker.unlink()
    assert found(check(cleaned)) == {("a", "marker wrong")}
    assert check(cleaned, repair=True).is_whole
    assert marker.exists()


def test_marker_of_a_newer_store_stays(cleaned: Path) -> None:
    """The store was set back: its older copy must not show snapshots whose files `gobblin clean` has deleted."""
    store = cleaned / ".gobblin"
    shutil.copytree(store, cleaned / "older")
    job = job_spec({"a": {"rows": 9}}, commit={"keep_snapshots": 1})
    rollback(project(cleaned, job), job, "a", 3)
    run(cleaned, job)
    assert clean(project(cleaned, job), job).expired
    shutil.rmtree(store)
    (cleaned / "older").rename(store)
    assert found(check(cleaned)) >= {("a", "marker wrong"), ("a", "manifest unknown")}
    assert not check(cleaned, repair=True).is_whole
    assert (cleaned / "lake/_gobblin/manifests/numbers/a/0000000006.oldest").exists()


def test_manifest_keeps_its_types_where_a_commit_without_files_brought_others(tmp_path: Path) -> None:
    def job(rows: int, **parts: Any) -> JobSpec:
        return job_spec({"a": {"rows": rows}}, **parts)

    run(tmp_path, job(3))
    nothing = job(5, converters=[{"type": "sql", "select": "*, 'x' as other", "where": "id < 3"}])
    assert run(tmp_path, nothing).status is RunStatus.SUCCEEDED
    done = verify(project(tmp_path, nothing), nothing)
    assert (done.datasets[0].snapshot, found(done)) == (1, set())


def test_manifests_of_an_older_version_without_types_differ_in_nothing(lake: Path) -> None:
    for number in (1, 2, 3):
        with_format(lake, number, "Manifest/2", without={"schemas"})
    assert found(check(lake)) == set()


def test_manifest_whose_format_was_set_back_is_named_and_repaired(lake: Path) -> None:
    newest = lake / "lake/_gobblin/manifests/numbers/a/0000000003.json"
    whole = newest.read_text()
    for form, without, what in (
        ("Manifest/2", set(), "manifest cut"),
        ("Manifest/1", {"schemas"}, "manifest cut"),
        ("Manifest/2", {"schemas"}, "manifest edited"),
        ("Manifest/1", {"schemas", "removed", "whole"}, "manifest edited"),
    ):
        with_format(lake, 3, form, without)
        assert found(check(lake)) == {("a", what)}
        assert check(lake, repair=True).is_whole
        assert newest.read_text() == whole


def with_format(lake: Path, number: int, form: str, without: Collection[str]) -> None:
    path = lake / f"lake/_gobblin/manifests/numbers/a/{number:010d}.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in body.items() if name not in without} | {"format": form}))


def test_manifest_whose_types_were_deleted_is_refused_named_and_repaired(lake: Path) -> None:
    newest = lake / "lake/_gobblin/manifests/numbers/a/0000000003.json"
    body = json.loads(newest.read_text())
    newest.write_text(json.dumps({name: value for name, value in body.items() if name != "schemas"}))
    with pytest.raises(CorruptRecordError, match="schemas are 'None'"):
        read_published(lake / "lake", "numbers", "a")
    assert found(check(lake)) == {("a", "manifest cut")}
    assert check(lake, repair=True).is_whole
    assert json.loads(newest.read_text()) == body


def test_published_file_in_no_folder_of_its_dataset_is_refused_by_its_readers(lake: Path) -> None:
    for number in (1, 2, 3):
        manifest = lake / f"lake/_gobblin/manifests/numbers/a/{number:010d}.json"
        _rewrite(manifest, lambda path: path.replace("/a/", "/"))
    read = read_published(lake / "lake", "numbers", "a")
    for use in (read.folder, read.to_arrow):
        with pytest.raises(CorruptRecordError, match="which lies in no folder of the dataset"):
            use("all")


@pytest.mark.parametrize("name", ["_gobblin", "_gobblin/manifests", "_gobblin/manifests/numbers/a", "test/numbers/all"])
def test_folder_that_a_link_took_out_of_the_output_is_named(lake: Path, name: str) -> None:
    folder, other = lake / "lake" / name, lake / "other"
    folder.rename(other)
    folder.symlink_to(other)
    for done in (check(lake), check(lake, "a")):
        assert not done.is_whole
        assert {one.what for one in done.extra} == {Differs.FOLDER_OUTSIDE}
        assert all(one.path.startswith(str(folder)) and str(other) in one.detail for one in done.extra)
        assert len(done.extra) == (1 if name == "_gobblin" or name.endswith("/a") else len(done.datasets))
    folder.unlink()
    other.rename(folder)
    assert check(lake).is_whole


def merged(root: Path, kind: str) -> JobSpec:
    """Merge rows of a dataset into a table in three commits."""
    publisher: dict[str, Any] = {"type": kind, "mode": "merge", "key": ["id"]}
    if kind == "iceberg":
        catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
        publisher |= {"table": "lake.numbers", "catalog": catalog}
    for number in (2, 3, 5):
        run(root, job := table_job(publisher, {"c": {"rows": number}}))
    return job


def data_files(root: Path) -> list[Path]:
    return sorted([*root.glob("lake/test/numbers/all/*.parquet"), *root.glob("warehouse/lake/numbers/data/*.parquet")])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_data_files_of_a_merged_table_are_compared_with_what_its_newest_state_lists(tmp_path: Path, kind: str) -> None:
    job = merged(tmp_path, kind)
    assert found(verify(project(tmp_path, job), job)) == set()
    cut, gone, whole = data_files(tmp_path)
    cut.write_bytes(cut.read_bytes()[:100])
    gone.unlink()
    done = verify(project(tmp_path, job), job)
    assert not done.is_whole
    assert {(one.what.value, one.path) for one in done.extra} == {
        ("file altered", str(cut)),
        ("file missing", str(gone)),
    }
    assert "the table of branch 'all' lists it" in done.extra[0].detail
    assert str(whole) not in str(done.extra)


def test_table_without_the_newest_commit_of_the_store_or_with_a_damaged_log_is_told(tmp_path: Path) -> None:
    job = merged(tmp_path, "delta")
    logs = sorted((tmp_path / "lake/test/numbers/all/_delta_log").glob("*.json"))
    held = logs[-1].read_bytes()
    logs[-1].unlink()
    (dataset,) = verify(project(tmp_path, job), job).datasets
    assert [one.what for one in dataset.differences] == [Differs.COMMIT_MISSING]
    assert "though it notes an older one" in dataset.differences[0].detail
    logs[-1].write_bytes(held)
    logs[-2].write_bytes(b"")
    done = verify(project(tmp_path, job), job)
    assert [(one.what, logs[-2].name in one.detail) for one in done.extra] == [(Differs.TARGET_UNREAD, True)]


def test_published_files_that_a_table_lists_are_told_once(tmp_path: Path) -> None:
    run(tmp_path, job := table_job({"type": "delta"}, {"c": {"rows": 2}}))
    next((tmp_path / "lake/test/numbers/all/c").glob("*.parquet")).unlink()
    assert found(verify(project(tmp_path, job), job)) == {("c", "file missing")}


def test_dataset_whose_files_are_in_a_former_output_is_whole_and_says_so(lake: Path) -> None:
    data = {"a": {"rows": 8}, "b/1": {"rows": 9}}
    job = job_spec(data, output={"path": "other"})
    run(lake, job)
    done = verify(project(lake, job), job)
    assert found(done) == set()
    assert [one.note.partition(",")[0] for one in done.datasets] == ["its files are in a former output", ""]
    (lake / "lake/test/numbers/all/a").rename(lake / "gone")
    assert ("a", "file missing") in found(verify(project(lake, job), job))
    (lake / "gone").rename(lake / "lake/test/numbers/all/a")
    mended = verify(project(lake, job), job, repair=True)
    assert {one.what for one in mended.datasets[0].differences} == {Differs.MANIFEST_MISSING}
    assert mended.is_whole
    done = verify(project(lake, job), job)
    assert [one.note for one in done.datasets] == ["", ""]
    files = read_published(lake / "other", "numbers", "a", former_roots=[lake / "lake"]).files
    assert sum(file.rows for file in files if file.branch == "all") == 8


def test_folder_that_cannot_be_listed_keeps_no_other_from_being_compared(lake: Path) -> None:
    """One such folder of manifests kept all datasets of the job from being compared."""
    manifests, files = lake / "lake/_gobblin/manifests/numbers", lake / "lake/test/numbers/all"
    (manifests / "b%2F1/0000000001.json").unlink()
    next((files / "a").iterdir()).with_name("stranger").write_text("who am I?")
    for folder in (manifests / "a", files / "b%2F1"):
        shutil.rmtree(folder)
        folder.symlink_to(folder)
    done = check(lake)
    assert found(done) == {
        ("a", "folder unread"),
        ("a", "manifest cut"),
        ("b/1", "manifest missing"),
        ("b/1", "file altered"),
        ("", "file extra"),
    }
    for folder in (manifests / "a", files / "b%2F1"):
        folder.unlink()
        folder.write_text("a file")
    assert found(check(lake)) == found(done)
    assert found(check(lake, "a")) == {("a", "folder unread"), ("a", "manifest cut"), ("", "file extra")}
    done = check(lake, repair=True)
    assert found(done) == found(check(lake)) | {("b/1", "manifest missing")}
    assert "Not a directory" in done.datasets[0].note


def test_extra_files_are_found_beside_a_folder_that_cannot_be_listed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such folder kept the whole job from being compared."""
    broken = {str(lake / "lake/test/numbers/all/a")}
    next((lake / "lake/test/numbers/all/b%2F1").iterdir()).with_name("stranger").write_text("who am I?")

    def unless_broken(call: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any) -> Any:
            if str(path) in broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return call(path)

        return listed

    monkeypatch.setattr(os, "scandir", unless_broken(os.scandir))
    monkeypatch.setattr(os, "listdir", unless_broken(os.listdir))
    done = check(lake)
    assert [(one.what, Path(one.path).name, one.detail) for one in done.extra] == [
        (Differs.FOLDER_UNREAD, "a", "it cannot be listed: Input/output error"),
        (Differs.FILE_EXTRA, "stranger", "no snapshot lists it"),
    ]
    assert not any(one.differences for one in done.datasets)
