"""What every Storage promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.staging import delete_if_empty
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.storage import LocalStorage, MemoryStorage, open_storage
from gobblin_dagster.storage._rename import link_new
from gobblin_dagster.storage.s3 import S3Storage
from gobblin_dagster.testing.conformance import FolderStorageConformance, StorageConformance
from tests.services.hdfs import HdfsServer
from tests.services.s3 import S3Server

DURABLE: dict[str, Callable[[], Storage]] = {
    "local": LocalStorage,
    "local-without-renameat2": lambda: LocalStorage(rename=link_new),
    "memory": MemoryStorage,
}


class TestDurableStorages(FolderStorageConformance):
    @pytest.fixture(params=DURABLE)
    def storage(self, request: pytest.FixtureRequest) -> Storage:
        return DURABLE[request.param]()


class TestFastLocalStorage(FolderStorageConformance):
    syncs_folders = False

    @pytest.fixture
    def storage(self) -> Storage:
        return LocalStorage(durable=False)


@pytest.mark.hdfs
class TestHdfsStorage(FolderStorageConformance):
    syncs_folders = False

    @pytest.fixture
    def storage(self, hdfs_server: HdfsServer) -> Storage:
        return open_storage(hdfs_server.url)

    @pytest.fixture
    def root(self, storage: Storage, tmp_path: Path, hdfs_server: HdfsServer) -> str:
        folder = f"{hdfs_server.url}{tmp_path}"
        storage.make_dirs(folder)
        return folder


@pytest.mark.s3
class TestS3Storage(StorageConformance):
    moves_atomically = False
    syncs_folders = False

    @pytest.fixture
    def bucket(self, s3_server: S3Server) -> str:
        return s3_server.new_bucket()

    @pytest.fixture
    def storage(self, bucket: str) -> Storage:
        return S3Storage(bucket)

    @pytest.fixture
    def root(self, storage: Storage, tmp_path: Path, bucket: str) -> str:
        folder = f"s3://{bucket}{tmp_path}"
        storage.make_dirs(folder)
        return folder

    def test_what_others_write_in_the_folder_of_a_moved_file_stays(self, storage: S3Storage, root: str) -> None:
        """A folder in which somebody uploads a file looks empty; a move that was killed leaves its source."""
        sink = storage.open_new(f"{root}/task-output/2")
        sink.write(b"rows")
        for path in ("task-output/1", "job-output/1"):
            storage.put_if_absent(f"{root}/{path}", b"done")
        step = RenameFileStep(f"{root}/task-output/1", f"{root}/job-output/1", 4, sha256(b"done").hexdigest())
        step.execute(storage)
        assert storage.list_names(f"{root}/task-output") == []
        delete_if_empty(storage, f"{root}/task-output", f"{root}/job-output")
        sink.finish()
        assert storage.list_names(f"{root}/task-output") == ["2"]
