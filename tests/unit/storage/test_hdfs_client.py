"""Waiting for a NameNode: until its safe mode ends, and for answers that do not come."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hdfs_native import Client

from gobblin_dagster.storage._hdfs_client import PatientClient, hdfs_errors


@dataclass
class Cluster:
    """A NameNode in safe mode until some moment, and the time, which only waiting moves."""

    safe_until: float
    now: float = 100.0
    renamed: list[tuple[str, str]] = field(default_factory=list)

    def client(self) -> PatientClient:
        return PatientClient(self, lambda: self.now, self.wait)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def rename(self, source: str, target: str) -> None:
        if source == "/gone":
            raise FileNotFoundError(source)
        if self.now < self.safe_until:
            raise RuntimeError('RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot rename")')
        self.renamed.append((source, target))


def test_call_waits_for_the_end_of_safe_mode_and_is_done_once() -> None:
    cluster = Cluster(safe_until=130)
    cluster.client().rename("/a", "/b")
    assert (cluster.renamed, cluster.now) == ([("/a", "/b")], 130)


def test_all_calls_share_one_wait_where_safe_mode_stays() -> None:
    cluster = Cluster(safe_until=1_000)
    client = cluster.client()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="SafeMode"):
            client.rename("/a", "/b")
        assert 160 <= cluster.now <= 162
    cluster.now = 999  # long after: a new one is waited for again
    client.rename("/a", "/b")
    assert cluster.now == 1_000


def test_other_errors_are_raised_at_once() -> None:
    cluster = Cluster(safe_until=1_000)
    with pytest.raises(FileNotFoundError):
        cluster.client().rename("/gone", "/b")
    assert cluster.now == 100


@pytest.mark.parametrize("question", ["get_file_info", "list_status", "read"])
def test_question_that_the_namenode_takes_and_never_answers_is_given_up(question: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"hdfs://127.0.0.1:{silent.getsockname()[1]}"
        client = PatientClient(Client(url), answer_s=(0.4, 0.1))
        begin = time.monotonic()
        with (
            pytest.raises(OSError, match=r"takes calls, but gives no answer in 0.4 seconds: .*/a") as told,
            hdfs_errors("/a"),
        ):
            getattr(client, question)("/a")
        assert told.value.filename == "/a"
        assert time.monotonic() - begin >= 0.4
        with pytest.raises(OSError, match=r"no answer in 0.1 seconds"):  # the others of the run get their turn
            getattr(client, question)("/b")


@dataclass
class Sluggish:
    """A NameNode that needs a while for each answer."""

    needs_s: float = 0

    def get_file_info(self, path: str) -> str:
        time.sleep(self.needs_s)
        if path == "/gone":
            raise FileNotFoundError(path)
        return path

    def list_status(self, path: str) -> Iterator[str]:
        yield self.get_file_info(path)
        yield path + "/b"


@pytest.mark.parametrize("path", ["/a", "/gone"])
def test_answer_of_any_kind_ends_the_other_wait(path: str) -> None:
    cluster = Sluggish(needs_s=0.3)
    client = PatientClient(cluster, answer_s=(0.1, 30))  # the other way round: the longer one never ends early
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"0.1 seconds"):
            client.list_status("/a")
        with suppress(FileNotFoundError):
            assert client.get_file_info(path) == path
    cluster.needs_s = 0
    assert list(client.list_status("/a")) == ["/a", "/a/b"]
