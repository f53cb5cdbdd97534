from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import (
    GroupHeldBackError,
    StagedFileLostError,
    StaleEpochError,
    StorageError,
    UsageError,
)
from gobblin_dagster.engine.commit.batches import (
    MOST_DATASETS,
    MOST_FILES,
    Leased,
    each,
    share_transactions,
    without_faults,
)
from gobblin_dagster.engine.commit.group import GroupCommitter
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.manifest import manifest_dir
from gobblin_dagster.storage import LocalStorage, MemoryStorage
from gobblin_dagster.testing.faults import Action, Fault, FaultPoints, counted_store, fail_with, lose_answer
from tests.unit.engine.commit.test_steps import MarkStep
from tests.unit.engine.commit.world import JOB, ROOT, World

URNS = ("a", "b", "c", "d")


class Told(SilentListener):
    """Counts the calls by event and dataset."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def prepared(self, sequence: CommitSequence) -> None:
        self.calls["prepared", sequence.dataset_urn] += 1

    def committed(self, sequence: CommitSequence) -> None:
        self.calls["committed", sequence.dataset_urn] += 1


def _items(world: World) -> list[Leased]:
    return [(world.sequence(f"c-{urn}", urn=urn), world.epoch(urn)) for urn in URNS]


def _striking(world: World, name: str, action: Action) -> FaultPoints:
    points = FaultPoints(Fault(1, action, name))
    world.store = counted_store(world.store, points)
    return points


# -- which datasets are batched ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("datasets", "sizes"), [(1, [1]), (3, [1, 1, 1]), (9, [3, 3, 3]), (100, [32, 32, 32, 4]), (0, [])]
)
def test_small_datasets_are_spread_over_threads_first_and_batched_then(datasets: int, sizes: list[int]) -> None:
    sequence = World().sequence()
    items = [(replace(sequence, id=str(number)), 1) for number in range(datasets)]
    assert [len(batch) for batch in share_transactions(items, 3, MemoryStorage())] == sizes
    assert max(sizes, default=0) <= MOST_DATASETS


def test_datasets_that_take_long_stand_alone() -> None:
    small = World().sequence()
    large = replace(small, id="large", steps=small.steps * (MOST_FILES + 1))
    loading = replace(small, id="loading", steps=(MarkStep("/lake/mark"),))
    others = [(replace(small, id=str(number)), 1) for number in range(4)]
    batches = share_transactions([*others[:2], (large, 1), (loading, 1), *others[2:]], 1, MemoryStorage())
    assert batches == [[(large, 1)], [(loading, 1)], others]


def test_storage_that_copies_files_has_no_batches() -> None:
    storage = LocalStorage()
    storage.is_move_atomic = False
    assert [len(batch) for batch in share_transactions(_items(World()), 1, storage)] == [1, 1, 1, 1]


def test_errors_are_kept_by_dataset() -> None:
    items = _items(World())
    fault = ValueError("b")

    def work(sequence: CommitSequence, _: int) -> None:
        if sequence.dataset_urn == "b":
            raise fault

    errors = each(items, work)
    assert errors == {"a": None, "b": fault, "c": None, "d": None}
    assert without_faults(items, errors) == [items[0], *items[2:]]


# -- how the committer treats a batch ----------------------------------------------------------------------------------
def test_datasets_of_a_batch_share_two_transactions() -> None:
    world, told = World(), Told()
    items = _items(world)
    points = FaultPoints()
    world.store = counted_store(world.store, points)

    assert world.committer(parallelism=1, listener=told).publish_all(items) == dict.fromkeys(URNS)

    assert [name for name in points.trace if "prepare" in name or "commit" in name] == [
        "store.prepare_all",
        "store.commit_all",
    ]
    assert told.calls == Counter({(event, urn): 1 for event in ("prepared", "committed") for urn in URNS})
    assert {world.state_of(sequence) for sequence, _ in items} == {SequenceState.COMMITTED}


def test_dataset_that_was_taken_over_leaves_the_batch() -> None:
    world = World()
    items = _items(world)
    world.clock.instant = world.clock.instant.replace(hour=9)
    world.epoch("b", "run-2")

    errors = world.committer(parallelism=1).publish_all(items)

    assert isinstance(errors.pop("b"), StaleEpochError)
    assert errors == dict.fromkeys(("a", "c", "d"))
    assert set(world.store.load_dataset_states("job")) == {"a", "c", "d"}


@pytest.mark.parametrize("is_group", [False, True], ids=["each on its own", "all or none"])
def test_prepared_dataset_that_must_not_be_published_is_taken_back(*, is_group: bool) -> None:
    world = World()
    items, fault = _items(world), UsageError(problem="another job did")
    seen: list[SequenceState] = []

    def look(sequences: Sequence[CommitSequence]) -> dict[str, Exception]:
        seen.extend(world.state_of(one) for one in sequences)
        return {"b": fault}

    committer = world.committer(parallelism=1)
    publish_all = GroupCommitter(committer, world.store).publish_all if is_group else committer.publish_all
    errors = publish_all(items, look)

    assert seen == [SequenceState.PREPARED] * len(items)
    assert errors.pop("b") is fault
    assert all(isinstance(error, GroupHeldBackError) is is_group for error in errors.values())
    assert set(world.store.load_dataset_states("job")) == (set() if is_group else {"a", "c", "d"})
    ended = SequenceState.ABORTED if is_group else SequenceState.COMMITTED
    assert [world.state_of(one) for one, _ in items] == [ended, SequenceState.ABORTED, ended, ended]
    assert not list(world.storage.walk_files("/lake/_gobblin/staging/run-1/c-b"))


def test_dataset_with_a_lost_file_is_undone_and_the_others_are_committed() -> None:
    world = World()
    items = _items(world)
    (source,) = world.storage.walk_files("/lake/_gobblin/staging/run-1/c-c")
    world.storage.delete(source)

    errors = world.committer(parallelism=1).publish_all(items)

    assert isinstance(errors.pop("c"), StagedFileLostError)
    assert errors == dict.fromkeys(("a", "b", "d"))
    assert world.state_of(items[2][0]) is SequenceState.ABORTED


@pytest.mark.parametrize("action", [fail_with(5), lose_answer], ids=["refused", "answer lost"])
@pytest.mark.parametrize("name", ["store.prepare_all", "store.commit_all"])
def test_error_of_a_shared_transaction_costs_no_dataset(name: str, action: Action) -> None:
    world, told = World(), Told()
    items = _items(world)
    points = _striking(world, name, action)

    errors = world.committer(parallelism=1, listener=told).publish_all(items)

    assert points.is_struck
    assert errors == dict.fromkeys(URNS)
    assert told.calls == Counter({(event, urn): 1 for event in ("prepared", "committed") for urn in URNS})
    assert {world.state_of(sequence) for sequence, _ in items} == {SequenceState.COMMITTED}
    assert len(world.visible()) == len(URNS)


# -- folders -----------------------------------------------------------------------------------------------------------
class Foldered(MemoryStorage):
    """Makes many folders at once, except the one that is at fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.asked: list[list[str]] = []

    def make_all_dirs(self, paths: Collection[str]) -> dict[str, OSError | None]:
        self.asked.append(sorted(set(paths)))
        for path in set(paths) - {self.fault}:
            self.make_dirs(path)
        return {path: OSError(5, "Input/output error", path) if path == self.fault else None for path in paths}


def test_folders_of_a_batch_are_made_together_and_their_faults_are_those_of_their_datasets() -> None:
    world = World(Foldered("/lake/main"))
    items = _items(world)
    errors = world.committer(parallelism=1).publish_all(items)
    assert {type(error) for error in errors.values()} == {StorageError}
    assert "publish sequence c-a, at /lake/main" in str(errors["a"])
    assert world.visible() == []
    assert {world.state_of(sequence) for sequence, _ in items} == {SequenceState.PREPARED}


def test_folder_of_a_manifest_that_cannot_be_made_leaves_the_manifest_to_the_next_run() -> None:
    fault = manifest_dir(ROOT, JOB, "b")
    storage = Foldered(fault)
    world = World(storage)
    committer = world.committer(parallelism=1)
    assert committer.publish_all(_items(world)) == dict.fromkeys(URNS)
    assert storage.asked == [["/lake/main"], sorted(manifest_dir(ROOT, JOB, urn) for urn in URNS)]
    assert list(committer.unseen) == ["b"]
    assert fault in str(committer.unseen["b"])
    assert storage.list_names(manifest_dir(ROOT, JOB, "a")) == ["0000000001.json"]
    assert storage.list_names(fault) == []
