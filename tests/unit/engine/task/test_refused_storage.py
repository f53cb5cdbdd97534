"""An output that is full or not writable: the work unit says where and why, whatever was to be written."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.constructs.sources.spark.errors import said_by_spark
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project


def _run(root: Path, output: Path, rows: int = 5) -> RunResult:
    job = job_spec({"a": {"rows": rows}, "b": {"rows": rows}}, output={"path": str(output)})
    return run_job(project(root, job), job, runner=InlineRunner())


def test_output_that_cannot_be_made_fails_each_dataset_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "lake" / "_gobblin").mkdir(parents=True)
    (tmp_path / "lake" / "_gobblin" / "staging").write_text("a file, no folder")
    result = _run(tmp_path, tmp_path / "lake")
    failures = [failure for dataset in result.datasets for failure in dataset.failures]
    assert result.status is RunStatus.FAILED
    assert {failure.code for failure in failures} == {"storage"}
    assert all(
        f"cannot write to {tmp_path}/lake/_gobblin/staging" in f.message and "Not a directory" in f.message
        for f in failures
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 256 KB, almost all of it taken."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"nobody may mount a disk here: {done.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("free_bytes", [0, 1 << 15], ids=["board", "staging"])
def test_full_disk_is_named_with_its_path(tmp_path: Path, small_disk: Path, free_bytes: int) -> None:
    room = os.statvfs(small_disk)
    (small_disk / "taken").write_bytes(b"x" * max(0, room.f_bavail * room.f_frsize - free_bytes))
    result = _run(tmp_path, small_disk / "lake", rows=200_000)
    failures = [failure for dataset in result.datasets for failure in dataset.failures]
    assert result.status is RunStatus.FAILED
    assert {failure.code for failure in failures} == {"storage"}
    assert all(str(small_disk) in f.message and "No space left on device" in f.message for f in failures)


def test_full_disk_that_some_code_of_a_user_meets_is_a_failure_of_storage() -> None:
    met = describe_failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/x"))
    assert (met.code, met.message) == ("storage", "cannot write to /scratch/x: No space left on device.")
    assert describe_failure(OSError(errno.ENOENT, "No such file", "mine")).code == "unexpected"


def test_package_that_is_missing_in_a_task_is_named_with_its_extra() -> None:
    failure = describe_failure(ModuleNotFoundError("No module named 'pymysql'", name="pymysql"))
    assert (failure.code, "pip install 'gobblin-dagster[mysql]'" in failure.message) == ("environment", True)


def test_reason_of_a_lost_spark_job_is_what_the_worker_raised() -> None:
    text = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in main\n    f()\nRuntimeError: of the worker\n\n'
        "\tat org.apache.spark.Foo(Foo.scala:1)\n"
    )
    assert said_by_spark(RuntimeError(text)) == "RuntimeError: of the worker"
    assert said_by_spark(RuntimeError("Job aborted.\nmore")) == "Job aborted."
    away = (
        '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "refused"\n>'
    )
    assert said_by_spark(RuntimeError(away)) == "the server of Spark Connect: refused"
