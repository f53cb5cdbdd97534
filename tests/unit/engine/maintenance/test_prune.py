"""Old commits are deleted: nothing that runs, rollback, recovery or a copy of the store needs is among them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import CommitGroup, SequenceState
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.maintenance.clean import CleanResult, clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.prune import prune
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.state_export import export_state, plan_import, read_export, run_import
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.data.write_projects_v2 import SetClock
from tests.unit.engine.commit.world import JOB, World
from tests.unit.engine.jobs import job_spec
from tests.unit.engine.older_projects import bring_back

STORES = ["sqlite:///state.db", "files:state"]


class Feed:
    """A project of one dataset that gets a row more with each run."""

    def __init__(self, root: Path, state: str, keep: int) -> None:
        self.spec = ProjectSpec(project="tests", state=state, history_runs=keep)
        self.root = root
        self.clock = SetClock()
        self.rows = 0

    def job(self) -> JobSpec:
        branches = {"branches": [{"name": "all"}]}
        return job_spec({"a": {"rows": self.rows}}, fork=branches, commit={"keep_snapshots": 3})

    @property
    def project(self) -> Project:
        return Project(self.root, self.spec, (self.job(),), self.clock)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.rows += 1
            self.clock.instant += timedelta(hours=1)
            run_job(self.project, self.job(), runner=InlineRunner())

    def clean(self, *, dry_run: bool = False) -> CleanResult:
        return clean(self.project, self.job(), dry_run=dry_run)

    def rows_read(self) -> int:
        import pyarrow.parquet as pq

        paths = load_published(self.project, self.job(), "a").paths("all")
        return sum(pq.read_metadata(path).num_rows for path in paths)


@pytest.fixture(params=STORES)
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return Feed(tmp_path, request.param, keep=4)


def versions(store: StateStore, urn: str = "a") -> list[int]:
    return sorted(one.version_read + 1 for one in store.load_sequences(None, tuple(SequenceState), [urn]))


def lines(store: StateStore) -> list[str]:
    return list(export_state(store, store.list_jobs(), lambda _: True))


def test_clean_keeps_the_newest_commits_of_each_dataset(feed: Feed) -> None:
    feed.run(9)
    assert [one.commits for one in feed.clean(dry_run=True).commits] == [5]
    with closing(feed.project.open_store()) as store:
        assert versions(store) == [*range(1, 10)]
        done = feed.clean()
        assert [(one.dataset_urn, one.commits) for one in done.commits] == [("a", 5)]
        assert "old commits" in repr(done)
        assert versions(store) == [6, 7, 8, 9]
        assert feed.clean().commits == ()
    feed.run(2)
    assert feed.rows_read() == 11


def test_rollback_goes_back_as_far_as_snapshots_are_kept(feed: Feed) -> None:
    feed.spec = feed.spec.model_copy(update={"history_runs": 1})
    feed.run(9)
    feed.clean()
    with closing(feed.project.open_store()) as store:
        # Snapshots 7 to 9 are kept, and the commit before the oldest of them.
        assert versions(store) == [6, 7, 8, 9]
        assert [one.snapshot for one in list_snapshots(store, "numbers", "a")] == [9, 8, 7, 6]
    with pytest.raises(UsageError, match=r"remembers no commit of snapshot 5 .*It can still be read"):
        rollback(feed.project, feed.job(), "a", 5)
    rollback(feed.project, feed.job(), "a", 7)
    assert feed.rows_read() == 7
    feed.run(1)
    assert feed.rows_read() == 10


def test_copy_of_a_pruned_store_is_equal_and_goes_on(feed: Feed, tmp_path: Path) -> None:
    feed.run(6)
    rollback(feed.project, feed.job(), "a", 4)
    compact(feed.project, feed.job())
    feed.run(2)
    feed.clean()
    other = "files:other" if feed.spec.state.startswith("sqlite") else "sqlite:///other.db"
    with closing(feed.project.open_store()) as store, closing(open_store(other, tmp_path)) as copy:
        exported = read_export(lines(store))
        assert exported.bases.keys() == {("numbers", "a")}
        plan = plan_import(copy, exported)
        run_import(copy, replace(plan, missing=plan.missing[:1]))
        assert len(plan_import(copy, exported).missing) == len(plan.missing) - 1
        run_import(copy, plan_import(copy, exported))
        assert lines(copy) == lines(store)
        assert copy.load_dataset_states("numbers") == store.load_dataset_states("numbers")
        for snapshot in range(1, 11):
            assert copy.load_snapshot("numbers", "a", snapshot) == store.load_snapshot("numbers", "a", snapshot)
        assert history(copy, "numbers", "a") == history(store, "numbers", "a")
    feed.spec = feed.spec.model_copy(update={"state": other})
    feed.run(1)
    rollback(feed.project, feed.job(), "a", list_snapshots_of(feed)[1])


def list_snapshots_of(feed: Feed) -> list[int]:
    with closing(feed.project.open_store()) as store:
        return [one.snapshot for one in list_snapshots(store, "numbers", "a")]


def test_exports_of_before_and_after_pruning_are_compared_by_the_commits_that_both_have(feed: Feed) -> None:
    feed.run(6)
    with closing(feed.project.open_store()) as store:
        whole = read_export(lines(store))
        feed.clean()
        assert plan_import(store, whole).unchanged == (("numbers", "a"),)
        feed.run(2)
        newer = read_export(lines(store))
        assert plan_import(store, whole).ahead == (("numbers", "a"),)
        feed.run(6)
        feed.clean()
        # No commit of the file is left here, so nobody can tell whether they had the same ones.
        assert plan_import(store, newer).conflicts == (("numbers", "a"),)


def test_pruned_store_is_brought_up_by_a_newer_export_of_it(feed: Feed, tmp_path: Path) -> None:
    feed.run(6)
    with closing(feed.project.open_store()) as store, closing(open_store("sqlite:///copy.db", tmp_path)) as copy:
        feed.clean()
        run_import(copy, plan_import(copy, read_export(lines(store))))
        feed.run(2)
        feed.clean()
        plan = plan_import(copy, read_export(lines(store)))
        assert (len(plan.missing), plan.bases) == (2, {})
        run_import(copy, plan)
        assert copy.load_dataset_states("numbers") == store.load_dataset_states("numbers")


def test_history_begins_where_the_oldest_commit_that_is_left_began(feed: Feed) -> None:
    feed.run(9)
    feed.clean()
    with closing(feed.project.open_store()) as store:
        first, *_ = history(store, "numbers", "a")
    assert (first.version, str(first.watermark_before), str(first.watermark_after)) == (6, "5", "6")


def test_oldest_commit_that_is_left_and_the_next_one_are_never_damaged(feed: Feed, tmp_path: Path) -> None:
    feed.run(9)
    with closing(feed.project.open_store()) as store:
        oldest = next(
            one for one in store.load_sequences("numbers", {SequenceState.COMMITTED}) if one.version_read == 5
        )
    if feed.spec.state.startswith("files"):
        (tmp_path / f"state/sequences/{oldest.id}.jsonl").write_text("{}\n")
    else:
        with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
            connection.execute("UPDATE gobblin_sequences SET body = '{}' WHERE id = ?", (oldest.id,))
    assert [one.commits for one in feed.clean().commits] == [3]


@pytest.mark.parametrize("kind", ["sql", "files"])
def test_older_store_is_pruned_once_newer_commits_follow_and_can_be_copied(kind: str, tmp_path: Path) -> None:
    project = bring_back(kind, tmp_path / "project")
    project = replace(project, spec=project.spec.model_copy(update={"history_runs": 1}))
    _, feed = project.jobs
    feed = feed.model_copy(update={"commit": feed.commit.model_copy(update={"keep_snapshots": 1})})
    assert clean(project, feed).commits == ()  # its own commit is the first that names paths as today
    for number in range(2):
        (project.root / f"landing/{number}.csv").write_text("code,amount\n009,7.25\n")
        run_job(project, feed, runner=InlineRunner())
    compact(project, feed)
    project = replace(project, spec=project.spec.model_copy(update={"history_runs": 6}))
    assert [one.commits for one in clean(project, feed).commits] == [2]
    with closing(project.open_store()) as store, closing(open_store("files:copy", project.root)) as copy:
        assert versions(store, "test.feed") == [3, 4, 5, 6, 7, 8]
        run_import(copy, plan_import(copy, read_export(feed_lines(store))))
        assert feed_lines(copy) == feed_lines(store)
        assert copy.load_snapshot("feed", "test.feed") == store.load_snapshot("feed", "test.feed")
        assert copy.load_dataset_states("feed") == store.load_dataset_states("feed")


def feed_lines(store: StateStore) -> list[str]:
    return list(export_state(store, ["feed"], lambda _: True))


# -- what stored sequences still need, in a small lake -----------------------------------------------------------------
def publish(world: World, number: int, group: CommitGroup | None = None, urn: str = "a") -> str:
    unit = world.unit(f"{urn}{number}", urn=urn, low=10 * number, high=10 * number + 10)
    sequence = replace(world.sequence(f"{urn}{number}", urn=urn, units=[unit]), group=group)
    world.committer().prepare(sequence, world.epoch(urn))
    if group is None or group.leader == sequence.id:
        world.committer().publish(sequence, world.epoch(urn), verify_sources=False)
    return sequence.id


def test_leader_of_a_group_that_is_not_finished_stays() -> None:
    world = World()
    leader = CommitGroup("a2", "a", 2)
    publish(world, 0), publish(world, 1)
    publish(world, 0, leader, urn="b")
    publish(world, 2, leader)
    for number in range(3, 8):
        publish(world, number)
    job = job_spec({}).model_copy(update={"job": JOB, "commit": job_spec({}, commit={"keep_snapshots": 1}).commit})
    assert [one.commits for one in prune(job, world.store, 1, dry_run=False)] == [2]
    assert versions(world.store) == [3, 4, 5, 6, 7, 8]


def test_audit_of_a_branch_that_once_had_a_table_counts_pruned_commits_too(tmp_path: Path) -> None:
    feed = Feed(tmp_path, STORES[0], keep=2)
    feed.run(3)
    with closing(feed.project.open_store()) as store:
        newest = store.load_sequences("numbers", {SequenceState.COMMITTED}, limit=1)[0]
    assert newest.version_read == 2
    forget_files_of(feed, upto=2)
    feed.run(4)
    context = ConstructContext(job="numbers", base_dir=str(tmp_path))
    feed.clean()
    with closing(feed.project.open_store()) as store:
        source = registry.create(ConstructKind.SOURCE, feed.job().source, context)
        audit = audit_dataset(feed.job(), source, store, "a")
    assert audit is not None
    assert (audit.source_rows, audit.published_rows, audit.lost, audit.duplicated) == (7, {"all": 5}, 0, 0)


def forget_files_of(feed: Feed, upto: int) -> None:
    """Change the store as if the first snapshots had been published to a table."""
    with closing(sqlite3.connect(feed.root / "state.db")) as connection, connection:
        deleted = connection.execute("DELETE FROM gobblin_snapshot_files WHERE snapshot <= ?", (upto,)).rowcount
        connection.execute("UPDATE gobblin_dataset_states SET files = files - ?", (deleted,))
