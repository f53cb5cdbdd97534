"""Two runners on several datasets, in any order of steps that Hypothesis thinks of: rows appear exactly once.

Startpoints send datasets back and forth meanwhile; each is honoured by one commit, and rows appear once for each commit
that was to publish them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CommitConflictError,
    CorruptRecordError,
    StagedFileLostError,
    UnfinishedSequenceError,
)
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.startpoint import Specific, Startpoint
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.engine.plan.startpoints import begin_at
from tests.unit.engine.commit.world import JOB, NOW, ROOT, World, staging

URNS = ("a:b", "a_b")
TTL = timedelta(minutes=1)
urns = st.sampled_from(URNS)
runners = st.sampled_from(["one", "two"])
STEPS = ("extract", "prepare", "move_some", "commit")
steps = st.sampled_from(["extract", "move_some", "commit"])


@dataclass
class Work:
    """What a runner has at hand for one dataset."""

    epoch: int
    sequence: CommitSequence | None = None
    is_prepared: bool = False


class Commits(RuleBasedStateMachine):
    """The source grows; runners take, stage, prepare, move, commit, die and wake late, one step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ends = dict.fromkeys(URNS, 0)
        self.work: dict[tuple[str, str], Work] = {}
        self.versions = dict.fromkeys(URNS, 0)
        self.commits = 0
        self.wished = dict.fromkeys(URNS, "")
        """Id of the startpoint that was set last."""
        self.planned: dict[str, tuple[int, int]] = {}
        """What a sequence reads, by its id."""

    @rule(runner=runners, urn=urns, rows=st.integers(1, 5), last=steps)
    def start(self, runner: str, urn: str, rows: int, last: str) -> None:
        """The source gets rows, and a new run of a runner comes as far as `last`."""
        self.ends[urn] += rows
        self.work.pop((runner, urn), None)
        self.acquire(runner, urn)
        self.go_on(runner, urn, last)

    @rule(runner=runners, urn=urns, last=steps)
    def go_on(self, runner: str, urn: str, last: str) -> None:
        """A run goes on to `last`; it may have been frozen for long."""
        for step in STEPS[: STEPS.index(last) + 1]:
            getattr(self, step)(runner, urn)

    @rule(urn=urns, share=st.integers(0, 4))
    def wish(self, urn: str, share: int) -> None:
        """A person wants the next run to begin somewhere."""
        position = Specific(str(self.ends[urn] * share // 4))
        startpoint = Startpoint(JOB, urn, position, NOW, NOW + TTL, "anna@host")
        self.world.store.save_startpoint(startpoint)
        self.wished[urn] = startpoint.id

    def acquire(self, runner: str, urn: str) -> None:
        """A runner takes a dataset, unless another holds it, and recovers what it finds."""
        owner = LeaseOwner.current(runner)
        grant = self.world.store.acquire_leases(JOB, [urn], owner, TTL)
        if urn not in grant.granted:
            return
        self.work[runner, urn] = Work(grant.granted[urn].epoch)
        for stored in self.world.store.load_sequences(JOB, urns=[urn]):
            self.world.committer().recover(stored, grant.granted[urn].epoch)

    def extract(self, runner: str, urn: str) -> None:
        """A runner reads what is new, or what lies behind a startpoint, into two staged files."""
        work = self.work.get((runner, urn))
        before = self.world.store.load_dataset_states(JOB, [urn]).get(urn)
        startpoint = self.world.store.load_startpoints(JOB, [urn]).get(urn)
        if startpoint is not None:
            begin = CommittedRanges(LongWatermark, {"": ((0, int(str(startpoint.position))),)})
            before = begin_at(before, JOB, urn, begin, NOW, [startpoint])
        low = _low(before.watermark if before else None)
        high = self.ends[urn]
        if work is None or work.sequence is not None or (startpoint is None and low >= high):
            return
        self.commits += 1
        commit_id = f"{self.commits:032x}"
        self.planned[commit_id] = (low, high)
        if before is not None and low >= high:
            after = replace(before, version=before.version + 1)
            work.sequence = CommitSequence(
                commit_id, JOB, urn, runner, before.version, (), (), after, ROOT, created_at=NOW
            )
        else:
            work.sequence = self._reading(runner, urn, commit_id, before, low, high)
        if startpoint is not None:
            work.sequence = replace(work.sequence, startpoints=(startpoint.id,))

    def _reading(
        self, runner: str, urn: str, commit_id: str, before: DatasetState | None, low: int, high: int
    ) -> CommitSequence:
        cuts = sorted({low, (low + high) // 2, high})
        units = [
            self.world.unit(commit_id, urn=urn, number=number, low=start, high=end)
            for number, (start, end) in enumerate(pairwise(cuts), 1)
        ]
        return build_sequence(
            commit_id=commit_id,
            job=JOB,
            run_id=runner,
            dataset_urn=urn,
            before=before,
            decision=choose_publishable("full", units),
            output_root=ROOT,
            staging_dirs=[staging(commit_id)],
            now=NOW,
        )

    def prepare(self, runner: str, urn: str) -> None:
        """A runner stores its sequence, or gets the error that it is too late."""
        work = self.work.get((runner, urn))
        if work is None or work.sequence is None or work.is_prepared:
            return
        try:
            self.world.committer().prepare(work.sequence, work.epoch)
            work.is_prepared = True
        except (CommitConflictError, UnfinishedSequenceError):
            del self.work[runner, urn]

    def move_some(self, runner: str, urn: str) -> None:
        """A runner moves its first file and is interrupted, even if another run holds the dataset by now."""
        work = self.work.get((runner, urn))
        if work is None or work.sequence is None or not work.is_prepared:
            return
        first = next(iter(renames_of(work.sequence.steps)), None)
        self.world.storage.make_dirs(f"{ROOT}/main")
        if first is not None and self.world.storage.size(first.source) is not None:
            first.execute(self.world.storage)

    def commit(self, runner: str, urn: str) -> None:
        """A runner publishes its sequence, or gets the error that another finished it."""
        work = self.work.get((runner, urn))
        if work is None or work.sequence is None or not work.is_prepared:
            return
        del self.work[runner, urn]
        try:
            self.world.committer().publish(work.sequence, work.epoch, verify_sources=False)
        except (CommitConflictError, CorruptRecordError, StagedFileLostError):
            return

    @rule(runner=runners)
    def crash(self, runner: str) -> None:
        """A runner dies, wherever it is with all its datasets; its leases run out."""
        self.work = {key: work for key, work in self.work.items() if key[0] != runner}
        self.expire()

    @rule()
    def expire(self) -> None:
        """All leases run out; their holders do not know."""
        self.world.clock.instant += 2 * TTL

    @rule(urn=urns)
    def wipe_staging(self, urn: str) -> None:
        """A prepared sequence loses what it has not moved yet."""
        for stored in self.world.store.load_sequences(JOB, urns=[urn]):
            self.world.storage.delete_tree(staging(stored.id))

    @rule()
    def recover(self) -> None:
        """A third runner takes all that is free and finishes it: then every dataset is whole."""
        self.expire()
        for urn in URNS:
            self.acquire("third", urn)
            self.go_on("third", urn, "commit")
            self.go_on("third", urn, "commit")
            state = self.world.store.load_dataset_states(JOB, [urn]).get(urn)
            assert _low(state.watermark if state else None) == self.ends[urn]
            assert self.world.store.load_startpoints(JOB, [urn]) == {}
            named = {file.path for file in self.world.store.load_snapshot(JOB, urn)}
            ours = [path for path in self.world.storage.walk_files(f"{ROOT}/main") if self._owner(path) == urn]
            assert set(ours) == named, "an orphan stays, or a published file is gone"

    def _owner(self, path: str) -> str:
        stored = self.world.store.load_sequence(path.rpartition("/")[2].partition("-")[0])
        return stored.dataset_urn if stored else ""

    @invariant()
    def snapshots_hold_each_row_below_the_watermark_once(self) -> None:
        states = self.world.store.load_dataset_states(JOB)
        for urn in URNS:
            state = states.get(urn)
            version = state.version if state else 0
            assert version >= self.versions[urn], "a version went down"
            self.versions[urn] = version
            committed = self._committed(urn)
            rows = Counter(row for one in committed for row in range(*self.planned[one.id]))
            assert _published(self.world, urn) == rows
            assert {row for row in rows if row >= _low(state.watermark if state else None)} == set()

    @invariant()
    def startpoints_are_honoured_once_and_lost_never(self) -> None:
        for urn in URNS:
            end = 0
            committed = self._committed(urn)
            for one in committed:
                low, high = self.planned[one.id]
                assert low == end or one.startpoints, "a commit left rows out, or read them again, unasked"
                end = max(low, high)
            consumed = [one for each in committed for one in each.startpoints]
            assert len(consumed) == len(set(consumed)), "a startpoint was honoured twice"
            waiting = {one.id for one in self.world.store.load_startpoints(JOB, [urn]).values()}
            assert waiting == {self.wished[urn]} - {"", *consumed}

    def _committed(self, urn: str) -> list[CommitSequence]:
        """Return what became true, oldest first."""
        stored = self.world.store.load_sequences(JOB, [SequenceState.COMMITTED], [urn])
        return sorted((decode_sequence(one, AS_STORED) for one in stored), key=lambda sequence: sequence.version_read)


def _low(watermark: object) -> int:
    return watermark.value if isinstance(watermark, LongWatermark) else 0


def _published(world: World, urn: str) -> Counter[int]:
    files = world.store.load_snapshot(JOB, urn)
    return Counter(int(row) for file in files for row in world.storage.read(file.path).split())


TestCommits = Commits.TestCase
TestCommits.settings = settings(max_examples=50, stateful_step_count=30)


@pytest.mark.storm
def test_many_commits() -> None:
    run_state_machine_as_test(Commits, settings=settings(max_examples=500, stateful_step_count=30))
