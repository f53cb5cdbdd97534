from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from gobblin_dagster.core.errors import CommitStateUnknownError, TransientError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    Halted,
    counted_storage,
    crash_after,
    crash_before,
    fail_with,
    freeze_while,
    halt_after,
    halt_before,
    lose_answer,
    run_in_child,
    tear,
)


def _put_twice(action: Action, inner: Storage | None = None) -> Storage:
    """Put files `/1` and `/2`, the second one struck."""
    inner = inner or MemoryStorage()
    storage = counted_storage(inner, FaultPoints(Fault(2, action)))
    storage.put_if_absent("/1", b"")
    storage.put_if_absent("/2", b"")
    return inner


def test_every_call_is_counted_also_those_of_a_file_being_written() -> None:
    seen: list[tuple[int, str]] = []
    points = FaultPoints(watch=lambda number, name: seen.append((number, name)))
    storage = counted_storage(MemoryStorage(), points)
    sink = storage.open_new("/a/b")
    sink.write(b"x")
    sink.finish()
    assert storage.is_move_atomic
    assert storage.size("/a/b") == 1
    assert points.trace == ["storage.open_new", "sink.write", "sink.finish", "storage.size"]
    assert seen == list(enumerate(points.trace, 1))


def test_failure_takes_the_place_of_the_call() -> None:
    inner = MemoryStorage()
    with pytest.raises(OSError, match="No space left") as caught:
        _put_twice(fail_with(errno.ENOSPC), inner)
    assert caught.value.errno == errno.ENOSPC
    assert inner.list_names("/") == ["1"]


def test_lost_answer_comes_after_the_call() -> None:
    inner = MemoryStorage()
    with pytest.raises(TimeoutError):
        _put_twice(lose_answer, inner)
    assert inner.list_names("/") == ["1", "2"]


@pytest.mark.parametrize(
    ("action", "name", "error"),
    [
        (fail_with(errno.EIO), "store.prepare", TransientError),
        (lose_answer, "store.prepare", TransientError),
        (lose_answer, "store.commit", CommitStateUnknownError),
        (lose_answer, "store.commit_all", CommitStateUnknownError),
    ],
)
def test_stores_fail_with_errors_of_stores(action: Action, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        action(name, lambda: None)


def test_frozen_call_is_made_after_the_others() -> None:
    order: list[str] = []
    storage = MemoryStorage()
    _put_twice(freeze_while(lambda: order.extend(storage.list_names("/"))), storage)
    assert (order, storage.list_names("/")) == (["1"], ["1", "2"])


@pytest.mark.parametrize(
    ("work", "status"),
    [
        (lambda: None, 0),
        (lambda: _put_twice(crash_before), CRASHED),
        (lambda: _put_twice(crash_after), CRASHED),
        (lambda: 1 // 0, 1),
    ],
    ids=["ends well", "crash before", "crash after", "raises"],
)
def test_child_tells_how_it_ended(work: Callable[[], object], status: int) -> None:
    assert run_in_child(work) == status


def test_no_finally_runs_after_a_crash() -> None:
    reader, writer = os.pipe()

    def work() -> None:
        try:
            _put_twice(crash_before)
        finally:
            os.write(writer, b"finally ran")

    assert run_in_child(work) == CRASHED
    os.close(writer)
    assert os.read(reader, 100) == b""
    os.close(reader)


@pytest.mark.parametrize(("action", "left"), [(halt_before, ["1"]), (halt_after, ["1", "2"])])
def test_nothing_of_a_halted_run_gets_through_any_more(action: Action, left: list[str]) -> None:
    inner = MemoryStorage()
    storage = counted_storage(inner, FaultPoints(Fault(2, action)))
    storage.put_if_absent("/1", b"")
    with pytest.raises(Halted):
        storage.put_if_absent("/2", b"")
    with pytest.raises(Halted):
        storage.delete("/1")
    assert inner.list_names("/") == left


@pytest.mark.parametrize(("share", "written"), [(0.0, b""), (0.5, b"12"), (1.0, b"123")])
def test_torn_write_leaves_a_part_and_never_all(share: float, written: bytes) -> None:
    inner = MemoryStorage()
    sink = counted_storage(inner, FaultPoints(Fault(2, tear(share, halt_before)))).open_new("/file")
    with pytest.raises(Halted):
        sink.write(b"1234")
    assert inner.read("/file") == written


def test_torn_put_leaves_a_hidden_part_of_the_file_it_is_made_of() -> None:
    inner = MemoryStorage()
    with pytest.raises(OSError, match="No space left"):
        _put_content(tear(0.5, fail_with(errno.ENOSPC)), inner)
    assert inner.list_names("/lake") == []
    assert inner.size("/lake/.tmp-torn-2") == 2


def test_call_that_writes_nothing_is_not_torn() -> None:
    with pytest.raises(Halted):
        counted_storage(MemoryStorage(), FaultPoints(Fault(1, tear(0.5, halt_before)))).size("/file")


def _put_content(action: Action, inner: Storage) -> None:
    counted_storage(inner, FaultPoints(Fault(1, action))).put_if_absent("/lake/file", b"1234")
