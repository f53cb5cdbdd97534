from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.storage.local import TEMP_PREFIX
from gobblin_dagster.testing.faults import Fault, FaultPoints, Halted, counted_storage, halt_before
from gobblin_dagster.testing.protocol.invariants import check_recovered
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, Example
from gobblin_dagster.testing.protocol.storages import StorageKind, StorageSetup, late_listing, make_storage


@pytest.mark.parametrize("kind", ["local", "memory", "copies"])
def test_example_is_played_on_each_ground(tmp_path: Path, kind: StorageKind) -> None:
    example = Example(tmp_path / "lake", "files", setup=make_storage(kind, str(tmp_path / "lake")))
    for _ in range(2):
        example.reset()
        assert example.run("A", FIRST_BATCH)
        assert check_recovered(example, FIRST_BATCH) == []


def test_copy_may_be_cut_off_before_its_source_is_deleted() -> None:
    setup = make_storage("copies", "")
    setup.storage.put_if_absent("/lake/a", b"1")
    storage = setup.over(counted_storage(setup.storage, FaultPoints(Fault(3, halt_before))))
    with pytest.raises(Halted):
        storage.move("/lake/a", "/lake/b")
    assert setup.storage.list_names("/lake") == ["a", "b"]
    assert not storage.is_move_atomic


def test_copy_never_overwrites() -> None:
    setup = make_storage("copies", "")
    for name in ("a", "b"):
        setup.storage.put_if_absent(f"/lake/{name}", name.encode())
    with pytest.raises(FileExistsError):
        setup.over(setup.storage).move("/lake/a", "/lake/b")
    assert setup.storage.read("/lake/b") == b"b"


def test_late_listing_shows_what_was_there_when_asked_before() -> None:
    setup = make_storage("memory", "")
    storage = StorageSetup(setup.root, setup.kind, setup.storage, late_listing).over(setup.storage)
    storage.put_if_absent("/lake/a", b"")
    assert storage.list_names("/lake") == []
    assert storage.list_names("/lake") == ["a"]


def test_digest_of_files_in_memory_tells_each_name_and_byte() -> None:
    storage = MemoryStorage()
    changes: list[Callable[[], object]] = [
        partial(storage.make_dirs, "/lake/empty"),
        partial(storage.put_if_absent, "/lake/a", b"1"),
        partial(storage.put_if_absent, f"/lake/{TEMP_PREFIX}b", b"1"),
        partial(storage.replace, "/lake/a", b"2"),
        partial(storage.move, "/lake/a", "/lake/c"),
    ]
    seen = [storage.digest()]
    for change in changes:
        change()
        seen.append(storage.digest())
    assert len({*seen}) == len(changes) + 1
    storage.delete_tree("/lake")
    assert storage.digest() == seen[0]
