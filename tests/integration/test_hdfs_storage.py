"""What HdfsStorage promises beyond the contract, on a real NameNode and DataNode."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.state import open_store
from gobblin_dagster.storage import _hdfs_client, open_storage
from gobblin_dagster.storage.hdfs import HdfsStorage
from tests.services.hdfs import BLOCK_BYTES, DATANODES, HdfsServer

pytestmark = pytest.mark.hdfs


@pytest.fixture
def root(hdfs_server: HdfsServer, tmp_path: Path) -> str:
    return f"{hdfs_server.url}{tmp_path}"


def _write(storage: HdfsStorage, path: str, blocks: float) -> None:
    sink = storage.open_new(path)
    sink.write(bytes(int(blocks * BLOCK_BYTES)))
    sink.finish()


def _fsyncs_of(server: HdfsServer, storage: HdfsStorage, path: str, blocks: float, expected: int) -> int:
    """Count what writing a file syncs; counters are published once a second."""
    before = server.fsyncs()
    _write(storage, path, blocks)
    deadline = time.monotonic() + 180
    while server.fsyncs() - before < expected and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(3)
    return server.fsyncs() - before


def test_finish_syncs_every_block_to_the_disk(hdfs_server: HdfsServer, root: str) -> None:
    storage = open_storage(root)
    fast = open_storage(root, durable=False)
    assert isinstance(storage, HdfsStorage)
    assert isinstance(fast, HdfsStorage)
    time.sleep(3)
    replicas = 3 * DATANODES
    by_itself = _fsyncs_of(hdfs_server, fast, f"{root}/fast", 2.5, expected=replicas)
    assert _fsyncs_of(hdfs_server, storage, f"{root}/durable", 2.5, by_itself + replicas) == by_itself + replicas


def test_process_that_has_read_files_can_fork(root: str) -> None:
    """fsspec drops its file systems in forked children, where a client that goes waited for ever."""
    storage = open_storage(root)
    assert isinstance(storage, HdfsStorage)
    _write(storage, f"{root}/file", 0.1)
    code = (
        "import os, sys; from gobblin_dagster.storage.arrow import arrow_files\n"
        "system, (path,) = arrow_files([sys.argv[1]]); print(len(system.open_input_file(path).read())); del system\n"
        "child = os.fork() or os._exit(7); print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    command = [sys.executable, "-c", code, f"{root}/file"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [str(int(0.1 * BLOCK_BYTES)), "7"]


def test_put_if_absent_answer_to_rename_lost_is_known_as_our_own(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import hdfs_native

    rename = hdfs_native.Client.rename

    def rename_twice(client: Any, source: str, target: str, overwrite: bool = False) -> None:
        rename(client, source, target, overwrite)
        rename(client, source, target, overwrite)

    monkeypatch.setattr(hdfs_native.Client, "rename", rename_twice)
    assert open_storage(root).put_if_absent(f"{root}/log/1", b"mine")
    monkeypatch.undo()
    assert not open_storage(root).put_if_absent(f"{root}/log/1", b"theirs")
    assert open_storage(root).read(f"{root}/log/1") == b"mine"


def test_storage_travels_to_other_processes_and_takes_urls_and_paths(hdfs_server: HdfsServer, root: str) -> None:
    storage = pickle.loads(pickle.dumps(open_storage(root)))
    _write(storage, f"{root}/a%2Fb c", 0.1)
    plain = root.removeprefix(hdfs_server.url)
    assert list(storage.walk_files(plain)) == [f"{plain}/a%2Fb c"]
    assert list(storage.walk_files(root)) == [f"{root}/a%2Fb c"]
    with pytest.raises(OSError, match="not an absolute path of hdfs://") as caught:
        storage.size("hdfs://elsewhere:8020/a")
    assert caught.value.errno == errno.EINVAL


def test_state_store_is_named_with_its_server(root: str, tmp_path: Path) -> None:
    store = open_store(f"files:{root}/state", tmp_path)
    assert store.url == f"files:{root}/state"
    store.close()


def test_errors_name_the_path_and_no_stack_trace(root: str) -> None:
    with pytest.raises(OSError, match=r"Invalid argument: '.*a:b'") as caught:
        open_storage(root).open_new(f"{root}/a:b")
    assert caught.value.errno == errno.EINVAL
    assert "org.apache" not in str(caught.value)


def test_permissions_are_set_and_seen(root: str) -> None:
    storage = open_storage(root)
    assert isinstance(storage, HdfsStorage)
    _write(storage, f"{root}/a", 0)
    assert not storage.has_permissions(f"{root}/a", 0o640, "analysts")
    storage.set_permissions(f"{root}/a", 0o640, "analysts")
    assert storage.has_permissions(f"{root}/a", 0o640, "analysts")
    assert not storage.has_permissions(f"{root}/none", None, None)
    with pytest.raises(FileNotFoundError):
        storage.set_permissions(f"{root}/none", 0o640, None)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    _hdfs_client.hdfs_client.cache_clear()
    with pytest.raises(EnvironmentFaultError, match=r"hdfs-native.*pip install 'gobblin-dagster\[hdfs\]'"):
        open_storage("hdfs://node:8020/lake").size("/lake/a")
