"""A damaged record of one dataset stops that dataset alone, and can be brought back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.startpoint import ALL_JOBS, Oldest, StartpointKey
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.startpoint_history import startpoint_history
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset
from gobblin_dagster.engine.maintenance.state_export import export_state, plan_import, read_export, run_import
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.maintenance.verify import Differs, verify
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.run.startpoint_preview import removable
from gobblin_dagster.engine.snapshots.rejected_rows import count_quarantined
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.state.lookup import find_damage
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.testing.inline_runner import InlineRunner

from .jobs import by_urn, job_spec

Harm = Callable[[str], str]
HARMS: dict[str, Harm] = {
    "cut": lambda body: body[: len(body) // 2],
    "emptied": lambda _: "",
    "other JSON": lambda _: "{}",
    "watermark edited": lambda body: body.replace("[0,3]", "[0,2]"),
}


def _sqlite(root: Path, harm: Harm) -> None:
    with closing(sqlite3.connect(root / "state.db")) as database, database:
        (body,) = database.execute("select body from gobblin_dataset_states where dataset_urn = 'a'").fetchone()
        assert harm(body) != body
        database.execute("update gobblin_dataset_states set body = ? where dataset_urn = 'a'", (harm(body),))


def _files(root: Path, harm: Harm) -> None:
    newest = max((root / "state/jobs/numbers/datasets/a/log").iterdir())
    content = newest.read_text()
    assert harm(content) != content
    newest.write_text(harm(content))


KINDS = {"sqlite:///state.db": _sqlite, "files:state": _files}


def _project(root: Path, url: str, job: JobSpec) -> Project:
    return Project(root, ProjectSpec(project="tests", state=url), (job,))


def _imported(root: Path, project: Project) -> Project:
    """Return the project with a new state store, into which the old one's export was imported."""
    other = _project(root, "sqlite:///new.db", project.jobs[0])
    with closing(project.open_store()) as old, closing(other.open_store()) as new:
        run_import(new, plan_import(new, read_export(list(export_state(old, ["numbers"], lambda _: True)))))
    return other


def _run(root: Path, url: str, rows: int) -> RunResult:
    job = job_spec({"a": {"rows": rows}, "b": {"rows": rows}})
    return run_job(_project(root, url, job), job, runner=InlineRunner())


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("url", KINDS)
def test_damaged_state_stops_its_dataset_alone_and_is_restored_without_reading_again(
    tmp_path: Path, url: str, harm: str
) -> None:
    _run(tmp_path, url, 3)
    KINDS[url](tmp_path, HARMS[harm])
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    project = _project(tmp_path, url, job)
    (problem,) = (one.problem for one in plan_job(project, job).datasets if one.problem)
    assert "`gobblin state restore`" in problem

    result = _run(tmp_path, url, 5)
    assert result.status is RunStatus.PARTIAL
    assert {urn: one.outcome for urn, one in by_urn(result).items()} == {
        "a": DatasetOutcome.QUARANTINED,
        "b": DatasetOutcome.COMMITTED,
    }
    assert [failure.code for failure in by_urn(result)["a"].failures] == ["record-corrupt"]
    clean(project, job)
    assert [one.differences[0].what for one in verify(project, job).datasets if one.differences] == [
        Differs.RECORD_DAMAGED
    ]

    with closing(project.open_store()) as store:
        with pytest.raises(CorruptRecordError):
            store.load_dataset_states("numbers", ["a"])
        assert set(store.load_dataset_states("numbers", ["b"])) == {"b"}
        store.restore("numbers", "a")
        store.restore("numbers", "b")
        assert store.load_dataset_states("numbers")["a"].version == 1
    again = by_urn(_run(tmp_path, url, 5))
    assert (again["a"].outcome, again["a"].rows_read) == (DatasetOutcome.COMMITTED, 2)
    assert again["b"].outcome is DatasetOutcome.IDLE
    assert verify(project, job).is_whole


@pytest.mark.parametrize("url", KINDS)
def test_damaged_state_that_was_restored_can_be_reset(tmp_path: Path, url: str) -> None:
    _run(tmp_path, url, 3)
    KINDS[url](tmp_path, HARMS["cut"])
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}})
    project = _project(tmp_path, url, job)
    with closing(project.open_store()) as store:
        store.restore("numbers", "a")
        state = store.load_dataset_states("numbers", ["a"])["a"]
        apply_change(store, plan_reset(state, who="ann", why="to see", now=project.clock.now()))
    assert by_urn(_run(tmp_path, url, 3))["a"].rows_read == 3


