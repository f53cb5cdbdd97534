"""The commit protocol from end to end on S3, where moves are copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.storage import open_storage
from tests.integration.remote_jobs import URNS, RemoteJob
from tests.services.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("state", ["sqlite:///state.db", "files:{lake}-state"], ids=["sqlite", "files"])
def test_job_published_to_s3_is_there_once_whatever_happens(s3_server: S3Server, tmp_path: Path, state: str) -> None:
    lake = f"s3://{s3_server.new_bucket()}/lake"
    RemoteJob(tmp_path, lake, state.format(lake=lake)).check_whole_way()
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=lake.split("/")[2])


def test_lost_staging_on_s3_waits_for_a_person_because_a_late_copy_could_double_it(
    s3_server: S3Server, tmp_path: Path
) -> None:
    lake = f"s3://{s3_server.new_bucket()}/lake"
    job = RemoteJob(tmp_path, lake, "sqlite:///state.db")
    job.crash(30, steps=1)
    storage = open_storage(lake)
    storage.delete_tree(f"{lake}/_gobblin/staging")

    result = job.run(30)

    assert {one.state for one in result.recovered} == {SequenceState.QUARANTINED}
    assert all("cannot be undone safely" in one.reason for one in result.recovered)
    held = {one.dataset_urn for one in result.recovered}
    outcomes = {one.dataset_urn: one.outcome for one in result.datasets}
    assert {outcomes[urn] for urn in URNS if urn in held} == {DatasetOutcome.QUARANTINED}
    assert {outcomes[urn] for urn in URNS if urn not in held} <= {DatasetOutcome.COMMITTED}


def test_job_published_to_s3_can_go_back(s3_server: S3Server, tmp_path: Path) -> None:
    RemoteJob(tmp_path, f"s3://{s3_server.new_bucket()}/lake", "sqlite:///state.db").check_going_back()
