"""`commit.scope: job`: what one failing dataset means for the others, and what a person may do about a group."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep
from gobblin_dagster.core.commit import CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.errors import CommitStateUnknownError, EnvironmentFaultError, StaleEpochError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.group import group_of
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence
from gobblin_dagster.engine.results import RecoveredDataset, RunResult
from gobblin_dagster.engine.run import recovery
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

THREE = {urn: {"rows": 10} for urn in "abc"}


def group_job(datasets: dict[str, dict[str, Any]], **commit: Any) -> JobSpec:
    return job_spec(datasets, commit={"scope": "job", "parallelism": 1} | commit)


class DiedError(BaseException):
    """What no `except Exception` holds up, like the end of a process."""


class DieAfter(SilentListener):
    """Ends a run once so many sequences are prepared, or committed."""

    def __init__(self, *, prepared: int = 99, committed: int = 99) -> None:
        self._prepared, self._committed = prepared, committed

    def prepared(self, sequence: CommitSequence) -> None:
        self._prepared -= 1
        if not self._prepared:
            raise DiedError

    def committed(self, sequence: CommitSequence) -> None:
        self._committed -= 1
        if not self._committed:
            raise DiedError


def die(root: Path, job: JobSpec, listener: DieAfter) -> None:
    with pytest.raises(DiedError):
        run_job(project(root, job), job, runner=InlineRunner(), commit_listener=listener)


def recover(root: Path, job: JobSpec, selection: Selection | None = None) -> tuple[RecoveredDataset, ...]:
    opened = project(root, job)
    store = opened.open_store()
    recovered = recover_job(JobContext.of(opened, job, store, selection))
    store.close()
    return recovered


def outcomes(result: RunResult) -> dict[str, str]:
    return {dataset.dataset_urn: dataset.outcome.value for dataset in result.datasets}


def test_all_datasets_are_published_together(tmp_path: Path) -> None:
    job = group_job(THREE)
    assert run(tmp_path, job).exit_code == 0
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "abc")
    assert outcomes(run(tmp_path, job)) == dict.fromkeys("abc", "idle")


def test_group_whose_leader_is_stored_until_its_lease_is_taken_goes_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(prepared=3))
    looked: list[int] = []
    load = SqlStateStore.load_sequences

    def load_sequences(self: SqlStateStore, *args: Any, **kwargs: Any) -> list[StoredSequence]:
        found = load(self, *args, **kwargs)
        looked.append(len(found))
        return (
            found if len(looked) > 1 else [one for one in found if (group := group_of(one)) and group.leader != one.id]
        )

    monkeypatch.setattr(SqlStateStore, "load_sequences", load_sequences)
    opened = project(tmp_path, job)
    with closing(opened.open_store()) as store, (context := JobContext.of(opened, job, store)).lease_keeper() as leases:
        recovered = recovery.recover(context, leases, context.committer())
    assert {one.dataset_urn: one.state for one in recovered} == dict.fromkeys("abc", SequenceState.COMMITTED)
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "abc")


def test_one_failed_work_unit_holds_back_all_datasets(tmp_path: Path) -> None:
    result = run(tmp_path, group_job(THREE | {"b": {"rows": 10, "fail_at": 5}}))
    assert result.exit_code == 1
    assert by_urn(result)["a"].failures[0].code == "group-held-back"
    assert "dataset 'b': Dataset 'b', file b.rows, row 5" in by_urn(result)["a"].failures[0].message
    mended = group_job(THREE)
    assert all(published(tmp_path, mended, urn) == [] for urn in "abc")
    assert not list(tmp_path.glob("lake/**/*.parquet"))
    assert run(tmp_path, mended).exit_code == 0
    assert all(published(tmp_path, mended, urn) == list(range(10)) for urn in "abc")


def test_policy_successful_publishes_together_what_succeeded(tmp_path: Path) -> None:
    job = group_job(THREE | {"b": {"rows": 10, "fail_at": 5}}, policy="successful")
    result = run(tmp_path, job)
    assert (outcomes(result), result.exit_code) == ({"a": "committed", "b": "failed", "c": "committed"}, 4)


def test_dataset_without_news_is_no_part_of_it(tmp_path: Path) -> None:
    run(tmp_path, group_job(THREE))
    result = run(tmp_path, group_job(THREE | {"b": {"rows": 12}}))
    assert outcomes(result) == {"a": "idle", "b": "committed", "c": "idle"}


def test_nothing_is_read_where_the_plan_already_tells_that_nothing_will_be_published(tmp_path: Path) -> None:
    runner = InlineRunner()
    job = group_job(THREE | {"b": {"rows": 1, "problem": "no door"}})
    result = run_job(project(tmp_path, job), job, runner=runner)
    assert outcomes(result) == dict.fromkeys("abc", "failed")
    assert by_urn(result)["c"].failures[0].code == "group-held-back"
    assert "no door" in by_urn(result)["c"].failures[0].message
    assert not (tmp_path / "lake" / "_gobblin").exists()


def test_dataset_held_by_another_run_holds_back_all(tmp_path: Path) -> None:
    job = group_job(THREE)
    store = project(tmp_path, job).open_store()
    store.acquire_leases(job.job, ["b"], LeaseOwner.current("other-run"), timedelta(seconds=60))
    store.close()
    result = run(tmp_path, job)
    assert outcomes(result) == {"a": "failed", "b": "busy", "c": "failed"}
    assert published(tmp_path, job, "a") == []


def test_run_that_died_before_all_were_prepared_is_undone(tmp_path: Path) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(prepared=2))
    assert {r.state for r in recover(tmp_path, job)} == {"aborted"}
    assert not list(tmp_path.glob("lake/test/**/*.parquet"))
    assert run(tmp_path, job).exit_code == 0
    assert published(tmp_path, job, "c") == list(range(10))


@pytest.mark.parametrize(
    "listener",
    [DieAfter(prepared=3), DieAfter(committed=1), DieAfter(committed=2)],
    ids=["prepared", "leader", "second"],
)
def test_run_that_died_later_is_finished_by_whoever_looks_after_one_of_its_datasets(
    tmp_path: Path, listener: DieAfter
) -> None:
    job = group_job(THREE)
    die(tmp_path, job, listener)
    recovered = recover(tmp_path, job, Selection(select=("c",)))
    assert {r.state for r in recovered} == {"committed"}
    assert "c" in {r.dataset_urn for r in recovered}
    assert all(published(tmp_path, job, urn) == list(range(10)) for urn in "abc")


def test_messages_do_not_deny_rows_that_a_table_has_after_the_lease_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_over(*_: Any, **__: Any) -> None:
        raise StaleEpochError(dataset_urn="a", ours=1, current=2)

    job = with_table(2)
    rows = Counter((urn, number) for urn in "abc" for number in range(2))
    with monkeypatch.context() as patched:
        patched.setattr(SqlStateStore, "commit", taken_over)
        failed = run(tmp_path, job)
    assert rows_of_table(tmp_path) == rows
    messages = [failure.message for one in failed.datasets for failure in one.failures]
    assert all("what this run prepared is finished or undone" in message for message in messages)
    assert not any("nothing" in message.lower() for message in messages)
    assert {one.state for one in recover(tmp_path, job)} == {"committed"}
    assert rows_of_table(tmp_path) == rows


def test_group_waits_while_another_run_holds_one_of_its_datasets(tmp_path: Path) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(prepared=3))
    store = project(tmp_path, job).open_store()
    grant = store.acquire_leases(job.job, ["b"], LeaseOwner.current("other-run"), timedelta(seconds=60))
    recovered = recover(tmp_path, job)
    assert {(r.state, "run other-run" in r.reason) for r in recovered} == {("prepared", True)}
    store.release_leases(job.job, list(grant.granted.values()))
    store.close()
    assert {r.state for r in recover(tmp_path, job)} == {"committed"}


def test_damaged_record_of_one_sequence_undoes_the_others(tmp_path: Path) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(prepared=3))
    with sqlite3.connect(tmp_path / ".gobblin" / "state.db") as connection:
        connection.execute("update gobblin_sequences set body = 'x' where dataset_urn = 'b'")
    connection.close()
    assert {r.dataset_urn: r.state for r in recover(tmp_path, job)} == {
        "a": "aborted",
        "b": "quarantined",
        "c": "aborted",
    }


def with_table(rows: int) -> JobSpec:
    table = {"type": "sql_table", "url": "sqlite:///sink.db", "table": "rows"}
    branches = {"branches": [{"name": "all"}, {"name": "table", "publisher": table}]}
    datasets = {urn: {"rows": rows} for urn in "abc"}
    return job_spec(datasets, commit={"scope": "job", "parallelism": 1}, fork=branches)


def rows_of_table(root: Path) -> Counter[tuple[str, int]]:
    with closing(sqlite3.connect(root / "sink.db")) as connection:
        return Counter(connection.execute("select dataset, id from rows").fetchall())


def test_group_that_died_before_its_leader_was_stored_is_undone_though_it_loads_tables(tmp_path: Path) -> None:
    job = with_table(5)
    die(tmp_path, job, DieAfter(prepared=2))
    assert {r.state for r in recover(tmp_path, job)} == {"aborted"}, "no step had begun, so nobody has to decide"
    assert run(tmp_path, job).exit_code == 0
    assert rows_of_table(tmp_path) == Counter((urn, number) for urn in "abc" for number in range(5))


def test_group_that_is_stored_whole_goes_on_though_the_last_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, prepare, prepared = with_table(5), SqlStateStore.prepare, []

    def losing(self: SqlStateStore, sequence: StoredSequence, epoch: int) -> None:
        prepare(self, sequence, epoch)
        prepared.append(sequence.dataset_urn)
        if len(prepared) == 3:
            raise CommitStateUnknownError(
                dataset_urn=sequence.dataset_urn, sequence_id=sequence.id, problem="the answer was lost"
            )

    with monkeypatch.context() as patched:
        patched.setattr(SqlStateStore, "prepare", losing)
        assert outcomes(run(tmp_path, job)) == dict.fromkeys("abc", "failed")
    assert {r.state for r in recover(tmp_path, job)} == {"committed"}
    assert rows_of_table(tmp_path) == Counter((urn, number) for urn in "abc" for number in range(5))


def test_group_waits_for_what_the_machine_lacks_however_often_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(self: LoadSqlTableStep, storage: Storage) -> None:
        raise EnvironmentFaultError(problem="There is no driver.", hint="Install one.")

    job = with_table(5)
    die(tmp_path, job, DieAfter(prepared=3))
    with monkeypatch.context() as patched:
        patched.setattr(LoadSqlTableStep, "execute", lacking)
        for _ in range(job.commit.redo_limit + 1):
            recovered = recover(tmp_path, job)
            assert {(r.state, "Install one." in r.reason) for r in recovered} == {("prepared", True)}
    assert {r.state for r in recover(tmp_path, job)} == {"committed"}
    assert rows_of_table(tmp_path) == Counter((urn, number) for urn in "abc" for number in range(5))


def test_person_gives_up_the_group_by_its_leader_only(tmp_path: Path) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(prepared=3))
    opened = project(tmp_path, job)
    store = opened.open_store()
    waiting = {s.dataset_urn: s for s in store.load_sequences(job.job)}
    group = group_of(waiting["b"])
    assert group is not None
    assert (group.leader, group.size) == (waiting[group.dataset_urn].id, 3)
    member = next(s for s in waiting.values() if s.id != group.leader)
    with pytest.raises(UsageError, match=f"Abandon {group.leader}"):
        abandon_sequence(opened, store, member.id)
    assert abandon_sequence(opened, store, group.leader).state is SequenceState.ABORTED
    store.close()
    assert {r.state for r in recover(tmp_path, job)} == {"aborted"}
    assert run(tmp_path, job).exit_code == 0


def test_dataset_whose_published_files_are_deleted_after_the_decision_is_set_aside(tmp_path: Path) -> None:
    job = group_job(THREE)
    die(tmp_path, job, DieAfter(committed=1))
    for path in tmp_path.glob("lake/test/numbers/**/c/**/*.parquet"):
        path.unlink()
    recovered = {r.dataset_urn: r for r in recover(tmp_path, job)}
    assert (recovered["b"].state, recovered["c"].state) == ("committed", "quarantined")
    assert "Other datasets of its run are published" in recovered["c"].reason
    result = run(tmp_path, group_job(THREE | {"a": {"rows": 11}}))
    assert by_urn(result)["a"].outcome is DatasetOutcome.FAILED
    assert by_urn(result)["c"].outcome is DatasetOutcome.QUARANTINED


def test_scope_job_needs_the_write_ahead() -> None:
    with pytest.raises(ValidationError, match="needs delivery exactly_once"):
        group_job(THREE, delivery="at_least_once")