@pytest.mark.parametrize("damage", [0, 1, 2, 3, 4])
def test_head_of_plain_files_is_restored_whichever_of_its_changes_was_damaged(tmp_path: Path, damage: int) -> None:
    url = "files:state"
    _run(tmp_path, url, 3)
    versions = sorted((tmp_path / "state/jobs/numbers/datasets/a/log").iterdir())
    # As if the program had ended there: lease taken, taken again, prepared, committed, lease given back.
    assert len(versions) == 5
    for later in versions[damage + 1 :]:
        later.unlink()
    versions[damage].write_text("cut")
    if damage <= 2:  # nothing was published before COMMIT
        shutil.rmtree(tmp_path / "lake")
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    project = _project(tmp_path, url, job)
    with closing(project.open_store()) as store:
        if damage == 0:
            with pytest.raises(CorruptRecordError):
                store.restore("numbers", "a")
            return
        store.restore("numbers", "a")
    _run(tmp_path, url, 5)
    assert verify(project, job, ["a"]).is_whole
    with closing(project.open_store()) as store:
        files = store.load_snapshot("numbers", "a")
    assert sum(file.rows for file in files if file.branch == "all") == 5


def test_record_of_a_file_that_was_edited_is_refused_for_its_dataset_alone(tmp_path: Path) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("update gobblin_snapshot_files set rows = 4 where dataset_urn = 'a'")
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}})
    project = _project(tmp_path, url, job)
    with closing(project.open_store()) as store:
        with pytest.raises(CorruptRecordError, match="does not match its digest"):
            store.load_snapshot("numbers", "a")
        assert store.load_snapshot("numbers", "b")
    done = verify(project, job)
    assert [one.differences[0].what for one in done.datasets if one.differences] == [Differs.RECORD_DAMAGED]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("delete from gobblin_snapshot_files where dataset_urn = 'a' and snapshot = 2", "files .* 8 rows and 6 "),
        ("delete from gobblin_snapshot_removals where dataset_urn = 'a'", "removed files .* 6 rows and 0 "),
    ],
)
def test_records_of_files_that_were_deleted_are_missed_until_an_import_writes_them_again(
    tmp_path: Path, statement: str, what: str
) -> None:
    url = "sqlite:///state.db"
    for rows in (3, 4, 5):
        _run(tmp_path, url, rows)
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    project = _project(tmp_path, url, job)
    compact(project, job)
    with closing(project.open_store()) as store:
        whole = store.load_snapshot("numbers", "a")
    manifests = {path: path.read_bytes() for path in tmp_path.rglob("manifests/**/*.json")}
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute(statement)
    with closing(project.open_store()) as store:
        for load in (store.load_snapshot, store.load_history):
            with pytest.raises(CorruptRecordError, match=what):
                load("numbers", "a")
        assert store.load_snapshot("numbers", "b")
    done = verify(project, job, repair=True)
    (a, b) = done.datasets
    assert [one.what for one in a.differences] == [Differs.RECORD_DAMAGED]
    assert b.differences == ()
    assert (done.is_whole, done.extra) == (False, ())
    assert {path: path.read_bytes() for path in manifests} == manifests
    _run(tmp_path, url, 6)
    other = _imported(tmp_path, project)
    with closing(other.open_store()) as store:
        assert store.load_snapshot("numbers", "a", 4) == whole
        assert sum(file.rows for file in store.load_snapshot("numbers", "a") if file.branch == "all") == 6
    assert verify(other, job).is_whole


