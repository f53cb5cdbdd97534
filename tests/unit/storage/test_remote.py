"""Lists of far files and looks at single ones say the same, or every file would seem to change between plan and
read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.storage.gcs import GcsFiles
from gobblin_dagster.storage.object_files import ArrowFiles
from gobblin_dagster.storage.remote import remote_files


@pytest.mark.parametrize(
    ("cls", "expected_us"), [(ArrowFiles, 1_700_000_000_000_000), (GcsFiles, 1_700_000_000_123_456)], ids=["s3", "gcs"]
)
def test_time_of_change_is_as_fine_as_the_store_says_it_everywhere(
    tmp_path: Path, cls: type[ArrowFiles], expected_us: int
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    # A local file system tells finer times than any store, which serves here: only the clients differ.
    files = cls("far://", pafs.LocalFileSystem())
    (entry,) = files.scan(f"far://{tmp_path}")
    looked = files.look(f"far://{path}")
    assert entry.facts == looked
    assert (looked.size_bytes, looked.modified_us) == (5, expected_us)


@pytest.mark.parametrize("host", ["files..example", "x" * 64 + ".example", "files.example:99999", "files.example:ssh"])
def test_server_that_no_network_can_have_is_named(host: str) -> None:
    with pytest.raises(UsageError, match="names no host and port that can be"):
        remote_files(f"sftp://me@{host}/out").scan("/")
