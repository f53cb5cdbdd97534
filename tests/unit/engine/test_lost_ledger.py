"""A state store that was lost or restored from an old copy, found by the commits that a table notes: its rows are there
once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from gobblin_dagster.constructs.clients.kafka import KafkaConnection
from gobblin_dagster.constructs.publishers import sql_table, tables
from gobblin_dagster.constructs.publishers.delta_steps import AppendToDeltaStep, MergeIntoDeltaStep
from gobblin_dagster.constructs.publishers.iceberg_steps import (
    AppendToIcebergStep,
    IcebergCatalog,
    MergeIntoIcebergStep,
)
from gobblin_dagster.constructs.publishers.kafka_topic import SendToKafkaStep
from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep, SqlTablePublisher
from gobblin_dagster.constructs.publishers.tables import TableCommit
from gobblin_dagster.core.commit import CanBeForbidden, CommitSequence, SequenceState
from gobblin_dagster.core.errors import StepRefusedError, StorageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.step_runner import StepRunner
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence, preview_abandonment
from gobblin_dagster.engine.maintenance.sequence_status import sequence_status
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.engine.run.store_check import refused_datasets
from gobblin_dagster.engine.snapshots import lost_store
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage.local import LocalStorage
from tests.unit.constructs.publishers import test_delta, test_iceberg
from tests.unit.constructs.publishers.table_jobs import at_commit, check_lost_store, set_back, start_at, table_job
from tests.unit.engine.jobs import job_spec, project, run

APPEND: dict[str, Any] = {"type": "sql_table", "url": "sqlite:///warehouse.db", "table": "numbers"}


def query(root: Path, statement: str) -> list[Any]:
    engine = sa.create_engine(f"sqlite:///{root}/warehouse.db")
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        rows = list(result.all()) if result.returns_rows else []
    engine.dispose()
    return rows


def table_ids(root: Path) -> list[int]:
    return [row[0] for row in query(root, "SELECT id FROM numbers ORDER BY id")]


def rows(number: int, **parts: Any) -> JobSpec:
    return table_job(APPEND, {"c": {"rows": number}}, **parts)


def problems(root: Path, job: JobSpec) -> list[str]:
    return [one.problem for one in plan_job(project(root, job), job).datasets if one.problem]


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set_back"])
@pytest.mark.parametrize("table", ["numbers", "main.numbers"], ids=["plain", "schema"])
def test_run_publishes_nothing_that_the_table_has(tmp_path: Path, is_lost: bool, table: str) -> None:
    says = f"table gobblin_commits, beside table {table}, notes commit "
    check_lost_store(tmp_path, APPEND | {"table": table}, lambda: table_ids(tmp_path), says, is_lost=is_lost)


def test_table_of_each_dataset_is_looked_at(tmp_path: Path) -> None:
    each = APPEND | {"table": "of_{dataset}"}
    set_back(tmp_path, each)
    job = table_job(each, {"c": {"rows": 30}, "new": {"rows": 2}})
    outcomes = {one.dataset_urn: str(one.outcome) for one in run(tmp_path, job).datasets}
    assert outcomes == {"c": "failed", "new": "committed"}
    assert query(tmp_path, "SELECT count(*) FROM of_c") == [(20,)]


@pytest.mark.parametrize("backend", ["iceberg", "delta"])
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set_back"])
def test_tables_of_files_are_guarded_by_the_manifests(tmp_path: Path, backend: str, is_lost: bool) -> None:
    publisher, read = file_table(tmp_path, backend)
    set_back(tmp_path, publisher, is_lost=is_lost)
    (result,) = run(tmp_path, table_job(publisher, {"c": {"rows": 30}})).datasets
    assert "_gobblin/manifests/" in result.failures[0].message
    assert read() == list(range(20))


@pytest.mark.parametrize("backend", ["iceberg", "delta"])
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set_back"])
def test_tables_of_files_are_asked_themselves_too(tmp_path: Path, backend: str, is_lost: bool) -> None:
    publisher, read = file_table(tmp_path, backend)
    says = "Iceberg table lake.numbers notes commit " if backend == "iceberg" else "Delta table notes a commit of 20"
    check_lost_store(tmp_path, publisher, read, says, is_lost=is_lost, has_manifests=False)


@pytest.mark.parametrize("backend", ["iceberg", "delta"])
def test_commit_of_a_table_of_files_that_waits_is_no_sign_of_a_lost_store(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, read = file_table(tmp_path, backend)
    job = table_job(publisher, {"c": {"rows": 10}})
    run(tmp_path, job)
    more = table_job(publisher, {"c": {"rows": 20}})
    with monkeypatch.context() as patched:
        at_commit(patched)
        assert run(tmp_path, more).status is RunStatus.FAILED
    assert problems(tmp_path, more) == []
    assert run(tmp_path, table_job(publisher, {"c": {"rows": 30}})).status is RunStatus.SUCCEEDED
    assert read() == list(range(30))


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_rows_of_a_commit_that_a_person_abandoned_are_not_loaded_again(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, read = target(tmp_path, backend)
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, table_job(publisher, {"c": {"rows": 20}}))
    job = table_job(publisher, {"c": {"rows": 30}})
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences(job.job, {SequenceState.PREPARED})
        states = [abandon_sequence(opened, store, waiting.id).state for _ in range(2)]
    assert states == [SequenceState.QUARANTINED, SequenceState.ABORTED]
    (result,) = run(tmp_path, job).datasets
    assert "which was abandoned: its rows are there" in result.failures[0].message
    assert "`gobblin quarantine` know the rows of it that policies rejected" in result.failures[0].message
    assert read() == list(range(20))
    start_at(tmp_path, job, "20")
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert read() == list(range(30))


def test_files_with_the_rejected_rows_of_an_abandoned_commit_are_told_if_a_table_has_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot has them: a startpoint after the rows in the table leaves them nowhere else."""
    publisher, _ = target(tmp_path, "sql_table")
    fives = {"name": "fives", "type": "sql", "rule": "id % 5 <> 0", "on_violation": "quarantine"}
    job = table_job(publisher, {"c": {"rows": 10}}, row_policies=[fives])
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, job)
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences(job.job, {SequenceState.PREPARED})
        abandon_sequence(opened, store, waiting.id)
        shown, given_up = preview_abandonment(opened, store, waiting.id), abandon_sequence(opened, store, waiting.id)
    (path,) = shown.rejected
    assert shown.rejected == given_up.rejected == given_up.orphans
    assert pq.read_table(path).num_rows == 2