def test_record_of_a_file_that_was_edited_stops_no_other_dataset_and_is_written_again_by_an_import(
    tmp_path: Path,
) -> None:
    url = "sqlite:///state.db"
    policy = {"name": "few", "type": "range", "column": "id", "min": 1, "on_violation": "quarantine"}
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}}, row_policies=[policy])
    project = _project(tmp_path, url, job)
    run_job(project, job, runner=InlineRunner())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("update gobblin_snapshot_files set rows = 7 where dataset_urn = 'a'")
    with closing(project.open_store()) as store, StartpointManager(store) as startpoints:
        assert {one.dataset_urn for one in count_quarantined(store, "numbers")} == {"b"}
        for urn in ("a", "b"):
            startpoints.write(StartpointKey(urn, "", "numbers"), Oldest(), why="again", on_rewind="replace")
    (tmp_path / "lake/_gobblin/manifests/numbers/a/0000000001.json").unlink()
    clean(project, job)
    result = by_urn(run_job(project, job, runner=InlineRunner()))
    assert (result["a"].outcome, result["b"].outcome) == (DatasetOutcome.FAILED, DatasetOutcome.COMMITTED)
    assert "`gobblin state import`" in result["a"].failures[0].message

    other = _imported(tmp_path, project)
    assert by_urn(run_job(other, job, runner=InlineRunner()))["a"].rows_read == 3
    assert verify(other, job).is_whole


@pytest.mark.parametrize("harm", ["cut", "that of another dataset"])
def test_damaged_archive_or_part_of_plain_files_stops_no_other_dataset(tmp_path: Path, harm: str) -> None:
    url = "files:state"
    for rows in (3, 5, 8):
        _run(tmp_path, url, rows)
    a, b = (tmp_path / "state/jobs/numbers/datasets" / urn for urn in ("a", "b"))

    def strike(kind: str, second: str) -> None:
        ours, theirs = (
            next(path for path in (folder / kind).iterdir() if second in path.read_text()) for folder in (a, b)
        )
        ours.write_text("cut" if harm == "cut" else theirs.read_text())

    strike("unreported", '"version_read":1')
    job = job_spec({"a": {"rows": 8}, "b": {"rows": 8}}, commit={"keep_snapshots": 1})
    project = _project(tmp_path, url, job)
    clean(project, job)
    with closing(project.open_store()) as store:
        assert {one.dataset_urn: one.version_read for one in store.load_unreported("numbers", 4)}.keys() == {"a", "b"}
        with pytest.raises(CorruptRecordError, match="history of dataset 'a'"):
            list(export_state(store, ["numbers"], lambda _: True))
        assert list(export_state(store, ["numbers"], lambda urn: urn == "b"))
        assert startpoint_history(store, ["numbers"]) == []
    strike("snapshots", '"snapshot":2')
    with closing(project.open_store()) as store:
        with pytest.raises(CorruptRecordError, match="`gobblin state import`"):
            store.load_snapshot("numbers", "a")
        assert store.load_snapshot("numbers", "b")


@pytest.mark.parametrize("harm", ["path = x'ff'", "snapshot = 'x'", "snapshot = -1"])
def test_record_of_a_removal_that_is_damaged_stops_verify_and_clean_for_its_dataset_alone(
    tmp_path: Path, harm: str
) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}})
    project = _project(tmp_path, url, job)
    for urn in ("a", "b"):
        with closing(project.open_store()) as store, StartpointManager(store) as startpoints:
            startpoints.write(StartpointKey(urn, "", "numbers"), Oldest(), why="again", on_rewind="replace")
    _run(tmp_path, url, 3)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute(f"update gobblin_snapshot_removals set {harm} where dataset_urn = 'a' and path like '%all%'")
    done = verify(project, job)
    assert [(one.dataset_urn, one.differences[0].what) for one in done.datasets if one.differences] == [
        ("a", Differs.RECORD_DAMAGED)
    ]
    clean(project, job)


def test_rows_that_were_stored_without_a_digest_are_read(tmp_path: Path) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("update gobblin_dataset_states set digest = null")
        database.execute("update gobblin_snapshot_files set digest = null")
    assert by_urn(_run(tmp_path, url, 5))["a"].rows_read == 2


LEASES = {
    "until is no instant": "until = 'soon'",
    "until is bytes": "until = x'ff'",
    "until is missing": "until = NULL",
    "epoch is text": "epoch = 'x'",
    "epoch is text of a released lease": "epoch = 'x', run_id = NULL",
    "host is bytes": "host = x'ff'",
    "process is text": "pid = 'x'",
}


