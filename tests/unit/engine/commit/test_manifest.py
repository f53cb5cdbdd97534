from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import Rollback
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.engine.commit import manifest
from gobblin_dagster.engine.commit.manifest import (
    fill_manifests,
    manifest_dir,
    manifest_path,
    read_manifest,
    read_schemas,
)
from gobblin_dagster.testing.faults import FaultPoints, counted_storage
from tests.unit.engine.commit.world import JOB, ROOT, World


def _publish(world: World, *, snapshots: int, urn: str = "a") -> None:
    for number in range(1, snapshots + 1):
        unit = world.unit(f"c{number}", urn=urn, low=10 * number, high=10 * number + 10, branches=("main", "copy"))
        sequence = world.sequence(f"c{number}", urn=urn, units=[unit])
        assert world.committer().publish_all([(sequence, world.epoch(urn))]) == {urn: None}


def test_reader_folds_all_snapshots() -> None:
    world = World()
    _publish(world, snapshots=3)
    files = read_manifest(world.storage, f"{ROOT}/", JOB, "a")
    assert files == world.store.load_snapshot(JOB, "a")
    assert [(file.branch, file.snapshot) for file in files] == [(b, n) for b in ("copy", "main") for n in (1, 2, 3)]


def test_reader_of_an_older_snapshot_sees_what_it_was() -> None:
    world = World()
    _publish(world, snapshots=3)
    assert read_manifest(world.storage, ROOT, JOB, "a", 2) == world.store.load_snapshot(JOB, "a", 2)


def test_nothing_published_is_an_empty_snapshot() -> None:
    assert read_manifest(World().storage, ROOT, JOB, "a") == []


@pytest.mark.parametrize(("snapshots", "known"), [(0, "nothing was published"), (1, "the newest is 1")])
def test_unknown_snapshot_is_refused(snapshots: int, known: str) -> None:
    world = World()
    _publish(world, snapshots=snapshots)
    with pytest.raises(UsageError, match=f"has no snapshot 7: {known}"):
        read_manifest(world.storage, ROOT, JOB, "a", 7)


def test_unfinished_and_foreign_names_are_not_read() -> None:
    world = World()
    _publish(world, snapshots=1)
    for name in ("0000000009.json.tmp", "notes.txt", "9.json"):
        world.storage.put_if_absent(f"{manifest_dir(ROOT, JOB, 'a')}/{name}", b"{")
    assert len(read_manifest(world.storage, ROOT, JOB, "a")) == 2


def test_missing_manifests_are_written_before_the_next_one() -> None:
    world = World()
    _publish(world, snapshots=2)
    contents = {}
    for number in (1, 2):
        path = manifest_path(ROOT, JOB, "a", number)
        contents[path] = world.storage.read(path)
        world.storage.delete(path)
    unit = world.unit("c3", low=100, high=110)
    assert world.committer().publish_all([(world.sequence("c3", units=[unit]), world.epoch())]) == {"a": None}
    assert {path: world.storage.read(path) for path in contents} == contents
    assert len(read_manifest(world.storage, ROOT, JOB, "a")) == 5


def test_fill_writes_what_a_crash_left_out_and_nothing_else() -> None:
    world = World()
    _publish(world, snapshots=2)
    path = manifest_path(ROOT, JOB, "a", 2)
    content = world.storage.read(path)
    world.storage.delete(path)
    states = world.store.load_dataset_states(JOB)
    states["empty"] = replace(states["a"], dataset_urn="empty", snapshot=0)
    assert fill_manifests(world.storage, world.store, ROOT, JOB, states) == ["a"]
    assert world.storage.read(path) == content
    assert fill_manifests(world.storage, world.store, ROOT, JOB, states) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "Expecting property name"),
        (b"[]", "expected .*, got '\\[\\]'"),
        (b'{"format":[],"snapshot":1,"previous":0}', "expected format Manifest/3"),
        (b'{"format":"Manifest/4","snapshot":1,"previous":0}', "expected format Manifest/3"),
        (b'{"format":"Manifest/1","snapshot":1,"previous":1}', "previous"),
        (b'{"format":"Manifest/1","snapshot":1,"previous":0}', "branches"),
        (b'{"format":"Manifest/1","snapshot":1,"previous":0,"branches":{"main":[{"path":"x"}]}}', "size_bytes"),
    ],
)
def test_damaged_manifest_is_refused(content: bytes, problem: str) -> None:
    world = World()
    world.storage.put_if_absent(manifest_path(ROOT, JOB, "a", 1), content)
    with pytest.raises(CorruptRecordError, match=problem):
        read_manifest(world.storage, ROOT, JOB, "a")


