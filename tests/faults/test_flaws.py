"""One test for each flaw of the designs that this project re-implements, by its number in `docs/concepts/commit.md`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.errors import (
    GobblinDagsterError,
    QuarantinedError,
    StagedFileLostError,
    StaleEpochError,
    StepRefusedError,
    StorageError,
)
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.task_state import StagedFile, TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit import (
    Committer,
    RenameFileStep,
    build_sequence,
    choose_publishable,
    encode_sequence,
    read_manifest,
)
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import Fault, FaultPoints, crash_before, fail_with, freeze_while, run_in_child
from gobblin_dagster.testing.protocol.invariants import check_instant, check_recovered, tree_digest
from gobblin_dagster.testing.protocol.power_loss import power_losses
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, JOB, SECOND_BATCH, START, URN, Example
from gobblin_dagster.testing.protocol.schedules import Report, instants, trace_of

STORAGE = LocalStorage()
TTL = timedelta(minutes=1)


@pytest.fixture
def example(scratch: Path) -> Example:
    example = Example(scratch / "lake")
    example.reset()
    return example


def _epoch(store: StateStore, urn: str, runner: str = "test") -> int:
    return store.acquire_leases(JOB, [urn], LeaseOwner.current(runner), TTL).granted[urn].epoch


def _unit(
    example: Example,
    urn: str,
    commit_id: str,
    *,
    low: int = 0,
    high: int = 10,
    actual: int | None = None,
    state: WorkingState = WorkingState.SUCCESSFUL,
    number: int = 1,
) -> TaskState:
    """Stage one file of ten-odd rows, or fail."""
    files: tuple[StagedFile, ...] = ()
    if state is WorkingState.SUCCESSFUL:
        target = f"main/{hashlib.sha256(urn.encode()).hexdigest()[:8]}/{commit_id}-{number}.txt"
        sink = STORAGE.open_new(f"{_staging(example, commit_id)}/{target}")
        sink.write("\n".join(f"{urn}:{position}" for position in range(low, high)).encode())
        digest = sink.finish()
        path = f"{_staging(example, commit_id)}/{target}"
        files = (StagedFile("main", path, target, digest.size_bytes, digest.sha256, high - low),)
    return TaskState(
        work_unit_id=f"wu-{number}",
        dataset_urn=urn,
        state=state,
        attempt="0",
        low=LongWatermark(low),
        expected_high=LongWatermark(high),
        actual_high=LongWatermark(actual if actual is not None else high if files else low),
        rows_read=high - low,
        files=files,
    )


def _staging(example: Example, commit_id: str) -> str:
    return f"{example.output_root}/_gobblin/staging/test/{commit_id}"


def _sequence(example: Example, urn: str, commit_id: str, *units: TaskState, version: int = 0) -> CommitSequence:
    store = example.open_store()
    before = store.load_dataset_states(JOB, [urn]).get(urn)
    assert (before.version if before else 0) == version
    return build_sequence(
        commit_id=commit_id,
        job=JOB,
        run_id="test",
        dataset_urn=urn,
        before=before,
        decision=choose_publishable("successful", units),
        planned_low=LongWatermark(0),
        output_root=example.output_root,
        staging_dirs=[_staging(example, commit_id)],
        now=START,
    )


def _one(example: Example, urn: str, commit_id: str) -> CommitSequence:
    return _sequence(example, urn, commit_id, _unit(example, urn, commit_id))


def _state_of(example: Example, sequence: CommitSequence) -> SequenceState:
    stored = example.open_store().load_sequence(sequence.id)
    assert stored is not None
    return stored.state


class _AfterPrepare(SilentListener):
    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def prepared(self, sequence: CommitSequence) -> None:
        self._action()


def test_f01_file_of_the_same_name_is_never_taken_for_ours(example: Example) -> None:
    sequence = _one(example, "a", "c1")
    older = Path(sequence.files[0].path)
    older.parent.mkdir(parents=True)
    older.write_text("an older file")
    committer = Committer(example.open_store(), STORAGE)
    epoch = _epoch(example.open_store(), "a")
    committer.prepare(sequence, epoch)
    with pytest.raises(QuarantinedError, match="holds other bytes"):
        committer.publish(sequence, epoch, verify_sources=False)
    assert older.read_text() == "an older file"
    assert example.open_store().load_dataset_states(JOB) == {}


def test_f01_target_without_commit_id_is_refused(example: Example) -> None:
    unit = _unit(example, "a", "c1")
    nameless = replace(unit.files[0], target="main/a/part-1.txt")
    with pytest.raises(StepRefusedError, match="lacks the commit id c1"):
        _sequence(example, "a", "c1", replace(unit, files=(nameless,)))


def test_f02_folder_is_never_moved(scratch: Path) -> None:
    folder = scratch / "staging"
    folder.mkdir()
    (folder / "part").write_text("x")
    step = RenameFileStep(str(folder), str(scratch / "final-c1"), 4096, "0" * 64)
    with pytest.raises(StagedFileLostError, match="staging is gone"):
        step.execute(STORAGE)
    assert (folder / "part").exists()


def test_f03_reader_of_the_manifest_never_sees_half_a_batch(example: Example) -> None:
    report = Report.of(instants(example))
    assert report.broken == (), str(report)


def test_f04_frozen_run_cannot_move_the_watermark_back(example: Example) -> None:
    number = trace_of(example).index("store.commit") + 1
    example.reset()
    others = freeze_while(lambda: example.run("B", SECOND_BATCH, hour=1))
    example.run("A", FIRST_BATCH, points=FaultPoints(Fault(number, others)))
    assert check_recovered(example, SECOND_BATCH) == []


def test_f05_second_run_of_a_dataset_is_turned_away(example: Example) -> None:
    turned_away = []

    def watch(number: int, name: str) -> None:
        if name == "store.prepare":
            turned_away.append(not example.run("B", FIRST_BATCH))

    example.run("A", FIRST_BATCH, points=FaultPoints(watch=watch))
    assert turned_away == [True]
    assert check_recovered(example, FIRST_BATCH) == []


def test_f05_run_whose_lease_was_taken_over_cannot_prepare(example: Example) -> None:
    store = example.open_store()
    stale = _epoch(store, "a", "first")
    example.clock.instant += 2 * TTL
    _epoch(store, "a", "second")
    with pytest.raises(StaleEpochError):
        Committer(store, STORAGE).prepare(_one(example, "a", "c1"), stale)
    assert store.load_sequences(JOB) == []


def test_f06_damaged_record_stops_its_own_dataset_only(example: Example) -> None:
    store = example.open_store()
    committer = Committer(store, STORAGE)
    items: list[tuple[StoredSequence, int]] = []
    for urn in ("damaged", "häil:ä/b"):
        sequence = _one(example, urn, f"c-{len(items)}")
        epoch = _epoch(store, urn)
        committer.prepare(sequence, epoch)
        stored = encode_sequence(sequence, AS_STORED)
        torn = replace(stored, body=stored.body[: len(stored.body) // 2]) if urn == "damaged" else stored
        items.append((torn, epoch))
    outcomes = {recovery.dataset_urn: recovery for recovery in committer.recover_all(items)}
    assert outcomes["damaged"].outcome is SequenceState.QUARANTINED
    assert "does not match its digest" in outcomes["damaged"].reason
    assert outcomes["häil:ä/b"].outcome is SequenceState.COMMITTED
    assert set(store.load_dataset_states(JOB)) == {"häil:ä/b"}


def test_f07_dataset_that_cannot_be_redone_is_quarantined_and_others_go_on(example: Example) -> None:
    store = example.open_store()
    healthy, sick = _one(example, "healthy", "c1"), _one(example, "sick", "c2")
    epochs = {urn: _epoch(store, urn) for urn in ("healthy", "sick")}
    for sequence in (healthy, sick):
        Committer(store, STORAGE).prepare(sequence, epochs[sequence.dataset_urn])
    # A file where the target's folder should be: no redo can succeed.
    Path(sick.files[0].path).parent.parent.mkdir(parents=True)
    Path(sick.files[0].path).parent.write_text("in the way")
    committer = Committer(store, STORAGE, redo_limit=2)
    first = committer.recover_all([(stored, epochs[stored.dataset_urn]) for stored in store.load_sequences(JOB)])
    assert {r.dataset_urn: r.outcome for r in first} == {
        "healthy": SequenceState.COMMITTED,
        "sick": SequenceState.PREPARED,
    }
    (second,) = committer.recover_all([(stored, epochs["sick"]) for stored in store.load_sequences(JOB)])
    assert second.outcome is SequenceState.QUARANTINED
    assert "2 redos failed" in second.reason
    assert Path(_staging(example, "c2")).is_dir()


def test_f08_urns_that_look_alike_share_nothing(example: Example) -> None:
    store = example.open_store()
    committer = Committer(store, STORAGE)
    urns = ["a:b", "a.b", "a_b", "a/b", "_a", "..", ""]
    items = [(_one(example, urn, f"c{number}"), _epoch(store, urn)) for number, urn in enumerate(urns)]
    assert committer.publish_all(items) == dict.fromkeys(urns)
    for sequence, _ in items:
        published = read_manifest(STORAGE, example.output_root, JOB, sequence.dataset_urn)
        assert published == list(sequence.files)


def test_f09_power_loss_after_the_commit_takes_no_published_file(example: Example) -> None:
    report = Report.of(s for s in power_losses(example, seed=9) if "power 0 end" in s.name or "store.release" in s.name)
    assert report.schedules >= 2
    assert report.broken == (), str(report)


def test_f10_building_a_sequence_touches_nothing(example: Example) -> None:
    example.run("A", FIRST_BATCH)
    unit = _unit(example, "a", "c1")
    before = tree_digest(example)
    _sequence(example, "a", "c1", unit)
    assert tree_digest(example) == before


def test_f11_failed_publication_leaves_the_state_alone(example: Example) -> None:
    for number, name in enumerate(trace_of(example), 1):
        if name not in {"storage.make_dirs", "storage.size", "storage.move", "storage.sync_dir", "store.commit"}:
            continue
        example.reset()
        with pytest.raises((GobblinDagsterError, OSError)):
            example.run("A", FIRST_BATCH, points=FaultPoints(Fault(number, fail_with(5))))
        assert example.open_store().load_dataset_states(JOB) == {}, f"{number} {name}"


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_f12_failed_work_unit_leaves_a_gap_that_is_read_again_alone(example: Example, failed: int) -> None:
    store = example.open_store()
    committer = Committer(store, STORAGE)
    epoch = _epoch(store, "a")
    states = [WorkingState.FAILED if number == failed else WorkingState.SUCCESSFUL for number in (1, 2, 3)]
    units = [
        _unit(example, "a", "c1", low=10 * (n - 1), high=10 * n, state=state, number=n)
        for n, state in enumerate(states, 1)
    ]
    first = _sequence(example, "a", "c1", *units)
    assert committer.publish_all([(first, epoch)]) == {"a": None}
    gap = 10 * (failed - 1)
    state = store.load_dataset_states(JOB)["a"]
    assert state.watermark == LongWatermark(gap)
    assert state.failed_ranges == (f"[{gap}, {gap + 10})",)
    again = _sequence(example, "a", "c2", _unit(example, "a", "c2", low=gap, high=gap + 10), version=1)
    assert committer.publish_all([(again, epoch)]) == {"a": None}
    state = store.load_dataset_states(JOB)["a"]
    assert state.watermark == LongWatermark(30)
    rows = [row for file in store.load_snapshot(JOB, "a") for row in Path(file.path).read_text().splitlines()]
    assert sorted(rows) == sorted(f"a:{position}" for position in range(30))


def test_f13_watermark_is_what_was_flushed_not_what_was_planned(example: Example) -> None:
    sequence = _sequence(example, "a", "c1", _unit(example, "a", "c1", high=100, actual=70))
    assert sequence.after.watermark == LongWatermark(70)


def test_f14_staging_stays_until_the_sequence_has_ended(example: Example) -> None:
    store = example.open_store()
    sequence = _one(example, "a", "c1")
    source = Path(_staging(example, "c1"))
    epoch = _epoch(store, "a")
    # The folder of the target is made read-only by a file in its place, until the operator removes it.
    blocker = Path(example.output_root, "main")
    committer = Committer(store, STORAGE, listener=_AfterPrepare(lambda: blocker.write_text("in the way")))
    assert isinstance(committer.publish_all([(sequence, epoch)])["a"], StorageError)
    assert source.is_dir()
    blocker.unlink()
    (recovery,) = committer.recover_all([(stored, epoch) for stored in store.load_sequences(JOB)])
    assert recovery.outcome is SequenceState.COMMITTED
    assert not source.exists()


def test_f14_killed_run_leaves_what_the_next_one_needs(example: Example) -> None:
    number = trace_of(example).index("storage.move") + 2
    example.reset()
    run_in_child(lambda: example.run("A", FIRST_BATCH, points=FaultPoints(Fault(number, crash_before))))
    assert check_instant(example)[0] == []
    example.run("B", FIRST_BATCH, hour=1)
    assert check_recovered(example, FIRST_BATCH) == []
    assert len(example.open_store().load_snapshot(JOB, URN)) == 3
