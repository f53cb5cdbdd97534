from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.testing.faults import Fault, FaultPoints, Halted, counted_storage, halt_before
from gobblin_dagster.testing.protocol.invariants import check_recovered
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, Example
from gobblin_dagster.testing.protocol.storages import Ground, GroundKind, late_listing, make_ground


@pytest.mark.parametrize("kind", ["local", "memory", "copies"])
def test_example_is_played_on_each_ground(tmp_path: Path, kind: GroundKind) -> None:
    example = Example(tmp_path / "lake", "files", ground=make_ground(kind, str(tmp_path / "lake")))
    for _ in range(2):
        example.reset()
        assert example.run("A", FIRST_BATCH)
        assert check_recovered(example, FIRST_BATCH) == []


def test_copy_may_be_cut_off_before_its_source_is_deleted() -> None:
    ground = make_ground("copies", "")
    ground.storage.put_if_absent("/lake/a", b"1")
    storage = ground.over(counted_storage(ground.storage, FaultPoints(Fault(3, halt_before))))
    with pytest.raises(Halted):
        storage.move("/lake/a", "/lake/b")
    assert ground.storage.list_names("/lake") == ["a", "b"]
    assert not storage.is_move_atomic


def test_copy_never_overwrites() -> None:
    ground = make_ground("copies", "")
    for name in ("a", "b"):
        ground.storage.put_if_absent(f"/lake/{name}", name.encode())
    with pytest.raises(FileExistsError):
        ground.over(ground.storage).move("/lake/a", "/lake/b")
    assert ground.storage.read("/lake/b") == b"b"


def test_late_listing_shows_what_was_there_when_asked_before() -> None:
    ground = make_ground("memory", "")
    storage = Ground(ground.root, ground.kind, ground.storage, late_listing).over(ground.storage)
    storage.put_if_absent("/lake/a", b"")
    assert storage.list_names("/lake") == []
    assert storage.list_names("/lake") == ["a"]