@pytest.mark.parametrize("harm", LEASES)
def test_damaged_lease_stops_its_dataset_alone_and_is_cleared(tmp_path: Path, harm: str) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    project = _project(tmp_path, url, job)
    with closing(project.open_store()) as store:
        (epoch,) = (one.epoch for one in take(store, "a"))
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute(f"update gobblin_leases set {LEASES[harm]} where dataset_urn = 'a'")
    (problem,) = (one.problem for one in plan_job(project, job).datasets if one.problem)
    assert "lease of dataset 'a'" in problem
    assert "`gobblin state restore`" in problem

    result = _run(tmp_path, url, 5)
    assert (result.status, result.exit_code) == (RunStatus.PARTIAL, 4)
    assert by_urn(result)["a"].outcome is DatasetOutcome.QUARANTINED
    assert [failure.code for failure in by_urn(result)["a"].failures] == ["record-corrupt"]
    clean(project, job)
    assert verify(project, job).is_whole

    with closing(project.open_store()) as store:
        assert find_damage(store, "a", None)[0] == "numbers"
        assert store.restore("numbers", "a")
        assert not store.restore("numbers", "a")
        (lease,) = take(store, "a")
        assert lease.epoch > epoch
        store.release_leases("numbers", [lease])
    assert by_urn(_run(tmp_path, url, 5))["a"].rows_read == 2


STARTPOINTS = {
    "cut": "body = substr(body, 1, 60)",
    "that of another dataset": """body = replace(body, '"dataset_urn":"a"', '"dataset_urn":"b"')""",
    "another id": "id = 'x'",
    "for all jobs": "job = '*', body = ''",
}


@pytest.mark.parametrize("harm", STARTPOINTS)
def test_damaged_startpoint_stops_its_dataset_alone_and_is_removed_or_replaced(tmp_path: Path, harm: str) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    job = job_spec({"a": {"rows": 5}, "b": {"rows": 5}})
    project = _project(tmp_path, url, job)
    with closing(project.open_store()) as store, StartpointManager(store) as startpoints:
        for urn in ("a", "b"):
            startpoints.write(StartpointKey(urn, "", "numbers"), Oldest(), why="again", on_rewind="append")
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute(f"update gobblin_startpoints set {STARTPOINTS[harm]} where dataset_urn = 'a'")
    result = by_urn(_run(tmp_path, url, 5))
    assert {urn: one.outcome for urn, one in result.items()} == {
        "a": DatasetOutcome.FAILED,
        "b": DatasetOutcome.COMMITTED,
    }
    assert "`gobblin startpoint remove" in result["a"].failures[0].message
    clean(project, job)
    with closing(project.open_store()) as store, StartpointManager(store) as startpoints:
        (damaged,) = removable(store, ["numbers", ALL_JOBS], "a")
        if harm == "another id":
            startpoints.write(damaged.key, Oldest(), why="again", on_rewind="append")
        else:
            assert startpoints.remove(damaged)
        assert [event.change for event in startpoints.events(damaged.job, ["a"])][-1] in {"removed", "set"}
        assert list(export_state(store, ["numbers"], lambda _: True))
    again = by_urn(_run(tmp_path, url, 5))
    assert {urn: one.rows_read for urn, one in again.items()} == {"a": 5 if harm == "another id" else 2, "b": 0}


@pytest.mark.parametrize("url", KINDS)
def test_damaged_event_of_a_startpoint_hides_no_other(tmp_path: Path, url: str) -> None:
    with closing(_project(tmp_path, url, job_spec({})).open_store()) as store:
        startpoints = StartpointManager(store)
        for urn in ("a", "a", "b"):
            startpoints.write(StartpointKey(urn, "", "numbers"), Oldest(), why="again")
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
                database.execute("update gobblin_startpoint_events set body = '{' where number = 1")
        else:
            min((tmp_path / "state/jobs/numbers/startpoint_events/a").glob("*.json")).write_text("{")
        assert [(one.startpoint.dataset_urn, one.change) for one in startpoints.events("numbers")] == [
            ("a", "replaced"),
            ("a", "set"),
            ("b", "set"),
        ]


def test_lease_that_is_damaged_while_its_run_reads_keeps_that_dataset_from_being_published(tmp_path: Path) -> None:
    url = "sqlite:///state.db"
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}})

    class Edits(RunListener):
        def extracted(self) -> None:
            with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
                database.execute("update gobblin_leases set until = 'soon' where dataset_urn = 'a'")

    result = run_job(_project(tmp_path, url, job), job, runner=InlineRunner(), listeners=[Edits()])
    assert (result.status, result.exit_code) == (RunStatus.PARTIAL, 4)
    assert [failure.code for failure in by_urn(result)["a"].failures] == ["record-corrupt"]