def test_run_that_wakes_after_its_commit_was_abandoned_loads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[LoadSqlTableStep] = []
    execute = LoadSqlTableStep.execute

    def freeze(self: LoadSqlTableStep, _: Storage) -> None:
        frozen.append(self)
        raise OSError("frozen")

    run(tmp_path, rows(10))
    with monkeypatch.context() as patched:
        patched.setattr(LoadSqlTableStep, "execute", freeze)
        run(tmp_path, rows(20))
    opened = project(tmp_path, rows(20))
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences("numbers", {SequenceState.PREPARED})
        abandon_sequence(opened, store, waiting.id)
        # In the middle of its load: nobody knows yet how that ends.
        with closing(sqlite3.connect(tmp_path / "warehouse.db")) as other, monkeypatch.context() as patched:
            other.execute("BEGIN IMMEDIATE")
            made = sa.create_engine(f"sqlite:///{tmp_path}/warehouse.db", connect_args={"timeout": 0})
            patched.setattr(sql_table, "make_engine", lambda *_, **__: made)
            with pytest.raises(StorageError, match="another session holds it"):
                abandon_sequence(opened, store, waiting.id)
        assert abandon_sequence(opened, store, waiting.id).state is SequenceState.ABORTED
    assert run(tmp_path, rows(20)).status is RunStatus.SUCCEEDED
    with pytest.raises(StepRefusedError, match="gobblin_commits notes that this commit was abandoned"):
        execute(frozen[0], LocalStorage())
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(30))


def test_run_that_wakes_after_its_first_commit_was_abandoned_makes_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[LoadSqlTableStep] = []

    def freeze(self: LoadSqlTableStep, _: Storage) -> None:
        frozen.append(self)
        raise OSError("frozen")

    with monkeypatch.context() as patched:
        patched.setattr(LoadSqlTableStep, "execute", freeze)
        run(tmp_path, rows(10))
    frozen[0].forbid()
    with pytest.raises(StepRefusedError, match="gobblin_commits notes that this commit was abandoned"):
        frozen[0].execute(LocalStorage())
    assert query(tmp_path, "SELECT name FROM sqlite_master WHERE type = 'table'") == [("gobblin_commits",)]


def test_damaged_staged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = LoadSqlTableStep.execute
    damaged: list[str] = []

    def damage(self: LoadSqlTableStep, storage: Storage) -> None:
        damaged.append(self.commit.paths[0])
        Path(damaged[0]).write_bytes(b"PAR1 and no more")
        execute(self, storage)

    monkeypatch.setattr(LoadSqlTableStep, "execute", damage)
    (result,) = run(tmp_path, rows(10)).datasets
    (failure,) = result.failures
    assert failure.code == "storage"
    assert f"cannot read {damaged[0]}: the file is damaged: " in failure.message
    assert failure.message.rstrip().endswith(".")


