from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.state.files.log import KEPT_VERSIONS, VersionLog
from gobblin_dagster.storage import MemoryStorage


def log_of(versions: int, storage: MemoryStorage | None = None) -> VersionLog:
    log = VersionLog(storage or MemoryStorage(), "/log")
    for version in range(1, versions + 1):
        assert log.append(version, str(version).encode())
    return log


def test_empty_log_has_version_zero() -> None:
    assert log_of(0).read_newest() == (0, b"")


def test_append_is_refused_where_the_version_exists() -> None:
    log = log_of(3)
    assert not log.append(3, b"other")
    assert log.read_newest() == (3, b"3")


def test_old_versions_are_forgotten_without_gaps_and_never_the_newest() -> None:
    log = log_of(5 * KEPT_VERSIONS)
    names = log.storage.list_names("/log")
    kept = [int(name[:20]) for name in names]

    assert KEPT_VERSIONS <= len(kept) < 2 * KEPT_VERSIONS
    assert kept == list(range(kept[0], 5 * KEPT_VERSIONS + 1))


def test_forgetting_that_is_cut_short_leaves_no_gap_for_a_sleeper() -> None:
    class Dying(MemoryStorage):
        deletions = 0

        def delete(self, path: str) -> None:
            self.deletions += 1
            if self.deletions == 10:
                raise KeyboardInterrupt
            super().delete(path)

    log = log_of(2 * KEPT_VERSIONS - 1, Dying())
    with pytest.raises(KeyboardInterrupt):
        log.append(2 * KEPT_VERSIONS, b"the one that begins to forget")
    kept = [int(name[:20]) for name in log.storage.list_names("/log")]
    assert kept == list(range(10, 2 * KEPT_VERSIONS + 1))


@pytest.mark.parametrize("base", [0, 1, 40], ids=["saw nothing", "saw the first", "saw one in the middle"])
def test_writer_that_slept_past_the_forgetting_loses_and_leaves_nothing(base: int) -> None:
    log = log_of(3 * KEPT_VERSIONS)
    before = log.storage.list_names("/log")
    assert log.path(base + 1) not in before

    assert not log.append(base + 1, b"from a dream")
    assert log.storage.list_names("/log") == before


def test_writer_that_died_in_its_sleep_is_never_read_nor_built_upon() -> None:
    log = log_of(3 * KEPT_VERSIONS)
    log.storage.put_if_absent(log.path(6), b"left behind")

    assert log.read_newest() == (3 * KEPT_VERSIONS, str(3 * KEPT_VERSIONS).encode())
    assert not log.append(7, b"built upon it")
    assert log.append(3 * KEPT_VERSIONS + 1, b"next")


def test_files_of_other_programs_are_no_versions() -> None:
    log = log_of(2)
    for name in ("00000000000000000003 (conflicted copy).json", "3.json", "notes.txt"):
        log.storage.put_if_absent(f"/log/{name}", b"alien")
    assert log.read_newest() == (2, b"2")


def test_read_lists_again_where_the_version_was_forgotten_meanwhile() -> None:
    class Overtaken(MemoryStorage):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.times = times

        def read(self, path: str) -> bytes:
            if self.times > 0:
                self.times -= 1
                raise FileNotFoundError(path)
            return super().read(path)

    assert log_of(2, Overtaken(times=3)).read_newest() == (2, b"2")
    with pytest.raises(TransientError, match="/log changes faster"):
        log_of(2, Overtaken(times=1_000)).read_newest()


def test_racing_writers_lose_no_change() -> None:
    log = log_of(0)

    def add_one_often(_: int) -> None:
        for _ in range(100):
            while True:
                version, content = log.read_newest()
                if log.append(version + 1, str(int(content or b"0") + 1).encode()):
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_one_often, range(4)))
    assert log.read_newest() == (400, b"400")


def test_write_wins_over_what_was_put_meanwhile() -> None:
    class Contended(MemoryStorage):
        rivals = 0

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if self.rivals > 0:
                self.rivals -= 1
                super().put_if_absent(path, b"rival")
            return super().put_if_absent(path, data)

    storage = Contended()
    log = VersionLog(storage, "/log")
    storage.rivals = 3
    log.write(b"ours")
    assert log.read_newest() == (4, b"ours")
    storage.rivals = 1_000
    with pytest.raises(TransientError, match="/log changes faster"):
        log.write(b"never")
