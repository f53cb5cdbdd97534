"""The commit protocol from end to end on S3, where moves are copies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.storage import open_storage
from gobblin_dagster.storage._s3_upload import Upload
from gobblin_dagster.testing.faults import run_in_child
from tests.integration.remote_jobs import URNS, RemoteJob
from tests.services.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("state", ["sqlite:///state.db", "files:{lake}-state"], ids=["sqlite", "files"])
def test_job_published_to_s3_is_there_once_whatever_happens(s3_server: S3Server, tmp_path: Path, state: str) -> None:
    lake = f"s3://{s3_server.new_bucket()}/lake"
    RemoteJob(tmp_path, lake, state.format(lake=lake)).check_whole_way()
    assert "Uploads" not in s3_server.client.list_multipart_uploads(Bucket=lake.split("/")[2])


def test_copy_that_a_kill_cut_off_is_done_again_and_its_upload_ended(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, bucket = s3_server.client, s3_server.new_bucket()
    lake = f"s3://{bucket}/lake"
    job = RemoteJob(tmp_path, lake, "sqlite:///state.db")
    other = client.create_multipart_upload(Bucket=bucket, Key="lake/test/another-program-s.parquet")

    def die_where_published(upload: Upload) -> None:
        if "/_gobblin/" not in upload._path:
            os.kill(os.getpid(), signal.SIGKILL)
        complete(upload)

    complete = Upload.complete
    with monkeypatch.context() as inner:
        inner.setattr(Upload, "complete", die_where_published)
        assert run_in_child(lambda: job.run(30)) == -signal.SIGKILL
    begun = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [one for one in begun if one["UploadId"] != other["UploadId"] and "/_gobblin/" not in one["Key"]]

    job.run(30)

    job.check_published_once(30)
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [one["UploadId"] for one in left] == [other["UploadId"]]


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