@pytest.mark.parametrize("in_transaction", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("step", [AppendToDeltaStep, AppendToIcebergStep, MergeIntoDeltaStep, MergeIntoIcebergStep])
def test_run_that_wakes_after_its_commit_was_abandoned_adds_no_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: type[AppendToDeltaStep | AppendToIcebergStep],
    is_first: bool,
    in_transaction: bool,
) -> None:
    """It wakes when the next run has planned the same rows; in its transaction, or before it."""
    publisher, read = file_table(tmp_path, "delta" if issubclass(step, AppendToDeltaStep) else "iceberg")
    publisher |= {"mode": "merge", "key": ["id"]} if step.is_cast else {}
    execute: Any = step.execute
    change: Any = step._change
    frozen: list[Any] = []
    job = table_job(publisher, {"c": {"rows": 20}})
    opened = project(tmp_path, job)

    def freeze(self: Any, _: Storage) -> None:
        frozen.append(self)
        raise OSError("frozen")

    def wake_first(self: Any, storage: Storage) -> None:
        while frozen:
            with pytest.raises(StepRefusedError, match="notes that this commit was abandoned"):
                execute(frozen.pop(), storage)
            assert read() == list(range(0 if is_first else 10))
        execute(self, storage)

    def abandon() -> None:
        with closing(opened.open_store()) as store:
            (waiting,) = store.load_sequences("numbers", {SequenceState.PREPARED})
            abandon_sequence(opened, store, waiting.id)
            assert abandon_sequence(opened, store, waiting.id).state is SequenceState.ABORTED

    def abandon_inside(self: Any, *given: Any) -> bool:
        *schema, write = given

        def late(*places: Any) -> None:
            patched.undo()
            abandon()
            write(*places)

        done: bool = change(self, *schema, late)
        return done

    if not is_first:
        run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    with monkeypatch.context() as patched:
        patched.setattr(step, "execute", freeze)
        run(tmp_path, job)
    if in_transaction:
        with monkeypatch.context() as patched:
            patched.setattr(step, "_change", abandon_inside)
            with pytest.raises(StepRefusedError, match="notes that this commit was abandoned"):
                execute(frozen.pop(), LocalStorage())
    else:
        abandon()
    with monkeypatch.context() as patched:
        patched.setattr(step, "execute", wake_first)
        assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert run(tmp_path, table_job(publisher, {"c": {"rows": 30}})).status is RunStatus.SUCCEEDED
    assert read() == list(range(30))


