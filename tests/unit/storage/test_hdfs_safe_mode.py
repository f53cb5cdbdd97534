"""Waiting for the end of a NameNode's safe mode."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gobblin_dagster.storage._hdfs_client import PatientClient


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
