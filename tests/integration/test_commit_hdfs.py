"""The commit protocol from end to end on a real HDFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.remote_jobs import RemoteJob
from tests.services.hdfs import HdfsServer

pytestmark = pytest.mark.hdfs


@pytest.mark.parametrize("state", ["sqlite:///state.db", "files:{lake}-state"], ids=["sqlite", "files"])
def test_job_published_to_hdfs_is_there_once_whatever_happens(
    hdfs_server: HdfsServer, tmp_path: Path, state: str
) -> None:
    lake = f"{hdfs_server.url}{tmp_path}/lake"
    RemoteJob(tmp_path, lake, state.format(lake=lake)).check_whole_way()


def test_job_published_to_hdfs_can_go_back(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    RemoteJob(tmp_path, f"{hdfs_server.url}{tmp_path}/lake", "sqlite:///state.db").check_going_back()