@pytest.mark.parametrize("backend", ["iceberg", "delta"])
def test_run_that_wakes_before_it_has_moved_the_files_of_an_abandoned_first_commit_adds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """There is no table yet to take the note, and no file that tells its columns."""
    publisher, read = file_table(tmp_path, backend)
    job = table_job(publisher, {"c": {"rows": 10}})
    frozen: list[tuple[StepRunner, CommitSequence]] = []

    def freeze(self: StepRunner, sequence: CommitSequence, **_: Any) -> tuple[int, int]:
        frozen.append((self, sequence))
        raise OSError("frozen")

    with monkeypatch.context() as patched:
        patched.setattr(StepRunner, "roll_forward", freeze)
        run(tmp_path, job)
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences(job.job, {SequenceState.PREPARED})
        states = [abandon_sequence(opened, store, waiting.id).state for _ in range(2)]
    assert states[-1] is SequenceState.ABORTED
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    (runner, sequence), *_ = frozen
    with pytest.raises(StepRefusedError, match=r"notes that this commit was abandoned|knows a later transaction"):
        runner.roll_forward(sequence, verify_content=False)
    assert run(tmp_path, table_job(publisher, {"c": {"rows": 20}})).status is RunStatus.SUCCEEDED
    assert read() == list(range(20))


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_commit_that_a_killed_command_began_to_abandon_is_not_taken_for_done(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its target notes that it was abandoned, and the store does not; recovery moved the watermark over its rows."""
    publisher, read = target(tmp_path, backend)
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    job = table_job(publisher, {"c": {"rows": 20}})
    with monkeypatch.context() as patched:
        for step in (AppendToDeltaStep, AppendToIcebergStep, LoadSqlTableStep):
            patched.setattr(step, "execute", _killed)
        run(tmp_path, job)
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences(job.job, {SequenceState.PREPARED})
        abandon_sequence(opened, store, waiting.id)
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "abandon", _killed)
            with pytest.raises(OSError, match="killed"):
                abandon_sequence(opened, store, waiting.id)
        (recovered,) = recover_job(JobContext.of(opened, job, store))
        assert recovered.state is SequenceState.QUARANTINED
        assert "notes that this commit was abandoned" in recovered.reason
        assert [one.is_done for one in sequence_status(opened, store, waiting.id).steps][-1] is False
        assert abandon_sequence(opened, store, waiting.id).state is SequenceState.ABORTED
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert read() == list(range(20))


def _killed(*_: Any) -> None:
    raise OSError("killed")


@pytest.mark.parametrize("step", [AppendToDeltaStep, AppendToIcebergStep])
def test_damaged_file_of_the_first_commit_keeps_nobody_from_abandoning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: type[AppendToDeltaStep] | type[AppendToIcebergStep],
) -> None:
    publisher, read = file_table(tmp_path, "delta" if step is AppendToDeltaStep else "iceberg")
    job = table_job(publisher, {"c": {"rows": 10}})
    monkeypatch.setattr(tables, "TRIES", 2)
    with monkeypatch.context() as patched:
        patched.setattr(step, "execute", _killed)
        run(tmp_path, job)
    for file in (tmp_path / "lake").rglob("*.parquet"):
        file.write_bytes(b"")
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences(job.job, {SequenceState.PREPARED})
        states = [abandon_sequence(opened, store, waiting.id).state for _ in range(2)]
    assert states[-1] is SequenceState.ABORTED
    assert "could not note that commit" in caplog.text
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert read() == list(range(10))


def targets_that_are_away(root: Path) -> list[CanBeForbidden]:
    commit = TableCommit("c1", "numbers", "run", "c", "all", "0", "1", ())
    (root / "file").touch()
    return [
        SendToKafkaStep(commit, "rows", None, "commits", KafkaConnection(brokers="127.0.0.1:9", timeout_s=0.1)),
        LoadSqlTableStep(commit, "", "t", "append", (), "sqlite:////gone/there/x.db", "", str(root)),
        LoadSqlTableStep(commit, "", "t", "append", (), "", "NO_SUCH_VARIABLE", str(root)),
        AppendToDeltaStep(f"{root}/file/table", commit, 1),
        AppendToIcebergStep("lake.t", commit, "lake", {"type": "sql", "uri": "sqlite:////gone/there/x.db"}),
        AppendToDeltaStep("s3://bucket/table", commit, 1, {}, {"aws_secret_access_key": "NO_SUCH_VARIABLE"}),
        AppendToIcebergStep("lake.t", commit, "lake", {"type": "sql"}, {"uri": "NO_SUCH_VARIABLE"}),
    ]


@pytest.mark.parametrize("place", range(7))
def test_target_that_is_away_keeps_nobody_from_abandoning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: int
) -> None:
    monkeypatch.setattr(tables, "TRIES", 2)
    targets_that_are_away(tmp_path)[place].forbid()
    assert "could not note that commit c1 is abandoned: " in caplog.text


def test_startpoint_that_an_older_copy_of_the_store_brings_back_decides_nothing(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    start_at(tmp_path, rows(10), "5")
    shutil.copytree(tmp_path / ".gobblin", tmp_path / "backup")
    run(tmp_path, rows(20))
    there = sorted([*range(10), *range(5, 20)])
    assert table_ids(tmp_path) == there
    shutil.rmtree(tmp_path / ".gobblin")
    shutil.copytree(tmp_path / "backup", tmp_path / ".gobblin")
    (problem,) = problems(tmp_path, rows(30))
    assert "notes commit " in problem
    with closing(project(tmp_path, rows(30)).open_store()) as store:
        assert refused_datasets(JobContext.of(project(tmp_path, rows(30)), rows(30), store)) == {"c": problem}
    assert run(tmp_path, rows(30)).status is RunStatus.FAILED
    assert table_ids(tmp_path) == there
    start_at(tmp_path, rows(30), "20")
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == [*there, *range(20, 30)]


def test_startpoint_of_an_abandoned_commit_does_not_load_its_rows_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, rows(10))
    start_at(tmp_path, rows(10), "5")
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, rows(20))
    there = table_ids(tmp_path)
    opened = project(tmp_path, rows(30))
    with closing(opened.open_store()) as store:
        (waiting,) = store.load_sequences("numbers", {SequenceState.PREPARED})
        states = [abandon_sequence(opened, store, waiting.id).state for _ in range(2)]
    assert states[-1] is SequenceState.ABORTED
    (problem,) = problems(tmp_path, rows(30))
    assert "which was abandoned: its rows are there" in problem
    assert run(tmp_path, rows(30)).status is RunStatus.FAILED
    assert table_ids(tmp_path) == there


def test_startpoint_from_before_a_commit_does_not_skip_it_in_a_table_that_was_set_back(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "copy.db")
    start_at(tmp_path, rows(10), "20")
    with closing(project(tmp_path, rows(10)).open_store()) as store:
        (old,) = store.list_startpoints("numbers")
        store.delete_startpoint(old, "anna@host")
    run(tmp_path, rows(20))
    with closing(project(tmp_path, rows(20)).open_store()) as store:
        store.save_startpoint(old)  # as if it had been set while that run went on
    shutil.copy(tmp_path / "copy.db", tmp_path / "warehouse.db")
    (problem,) = problems(tmp_path, rows(30))
    assert " lacks commit " in problem


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_target_that_was_set_back_is_refused_until_a_person_says_where_its_missing_rows_begin(
    tmp_path: Path, backend: str
) -> None:
    publisher, read = target(tmp_path, backend)
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}, "d": {"rows": 0}}))
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns(".gobblin", "_gobblin", "copy"))
    run(tmp_path, table_job(publisher, {"c": {"rows": 20}}))
    for log in tmp_path.glob("lake/**/_delta_log"):
        shutil.rmtree(log)
    shutil.copytree(tmp_path / "copy", tmp_path, dirs_exist_ok=True)
    assert read() == list(range(10))
    job = table_job(publisher, {"c": {"rows": 30}})
    (planned,) = plan_job(project(tmp_path, job), job).datasets
    (result,) = run(tmp_path, job).datasets
    assert result.failures[0].message == planned.problem
    assert " lacks commit " in planned.problem
    assert "Restore its newest copy" in planned.problem
    start_at(tmp_path, job, "10")
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert run(tmp_path, table_job(publisher, {"c": {"rows": 40}})).status is RunStatus.SUCCEEDED
    assert read() == list(range(40))


def test_commit_that_waits_does_not_hide_an_older_one_that_the_table_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, rows(10))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "older.db")
    run(tmp_path, rows(15))
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, rows(20))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "newest.db")
    shutil.copy(tmp_path / "older.db", tmp_path / "warehouse.db")
    refused = run(tmp_path, rows(30))
    (waiting,) = refused.recovered
    assert (refused.status, waiting.state) == (RunStatus.FAILED, SequenceState.PREPARED)
    assert " lacks commit " in waiting.reason
    assert "gobblin commit abandon" in waiting.reason
    assert table_ids(tmp_path) == list(range(10))
    opened = project(tmp_path, rows(30))
    shutil.copytree(tmp_path, tmp_path / "refused", ignore=shutil.ignore_patterns("refused"))
    shutil.copy(tmp_path / "newest.db", tmp_path / "warehouse.db")
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(30))
    # The other remedy.
    shutil.rmtree(tmp_path / ".gobblin")
    shutil.copytree(tmp_path / "refused", tmp_path, dirs_exist_ok=True)
    with closing(opened.open_store()) as store:
        states = [abandon_sequence(opened, store, waiting.sequence_id).state for _ in range(2)]
    assert states == [SequenceState.QUARANTINED, SequenceState.ABORTED]
    start_at(tmp_path, rows(30), "10")
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(30))


def test_table_that_is_set_back_after_the_store_was_is_noticed_too(tmp_path: Path) -> None:
    set_back(tmp_path, APPEND)
    start_at(tmp_path, rows(30), "20")
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "copy.db")
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(30))
    shutil.copy(tmp_path / "copy.db", tmp_path / "warehouse.db")
    (problem,) = problems(tmp_path, rows(40))
    assert " lacks commit " in problem
    assert "though it notes an older one" in problem


def test_table_that_was_set_back_is_noticed_where_rows_may_come_twice(tmp_path: Path) -> None:
    twice = {"commit": {"delivery": "at_least_once"}}
    run(tmp_path, rows(10, **twice))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "copy.db")
    run(tmp_path, rows(20, **twice))
    shutil.copy(tmp_path / "copy.db", tmp_path / "warehouse.db")
    (problem,) = problems(tmp_path, rows(30, **twice))
    assert " lacks commit " in problem


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_target_that_is_gone_is_refused_until_a_person_says_where_its_missing_rows_begin(
    tmp_path: Path, backend: str
) -> None:
    publisher, read = target(tmp_path, backend)
    run(tmp_path, table_job(publisher, {"b": {"rows": 5}, "c": {"rows": 10}}))
    for path in [*tmp_path.glob("lake/**/_delta_log"), *tmp_path.glob("*.db")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    publisher, _ = target(tmp_path, backend)
    job = table_job(publisher, {"b": {"rows": 5}, "c": {"rows": 30}})
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store:
        refused = refused_datasets(JobContext.of(opened, job, store))
    assert refused.keys() == {"b", "c"}
    assert all("and notes no other" in problem for problem in refused.values())
    assert problems(tmp_path, job) == [refused["c"]]
    assert run(tmp_path, job).status is RunStatus.FAILED
    start_at(tmp_path, job, "0")
    assert {one.dataset_urn: str(one.outcome) for one in run(tmp_path, job).datasets}["c"] == "committed"
    assert read() == list(range(30))


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_other_target_than_before_is_refused_until_a_person_says_where_its_rows_begin(
    tmp_path: Path, backend: str
) -> None:
    """The former one still has all rows, which the new one would lack without a word; and the other way round."""
    publisher, read = target(tmp_path, backend)
    change = {
        "sql_table": {"publisher": publisher | {"table": "other"}},
        "iceberg": {"publisher": publisher | {"table": "lake.other"}},
        "delta": {"output": {"path": "lake2"}},
    }[backend]
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    moved = table_job(**{"publisher": publisher, "datasets": {"c": {"rows": 20}}} | change)
    (problem,) = problems(tmp_path, moved)
    assert "and notes no other" in problem
    start_at(tmp_path, moved, "0")
    assert run(tmp_path, moved).status is RunStatus.SUCCEEDED
    assert problems(tmp_path, table_job(**{"publisher": publisher, "datasets": {"c": {"rows": 30}}} | change)) == []
    (problem,) = problems(tmp_path, table_job(publisher, {"c": {"rows": 30}}))
    assert "or newer rows went to another one, because settings were changed" in problem
    assert read() == list(range(10))


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_newer_rows_that_replace_others_are_not_published_alone_to_a_target_that_is_gone(
    tmp_path: Path, backend: str
) -> None:
    publisher, _ = target(tmp_path, backend)
    merges = publisher | {"mode": "upsert" if backend == "sql_table" else "merge", "key": ["id"]}
    extract = {"namespace": "test", "table": "numbers", "delta_fields": ["id"]}
    run(tmp_path, table_job(merges, {"c": {"rows": 10}}, extract=extract))
    for path in [*tmp_path.glob("lake/**/_delta_log"), *tmp_path.glob("*.db")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    target(tmp_path, backend)
    (problem,) = problems(tmp_path, table_job(merges, {"c": {"rows": 30}}, extract=extract))
    assert "and notes no other" in problem


@pytest.mark.parametrize("parts", [{}, {"commit": {"delivery": "at_least_once"}}], ids=["dropped", "at least once"])
def test_table_that_was_dropped_beside_its_ledger_is_noticed(tmp_path: Path, parts: dict[str, Any]) -> None:
    run(tmp_path, rows(10, **parts))
    query(tmp_path, "DROP TABLE numbers")
    (problem,) = problems(tmp_path, rows(20, **parts))
    assert "and notes no other" in problem


def test_commit_of_another_branch_of_a_shared_table_is_missed(tmp_path: Path) -> None:
    def job(number: int) -> JobSpec:
        branches = [
            {"name": name, "publisher": APPEND, "converters": [{"type": "sql", "where": where}]}
            for name, where in (("low", "id < 10"), ("high", "id >= 10"))
        ]
        return job_spec({"c": {"rows": number}}, fork={"branches": branches})

    run(tmp_path, job(15))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "copy")
    run(tmp_path, job(20))
    shutil.copy(tmp_path / "copy", tmp_path / "warehouse.db")
    (problem,) = problems(tmp_path, job(30))
    assert "though it notes an older one" in problem


def test_dataset_whose_commits_are_older_than_many_of_others_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_store, "MOST_COMMITS", 1)

    def job(quiet: int, busy: int) -> JobSpec:
        return table_job(APPEND | {"table": "of_{dataset}"}, {"quiet": {"rows": quiet}, "busy": {"rows": busy}})

    run(tmp_path, job(1, 1))
    shutil.copy(tmp_path / "warehouse.db", tmp_path / "copy")
    for busy in range(2, 8):
        run(tmp_path, job(2, busy))
    shutil.copy(tmp_path / "copy", tmp_path / "warehouse.db")
    assert len(problems(tmp_path, job(3, 8))) == 2


def test_iceberg_table_that_was_rolled_back_lacks_commits(tmp_path: Path) -> None:
    publisher, read = file_table(tmp_path, "iceberg")
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    first = _iceberg(publisher).metadata.current_snapshot_id
    run(tmp_path, table_job(publisher, {"c": {"rows": 20}}))
    _iceberg(publisher).manage_snapshots().rollback_to_snapshot(first).commit()
    (problem,) = problems(tmp_path, table_job(publisher, {"c": {"rows": 30}}))
    assert "though it notes an older one" in problem
    assert read() == list(range(10))


def test_iceberg_table_that_was_rolled_back_into_a_merge_lacks_rows_of_all_datasets(tmp_path: Path) -> None:
    """A merge is two snapshots with one commit id: the first takes files out, with rows of other datasets too."""
    publisher = file_table(tmp_path, "iceberg")[0] | {"mode": "merge", "key": ["slot"]}
    slots = {"converters": [{"type": "sql", "select": "id, id % 7 AS slot"}]}

    def job(b: int, c: int) -> JobSpec:
        return table_job(publisher, {"b": {"rows": b}, "c": {"rows": c}}, **slots)

    def ids() -> list[int]:
        return sorted(_iceberg(publisher).scan().to_arrow()["id"].to_pylist())

    run(tmp_path, job(7, 0))
    run(tmp_path, job(7, 10))
    run(tmp_path, job(7, 12))
    there = _iceberg(publisher)
    newest = there.current_snapshot()
    there.manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()
    assert ids() == []
    assert run(tmp_path, job(8, 13)).status is RunStatus.FAILED
    found = problems(tmp_path, job(8, 13))
    said = "or some of its rows: the table was set back into the middle of a commit"
    assert [said in problem and "Restore its newest copy" in problem for problem in found] == [True, True]
    # The table still notes commits that a new store does not know.
    shutil.move(tmp_path / ".gobblin", tmp_path / "store")
    assert [" notes commit " in problem for problem in problems(tmp_path, job(8, 13))] == [True, True]
    shutil.rmtree(tmp_path / ".gobblin")
    shutil.move(tmp_path / "store", tmp_path / ".gobblin")
    there = _iceberg(publisher)
    there.manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    assert run(tmp_path, job(7, 13)).status is RunStatus.SUCCEEDED
    assert ids() == [*range(6, 13)]


def test_iceberg_table_in_the_middle_of_a_merge_is_refused_until_a_person_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the merge was abandoned, and no other snapshot is left: its rows are not there."""
    publisher = file_table(tmp_path, "iceberg")[0] | {"mode": "merge", "key": ["id"]}
    converters = [{"type": "sql", "select": "id % 7 AS id"}]

    def job(number: int) -> JobSpec:
        return table_job(publisher, {"c": {"rows": number}}, converters=converters)

    run(tmp_path, job(7))
    with monkeypatch.context() as patched:
        at_commit(patched)
        run(tmp_path, job(10))
    there = _iceberg(publisher)
    half = there.current_snapshot().parent_snapshot_id
    there.manage_snapshots().rollback_to_snapshot(half).commit()
    gone = [one.snapshot_id for one in there.metadata.snapshots if one.snapshot_id != half]
    _iceberg(publisher).maintenance.expire_snapshots().by_ids(gone).commit()
    opened = project(tmp_path, job(11))
    (waiting,) = run(tmp_path, job(11)).recovered
    assert "into the middle of a commit" in waiting.reason
    with closing(opened.open_store()) as store:
        states = [abandon_sequence(opened, store, waiting.sequence_id).state for _ in range(2)]
    assert states == [SequenceState.QUARANTINED, SequenceState.ABORTED]
    (problem,) = problems(tmp_path, job(11))
    assert "into the middle of a commit" in problem
    start_at(tmp_path, job(11), "0")
    for number in (11, 12):
        assert run(tmp_path, job(number)).status is RunStatus.SUCCEEDED
    assert sorted(_iceberg(publisher).scan().to_arrow()["id"].to_pylist()) == list(range(7))


@pytest.mark.parametrize("mode", [{}, {"mode": "merge", "key": ["id"]}], ids=["append", "merge"])
def test_snapshots_of_iceberg_that_expired_are_not_missed(tmp_path: Path, mode: dict[str, Any]) -> None:
    publisher = file_table(tmp_path, "iceberg")[0] | mode
    for busy in (1, 2):
        run(tmp_path, table_job(publisher, {"c": {"rows": 1}, "busy": {"rows": busy}}))
    there = _iceberg(publisher)
    last = there.metadata.current_snapshot_id
    gone = [one.snapshot_id for one in there.metadata.snapshots if one.snapshot_id != last]
    there.maintenance.expire_snapshots().by_ids(gone).commit()
    assert problems(tmp_path, table_job(publisher, {"c": {"rows": 5}, "busy": {"rows": 2}})) == []


def _iceberg(publisher: dict[str, Any]) -> Any:
    return IcebergCatalog("default", publisher["catalog"], {}).load(publisher["table"])


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_commits_without_rows_are_not_missed_in_the_target(tmp_path: Path, backend: str) -> None:
    publisher, read = target(tmp_path, backend)
    run(tmp_path, table_job(publisher, {"c": {"rows": 10}}))
    nothing = [{"type": "sql", "where": "id < 10"}]
    for number in (20, 30):
        job = table_job(publisher, {"c": {"rows": number}}, converters=nothing)
        assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert run(tmp_path, table_job(publisher, {"c": {"rows": 40}})).status is RunStatus.SUCCEEDED
    assert read() == [*range(10), *range(30, 40)]


def target(root: Path, backend: str) -> tuple[dict[str, Any], Callable[[], list[int]]]:
    """Return a publisher to a table, and what reads the ids of its rows."""
    return (APPEND, lambda: table_ids(root)) if backend == "sql_table" else file_table(root, backend)


def file_table(root: Path, backend: str) -> tuple[dict[str, Any], Callable[[], list[int]]]:
    """Return a publisher to a table of files, and what reads the ids of its rows."""
    if backend == "iceberg":
        return test_iceberg.publisher(root), lambda: test_iceberg.table_ids(root)
    return {"type": "delta"}, lambda: test_delta.table_ids(root)


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ({"mode": "upsert", "key": ["id"]}, {"delta_fields": ["id"]}),
        ({"mode": "upsert", "key": ["id"]}, {"is_full": True}),
        ({"mode": "replace"}, {}),
    ],
    ids=["upsert by delta_fields", "upsert of full extracts", "replace"],
)
def test_rows_that_take_the_place_of_older_ones_need_no_guard(
    tmp_path: Path, mode: dict[str, Any], parts: dict[str, Any]
) -> None:
    set_back(tmp_path, APPEND | mode)
    extract = {"namespace": "test", "table": "numbers"} | parts
    job = table_job(APPEND | mode, {"c": {"rows": 30}}, extract=extract)
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert len(table_ids(tmp_path)) == len(set(table_ids(tmp_path)))


