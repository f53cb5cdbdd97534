from __future__ import annotations

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.storage import LocalStorage, MemoryStorage, open_storage, storage_path


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
    assert open_storage(url) == LocalStorage(durable=True)
    assert open_storage(url, durable=False) == LocalStorage(durable=False)
    assert storage_path(url) == path


def test_open_storage_memory_is_shared_by_name() -> None:
    one = open_storage("memory://one")
    assert isinstance(one, MemoryStorage)
    assert open_storage("memory://one/lake") is one
    assert open_storage("memory://two") is not one
    assert (storage_path("memory://one/lake"), storage_path("memory://one")) == ("/lake", "/")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://bucket/key", "'s3' is not supported"),
        ("hdfs://node:8020/lake", "'hdfs' is not supported"),
        ("lake/out", "'lake/out' is no absolute path"),
        ("", "'' is no absolute path"),
        ("file://host/lake", "no absolute path"),
    ],
)
def test_open_storage_refuses_what_it_does_not_know(url: str, named: str) -> None:
    for call in (open_storage, storage_path):
        with pytest.raises(UsageError, match=named) as caught:
            call(url)
        assert "file:///path" in str(caught.value)
