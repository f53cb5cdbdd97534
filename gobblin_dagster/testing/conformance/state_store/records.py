"""Tests of the lists of a state store: sequences, reports to Dagster, runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.run_record import RunRecord, RunStatus
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    START,
    URN,
    publish,
    run_record,
    sequence,
    take,
)


class Records(OpensStore):
    """Lists of sequences, of what is not reported yet, and of runs."""

    def test_sequences_are_found_by_job_state_and_dataset_newest_first(self, store: StateStore) -> None:
        """`load_sequences` returns what its arguments choose, newest first; default: unfinished ones of all jobs."""
        old = publish(store, "old")
        new = publish(store, "new", 1)
        other = sequence("other", urn="other")
        store.prepare(other, take(store, urn="other").epoch)
        publish(store, "elsewhere", job="another")

        committed = [SequenceState.COMMITTED]
        assert [seq.id for seq in store.load_sequences(JOB, committed)] == [new.id, old.id]
        assert [seq.id for seq in store.load_sequences(JOB, committed, limit=1)] == [new.id]
        assert len(store.load_sequences(None, committed)) == 3
        assert [seq.id for seq in store.load_sequences()] == [other.id]
        assert store.load_sequences(JOB, urns=[URN]) == []
        assert store.load_sequences(JOB, []) == []
        assert store.load_sequence("absent") is None

    def test_committed_sequences_are_unreported_until_marked_oldest_first(self, store: StateStore) -> None:
        """`load_unreported` returns COMMITTED sequences of a job, oldest first, until `mark_reported` names them."""
        first, second = publish(store, "one"), publish(store, "two", 1)
        other = sequence("other", urn="other")
        store.prepare(other, take(store, urn="other").epoch)
        publish(store, "elsewhere", job="another")

        assert [seq.id for seq in store.load_unreported(JOB)] == [first.id, second.id]
        assert [seq.id for seq in store.load_unreported(JOB, limit=1)] == [first.id]

        store.mark_reported([first.id])
        store.mark_reported([first.id])
        assert [seq.id for seq in store.load_unreported(JOB)] == [second.id]
        assert store.load_sequence(first.id) == replace(first, state=SequenceState.COMMITTED, reported=True)

        store.mark_reported([second.id, "unknown"])
        store.mark_reported([])
        assert store.load_unreported(JOB) == []

    def test_runs_are_kept_newest_first(self, store: StateStore) -> None:
        """`load_runs` returns runs newest first, of one job or of all, at most `limit`."""
        one = run_record("run-1", START)
        two = run_record("run-2", START + timedelta(seconds=1))
        three = run_record("run-3", START + timedelta(seconds=2), job="another")
        for record in (two, three, one):
            store.save_run(record)

        assert store.load_runs() == [three, two, one]
        assert store.load_runs(limit=2) == [three, two]
        assert store.load_runs(JOB) == [two, one]
        assert store.load_runs(JOB, 1) == [two]
        assert store.load_runs("absent") == []

    def test_runs_are_found_by_id_with_their_tries(self, store: StateStore) -> None:
        """`find_runs` returns the runs of a job with some ids and their tries, newest first."""
        names = ["a", "a.1", "a.b", "ab", "b_", "b%", ".c", "a.2"]
        for minute, name in enumerate(names):
            store.save_run(run_record(name, START + timedelta(minutes=minute)))
        store.save_run(run_record("a", START, job="another"))

        def found(*run_ids: str) -> list[str]:
            return [run.run_id for run in store.find_runs(JOB, run_ids)]

        assert found("a") == ["a.2", "a.1", "a"]
        assert found("a.1", "b_", ".c", "absent") == [".c", "b_", "a.1"]
        assert found(*names, *map(str, range(1200))) == names[::-1]
        assert found() == []
        assert store.find_runs("absent", ["a"]) == []

    def test_all_but_the_newest_runs_of_a_job_are_forgotten(self, store: StateStore) -> None:
        """`prune_runs` forgets all but the newest runs of that job."""
        for number in range(5):
            store.save_run(run_record(f"run-{number}", START + timedelta(minutes=number)))
        store.save_run(RunRecord("run-other", "other", START, RunStatus.SUCCEEDED))
        store.prune_runs(JOB, keep=2)
        assert [run.run_id for run in store.load_runs()] == ["run-4", "run-3", "run-other"]
        store.prune_runs("absent", keep=2)

    def test_a_run_saved_again_replaces_its_record(self, store: StateStore) -> None:
        """`save_run` replaces the record of the same run."""
        running = run_record("run-1", START)
        ended = replace(running, status=RunStatus.PARTIAL, ended_at=START + timedelta(seconds=5), datasets={})
        store.save_run(running)
        store.save_run(ended)

        assert store.load_runs() == [ended]