@pytest.mark.parametrize("backend", ["iceberg", "delta", "sql_table"])
def test_rows_that_may_take_the_place_of_newer_ones_need_a_guard(tmp_path: Path, backend: str) -> None:
    publisher, _ = (APPEND, None) if backend == "sql_table" else file_table(tmp_path, backend)
    merges = publisher | {"mode": "upsert" if backend == "sql_table" else "merge", "key": ["id"]}
    set_back(tmp_path, merges)
    shutil.rmtree(tmp_path / "lake/_gobblin/manifests", ignore_errors=True)
    (problem,) = problems(tmp_path, table_job(merges, {"c": {"rows": 30}}))
    assert " notes a commit of 20" in problem or " notes commit " in problem


def test_at_least_once_may_publish_again(tmp_path: Path) -> None:
    set_back(tmp_path, APPEND)
    assert run(tmp_path, rows(30, commit={"delivery": "at_least_once"})).status is RunStatus.SUCCEEDED


def test_ledger_of_an_earlier_version_is_read_and_gets_its_column(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    query(tmp_path, "ALTER TABLE gobblin_commits DROP COLUMN published_at")
    assert run(tmp_path, rows(20)).status is RunStatus.SUCCEEDED
    assert [at is None for (at,) in query(tmp_path, "SELECT published_at FROM gobblin_commits ORDER BY high")] == [
        True,
        False,
    ]
    query(tmp_path, "ALTER TABLE gobblin_commits DROP COLUMN published_at")
    shutil.rmtree(tmp_path / ".gobblin")
    assert run(tmp_path, rows(30)).status is RunStatus.FAILED
    assert table_ids(tmp_path) == list(range(20))


def test_other_jobs_and_tables_do_not_count(tmp_path: Path) -> None:
    run(tmp_path, rows(10))
    assert run(tmp_path, rows(10, job="other")).status is RunStatus.SUCCEEDED
    shutil.rmtree(tmp_path / ".gobblin")
    assert run(tmp_path, table_job(APPEND | {"table": "fresh"}, {"c": {"rows": 10}})).status is RunStatus.SUCCEEDED


def test_commit_that_waits_in_the_store_is_no_sign_of_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, rows(10))
    execute = LoadSqlTableStep.execute

    def fail(self: LoadSqlTableStep, storage: Any) -> None:
        execute(self, storage)
        raise OSError("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(LoadSqlTableStep, "execute", fail)
        assert run(tmp_path, rows(20)).status is RunStatus.FAILED
    assert problems(tmp_path, rows(20)) == []
    assert run(tmp_path, rows(30)).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(30))


