from __future__ import annotations

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import LocalStorage, MemoryStorage, open_storage, storage_path
from gobblin_dagster.storage.hdfs import HdfsStorage
from gobblin_dagster.storage.s3 import S3Storage


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/lake", "/lake"),
        ("/lake/", "/lake"),
        ("/", "/"),
        ("/lake/a://b", "/lake/a://b"),
        ("/lake/50%25", "/lake/50%25"),
        ("file:///lake/50%25", "/lake/50%"),
        ("file://localhost/lake", "/lake"),
    ],
)
def test_open_storage_local_forms(url: str, path: str) -> None:
    assert open_storage(url) == LocalStorage(durable=True, confined_to=path)
    assert open_storage(url, durable=False) == LocalStorage(durable=False, confined_to=path)
    assert storage_path(url) == path


def test_open_storage_memory_is_shared_by_name() -> None:
    one = open_storage("memory://one")
    assert isinstance(one, MemoryStorage)
    assert open_storage("memory://one/lake") is one
    assert open_storage("memory://two") is not one
    assert (storage_path("memory://one/lake"), storage_path("memory://one")) == ("/lake", "/")


@pytest.mark.parametrize(
    ("url", "storage", "path"),
    [
        ("hdfs://node:8020/lake/50%25/", HdfsStorage("node:8020"), "/lake/50%25"),
        ("hdfs:///lake", HdfsStorage(""), "/lake"),
        ("s3://bucket/lake/a%2Fb", S3Storage("bucket"), "/lake/a%2Fb"),
        ("s3://bucket", S3Storage("bucket"), "/"),
    ],
)
def test_open_storage_remote_paths_are_taken_as_written(url: str, storage: Storage, path: str) -> None:
    assert open_storage(url) == storage
    assert storage_path(url) == path


def test_open_storage_durability_reaches_hdfs() -> None:
    assert open_storage("hdfs://node/lake", durable=False) == HdfsStorage("node", durable=False)


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/lake", "hdfs://secret@node:8020/lake"])
def test_open_storage_refuses_credentials_and_never_shows_them(url: str) -> None:
    with pytest.raises(UsageError, match="holds a user or a key") as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["/lake", "//lake", "lake//in", "lake/./in", "x/../lake", ".."])
@pytest.mark.parametrize("store", ["s3://bucket/", "hdfs://node:8020/", "memory://test/"])
def test_folders_without_a_name_of_their_own_are_refused(store: str, path: str) -> None:
    """Commits compare paths as texts: each run failed at its commit."""
    for call in (open_storage, storage_path):
        with pytest.raises(UsageError, match=r"has an empty folder name, `\.` or `\.\.` in it"):
            call(store + path)
    assert storage_path(f"{store}lake//") == "/lake"
    assert storage_path(store) == "/"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("gs://bucket/key", "'gs' is not supported"),
        ("s3:///key", "'s3:///key' names no bucket"),
        ("lake/out", "'lake/out' is not an absolute path"),
        ("", "'' is not an absolute path"),
        ("file://host/lake", "not an absolute path"),
    ],
)
def test_open_storage_refuses_what_it_does_not_know(url: str, named: str) -> None:
    for call in (open_storage, storage_path):
        with pytest.raises(UsageError, match=named) as caught:
            call(url)
        assert "file:///path" in str(caught.value)