@pytest.mark.parametrize(
    ("column", "outcome"),
    [("created_at", DatasetOutcome.COMMITTED), ("version_read", DatasetOutcome.QUARANTINED)],
)
def test_damaged_column_of_a_waiting_sequence_stops_no_other_dataset(
    tmp_path: Path, column: str, outcome: DatasetOutcome
) -> None:
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    # One thread prepares both in one transaction; of two threads, the second may be stopped before it has begun.
    job = job_spec({"a": {"rows": 4}, "b": {"rows": 4}}, commit={"parallelism": 1})
    project = _project(tmp_path, url, job)

    class Killed(SilentListener):
        def prepared(self, sequence: CommitSequence) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(project, job, runner=InlineRunner(), commit_listener=Killed())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute(f"update gobblin_sequences set {column} = 'x' where dataset_urn = 'a' and state = 'prepared'")
    assert len(plan_job(project, job).leftovers) == 2
    result = _run(tmp_path, url, 5)
    assert {urn: one.outcome for urn, one in by_urn(result).items()} == {"a": outcome, "b": DatasetOutcome.COMMITTED}
    with closing(project.open_store()) as store:
        assert history(store, "numbers", "a")
    assert verify(project, job).is_whole


def test_waiting_sequence_that_was_written_to_another_job_or_dataset_keeps_its_own_from_publishing(
    tmp_path: Path,
) -> None:
    """Nothing found it there, so its rows came twice."""
    url = "sqlite:///state.db"
    _run(tmp_path, url, 3)
    # One thread prepares both in one transaction.
    job = job_spec({urn: {"rows": 4} for urn in ("a", "b")}, commit={"parallelism": 1})
    project = _project(tmp_path, url, job)

    class Killed(SilentListener):
        def prepared(self, sequence: CommitSequence) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(project, job, runner=InlineRunner(), commit_listener=Killed())

    def edit(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
            assert database.execute(f"update gobblin_sequences set {statement}").rowcount

    edit("job = 'x' where dataset_urn = 'a' and state = 'prepared'")
    edit("dataset_urn = 'zz' where dataset_urn = 'b' and state = 'prepared'")
    for rows in (5, 6):
        failed = by_urn(_run(tmp_path, url, rows))
        assert [failed[urn].failures[0].code for urn in ("a", "b")] == ["record-corrupt"] * 2
    edit("job = 'numbers' where job = 'x'")
    edit("dataset_urn = 'b', state = 'prepared' where dataset_urn = 'zz'")
    assert _run(tmp_path, url, 7).status is RunStatus.SUCCEEDED
    assert verify(project, job).is_whole


def test_damaged_state_of_a_commit_that_a_table_notes_stops_its_dataset_alone_if_it_may_not_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(rows: int) -> RunResult:
        publisher = {"type": "sql_table", "url": "sqlite:///w.db", "table": "t"}
        fork = {"branches": [{"name": "all", "publisher": publisher}]}
        job = job_spec({urn: {"rows": rows} for urn in ("a", "b")}, fork=fork)
        return run_job(_project(tmp_path, "sqlite:///state.db", job), job, runner=InlineRunner())

    def damage() -> None:
        with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
            database.execute("update gobblin_sequences set state = 'x' where dataset_urn = 'a'")

    run(3)
    damage()
    assert run(4).status is RunStatus.SUCCEEDED
    with monkeypatch.context() as patched:
        patched.setattr(SqlStateStore, "commit", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(5)
    damage()
    result = run(6)
    assert result.status is RunStatus.PARTIAL
    (failure,) = by_urn(result)["a"].failures
    assert "whose record in the state store" in failure.message
    assert "is damaged ('x' is not a valid SequenceState)" in failure.message
    with closing(sqlite3.connect(tmp_path / "w.db")) as database:
        assert database.execute("select count(*) from t").fetchone() == (5 + 6,)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def take(store: StateStore, urn: str) -> list[Lease]:
    """Take the lease of a dataset, as a run does."""
    return list(store.acquire_leases("numbers", [urn], LeaseOwner.current("by-hand"), timedelta(60)).granted.values())