def test_dataset_whose_commit_cannot_be_finished_is_not_read_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(step: LoadSqlTableStep, _: Any) -> None:
        if step.commit.dataset_urn == "c":
            raise OSError("the table is away")

    job = table_job(APPEND, {"c": {"rows": 20}, "new": {"rows": 5}})
    with monkeypatch.context() as patched:
        patched.setattr(LoadSqlTableStep, "execute", fail)
        run(tmp_path, rows(10))
        found = {one.dataset_urn: one for one in run(tmp_path, job).datasets}
    (failure,) = found["c"].failures
    assert (failure.code, found["c"].rows_read, found["new"].is_committed) == ("sequence-unfinished", 0, True)
    assert "It could not be finished: " in failure.message
    assert "the table is away" in failure.message
    assert run(tmp_path, job).status is RunStatus.SUCCEEDED
    assert table_ids(tmp_path) == list(range(20))


def test_target_is_asked_once_and_not_by_an_idle_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    ask = SqlTablePublisher.newest_commits

    def asking(self: SqlTablePublisher, datasets: dict[str, str]) -> Any:
        asked.append([*datasets])
        return ask(self, datasets)

    monkeypatch.setattr(SqlTablePublisher, "newest_commits", asking)
    branches = [{"name": name, "publisher": APPEND} for name in ("all", "again")]
    job = job_spec({"a": {"rows": 3}, "b": {"rows": 3}}, fork={"branches": branches})
    run(tmp_path, job)
    run(tmp_path, job)
    assert asked == [["a", "b"]]


def test_table_that_cannot_be_asked_leaves_the_plan_and_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_back(tmp_path, APPEND)
    with monkeypatch.context() as patched:
        patched.setattr(sql_table, "make_engine", lambda *_, **__: sa.create_engine(f"sqlite:///{tmp_path}/gone/w.db"))
        assert problems(tmp_path, rows(30)) == []
        (result,) = run(tmp_path, rows(30)).datasets
    assert (result.failures[0].code, result.rows_read) == ("storage", 0)
    assert len(problems(tmp_path, rows(30))) == 1