@pytest.mark.parametrize(
    "change",
    [
        {"removed": 5},
        {"removed": "/etc/passwd"},
        {"removed": [[]]},
        {"whole": {"a": 1}},
        {"previous": False},
        {"schemas": None},
        {"branches": None},
        {"branches": {"main": {}}},
        {"branches": {"main": ["x"]}},
        *(
            {"branches": {"main": [{"path": "x", "size_bytes": 1, "rows": 1, "sha256": "", **wrong}]}}
            for wrong in (
                {"path": ""},
                {"path": "a\0"},
                {"path": ["a"]},
                {"rows": "1"},
                {"rows": -1},
                {"rows": 1.5},
                {"size_bytes": True},
                {"size_bytes": [1]},
                {"sha256": None},
                {"snapshot": "1"},
            )
        ),
    ],
    ids=str,
)
def test_manifest_with_a_value_of_another_kind_is_damaged(change: dict[str, object]) -> None:
    world, fault = _altered(change)
    with pytest.raises(CorruptRecordError, match=r"0000000001\.json"):
        read_manifest(world.storage, ROOT, JOB, "a")
    assert fault.startswith("it cannot be read: ")


@pytest.mark.parametrize("change", [{"job": "other"}, {"dataset_urn": "b"}, {"dataset_urn": None}], ids=str)
def test_manifest_of_another_dataset_is_refused(change: dict[str, object]) -> None:
    world, fault = _altered(change)
    for read in (read_manifest, read_schemas):
        with pytest.raises(CorruptRecordError, match="it is that of dataset"):
            read(world.storage, ROOT, JOB, "a")
    assert "of another dataset" in fault


def _altered(change: dict[str, object]) -> tuple[World, str]:
    """Return a world with one manifest, of which somebody has changed some values, and what `verify` says about it."""
    world = World()
    _publish(world, snapshots=1)
    path = manifest_path(ROOT, JOB, "a", 1)
    content = world.storage.read(path)
    world.storage.delete(path)
    world.storage.put_if_absent(path, json.dumps(json.loads(content) | change).encode())
    return world, manifest.compare_manifest(world.storage.read(path), [content], ROOT, 1).fault


@pytest.mark.parametrize("number", [1, 2])
def test_file_that_is_listed_twice_is_refused(number: int) -> None:
    world = World()
    _publish(world, snapshots=2)
    first, second = (json.loads(world.storage.read(manifest_path(ROOT, JOB, "a", one))) for one in (1, 2))
    path = manifest_path(ROOT, JOB, "a", 2)
    second["branches"]["main"] += (first if number == 1 else second)["branches"]["main"]
    world.storage.delete(path)
    world.storage.put_if_absent(path, json.dumps(second).encode())
    with pytest.raises(CorruptRecordError, match="a file is listed twice"):
        read_manifest(world.storage, ROOT, JOB, "a")


def test_deleted_manifest_of_the_chain_is_named() -> None:
    world = World()
    _publish(world, snapshots=3)
    world.storage.delete(manifest_path(ROOT, JOB, "a", 2))
    with pytest.raises(CorruptRecordError, match=r"0000000002\.json"):
        read_manifest(world.storage, ROOT, JOB, "a")


def test_newest_snapshot_is_read_from_few_manifests_however_often_it_was_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "WHOLE_EVERY", 4)
    world = World()
    for turn in range(6):
        unit = world.unit(f"c{turn}", low=100 * turn, high=100 * turn + 10)
        assert world.committer().publish_all([(world.sequence(f"c{turn}", units=[unit]), world.epoch())]) == {"a": None}
        before = world.state()
        assert before is not None
        number = before.snapshot + 1
        # To what a snapshot just below a whole one held.
        rollbacks = (*before.rollbacks, Rollback(number, number - 2 or 1))
        after = replace(before, version=before.version + 1, snapshot=number, rollbacks=rollbacks)
        sequence = CommitSequence.to(after, commit_id=f"back{turn}", output_root=ROOT)
        assert world.committer().publish_all([(sequence, world.epoch())]) == {"a": None}
    points = FaultPoints()
    files = read_manifest(counted_storage(world.storage, points), ROOT, JOB, "a")
    assert files == world.store.load_snapshot(JOB, "a")
    assert points.trace.count("storage.read") == 1
    unit = world.unit("d", low=1000, high=1010)
    assert world.committer().publish_all([(world.sequence("d", units=[unit]), world.epoch())]) == {"a": None}
    points = FaultPoints()
    assert read_manifest(counted_storage(world.storage, points), ROOT, JOB, "a") == world.store.load_snapshot(JOB, "a")
    assert points.trace.count("storage.read") == 2


@pytest.mark.parametrize("schemas", ['["x"]', '{"main": 1}'])
def test_manifest_with_damaged_schemas_is_refused(schemas: str) -> None:
    world = World()
    body = f'{{"format":"Manifest/3","snapshot":1,"previous":0,"branches":{{}},"schemas":{schemas}}}'
    world.storage.put_if_absent(manifest_path(ROOT, JOB, "a", 1), body.encode())
    with pytest.raises(CorruptRecordError, match="schemas are"):
        read_schemas(world.storage, ROOT, JOB, "a")
