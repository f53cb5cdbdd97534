"""The source `files` on real far file systems: S3, HDFS, GCS, SFTP."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import posixpath
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from gobblin_dagster.constructs.sources.files.source import FilesOptions, FilesSource
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import EnvironmentFaultError, ExtractError, SourceError, TransientError, UsageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import checksums, remote, schemes
from gobblin_dagster.storage.hdfs import HdfsStorage
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.gcs import GcsServer
from tests.services.hdfs import HdfsServer
from tests.services.s3 import S3Server
from tests.services.sftp import SftpServer


class Ground(Protocol):
    """A folder on a far file system."""

    @property
    def url(self) -> str: ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file again."""

    def delete(self, path: str) -> None:
        """Delete a file."""


@dataclass
class S3Ground:
    server: S3Server
    bucket: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/in"

    def put(self, path: str, data: bytes) -> None:
        self.server.client.put_object(Bucket=self.bucket, Key=f"in/{path}", Body=data)

    def delete(self, path: str) -> None:
        self.server.client.delete_object(Bucket=self.bucket, Key=f"in/{path}")


@dataclass
class GcsGround:
    server: GcsServer
    bucket: str

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/in"

    def put(self, path: str, data: bytes) -> None:
        self.server.put(self.bucket, f"in/{path}", data)

    def delete(self, path: str) -> None:
        self.server.delete(self.bucket, f"in/{path}")


@dataclass
class HdfsGround:
    url: str
    storage: HdfsStorage = field(init=False)

    def __post_init__(self) -> None:
        self.storage = HdfsStorage(urlsplit(self.url).netloc)

    def put(self, path: str, data: bytes) -> None:
        self.delete(path)
        sink = self.storage.open_new(f"{self.url}/{path}")
        sink.write(data)
        sink.finish()

    def delete(self, path: str) -> None:
        self.storage.delete(f"{self.url}/{path}")


@dataclass
class SftpGround:
    url: str
    root: Path
    """The same folder, seen from this machine."""

    def put(self, path: str, data: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(data)

    def delete(self, path: str) -> None:
        (self.root / path).unlink()


@pytest.fixture
def as_sftp_user(sftp_server: SftpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SftpServer]:
    """Take keys and known hosts from the server's own home folder, over a connection of this test's own."""
    monkeypatch.setenv("HOME", str(sftp_server.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    schemes._LOADED.clear()
    yield sftp_server
    schemes._LOADED.clear()


_MARKS: dict[str, list[pytest.MarkDecorator]] = {
    "s3": [pytest.mark.s3],
    "hdfs": [pytest.mark.hdfs],
    "gcs": [],
    "sftp": [],
}


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, marks in _MARKS.items()])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return S3Ground(server, server.new_bucket("files"))
    if request.param == "gcs":
        return GcsGround(request.getfixturevalue("gcs_server"), f"files{abs(hash(str(tmp_path))) % 10**9}")
    if request.param == "hdfs":
        hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
        return HdfsGround(f"{hdfs.url}{tmp_path}/in")
    sftp: SftpServer = request.getfixturevalue("as_sftp_user")
    return SftpGround(f"{sftp.url}{tmp_path}/in", tmp_path / "in")


class Job:
    """A job that reads a far folder and publishes to a local one."""

    def __init__(self, root: Path, source: dict[str, Any]) -> None:
        body = {"job": "far", "extract": {"namespace": "n", "table": "t"}, "output": {"path": "lake"}}
        self.spec = JobSpec.model_validate(body | {"source": {"type": "files"} | source})
        self.project = Project(root, ProjectSpec(project="p"), (self.spec,))

    def run(self) -> dict[str, tuple[DatasetOutcome, int]]:
        result = run_job(self.project, self.spec, runner=InlineRunner())
        assert not [failure for one in result.datasets for failure in one.failures]
        return {one.dataset_urn: (one.outcome, one.rows_read) for one in result.datasets}

    def notes(self) -> str:
        return " ".join(note for one in plan_job(self.project, self.spec).datasets for note in one.notes)


COMMITTED, IDLE = DatasetOutcome.COMMITTED, DatasetOutcome.IDLE


def test_new_files_of_a_far_folder_are_read_once(ground: Ground, tmp_path: Path) -> None:
    job = Job(tmp_path, {"path": f"{ground.url}/{{dataset}}/*.csv.gz", "format": {"type": "csv"}})
    ground.put("a/one.csv.gz", gzip.compress(b"id\n1\n2\n"))
    ground.put("b c/deep #1 ü 100%.csv.gz", gzip.compress(b"id\n3\n"))
    assert job.run() == {"a": (COMMITTED, 2), "b c": (COMMITTED, 1)}
    assert job.run() == {"a": (IDLE, 0), "b c": (IDLE, 0)}
    ground.put("a/early.csv.gz", gzip.compress(b"id\n4\n5\n6\n"))
    assert job.run() == {"a": (COMMITTED, 3), "b c": (IDLE, 0)}
    ground.put("a/one.csv.gz", gzip.compress(b"id\n1\n2\n7\n8\n9\n10\n11\n"))
    ground.delete("a/early.csv.gz")
    assert job.run() == {"a": (IDLE, 0), "b c": (IDLE, 0)}
    assert "a/one.csv.gz (grew from " in job.notes()
    assert "1 file(s) that were read are gone: a/early.csv.gz" in job.notes()


@pytest.mark.parametrize("compare", ["checksum", "checksum_always"])
def test_far_file_that_is_put_again_as_it_was_has_not_changed(
    ground: Ground, tmp_path: Path, compare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"path": f"{ground.url}/{{dataset}}/*.csv", "format": {"type": "csv"}, "compare": compare}
    job = Job(tmp_path, source | {"read_changed": "again"})
    ground.put("a/one.csv", b"id\n1\n2\n")
    ground.put("a/deep #1 ü 100%.csv", b"id\n3\n")
    digests: list[str] = []
    digest = checksums._digest

    def counted(path: str, kind: str) -> str:
        digests.append(kind)
        return digest(path, kind)

    monkeypatch.setattr(checksums, "_digest", counted)
    assert job.run() == {"a": (COMMITTED, 3)}
    assert job.run() == {"a": (IDLE, 0)}
    is_told = isinstance(ground, S3Ground | GcsGround)
    assert bool(digests) is not is_told
    wait_for_another_time(ground)
    ground.put("a/one.csv", b"id\n1\n2\n")
    assert "1 file(s) have a new time of change and the same content" in job.notes()
    assert job.run() == {"a": (COMMITTED, 0)}
    assert job.run() == {"a": (IDLE, 0)}
    wait_for_another_time(ground)
    ground.put("a/one.csv", b"id\n1\n4\n")
    assert "they are read again, whole: " in job.notes()
    assert job.run() == {"a": (COMMITTED, 2)}
    assert job.run() == {"a": (IDLE, 0)}
    # Objects whose two checksums differ are read: S3 may have encrypted them, or put them together anew.
    assert set(digests) <= {"md5" if is_told else "sha256"}


def test_far_files_are_digested_in_pieces_a_few_at_a_time(ground: Ground) -> None:
    contents = {
        f"{ground.url}/a/{number}.bin": bytes([number]) * (5_000_000 if number == 3 else 70) for number in range(9)
    }
    for url, content in contents.items():
        ground.put(url.removeprefix(f"{ground.url}/"), content)
    for kind in ("sha256", "md5"):
        known = {url: f"{kind}={hashlib.new(kind, content).hexdigest()}" for url, content in contents.items()}
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(checksums.has_content, known, known.values(), repeat("crc32c=none")))
        assert not checksums.has_content(f"{ground.url}/a/3.bin", known[f"{ground.url}/a/4.bin"], "crc32c=none")


def wait_for_another_time(ground: Ground) -> None:
    """Let the clock of the file system go on, so that what is put next has another time of change."""
    time.sleep(1.1 if isinstance(ground, S3Ground | SftpGround) else 0.01)


def test_dated_files_of_every_format_are_read_from_far(ground: Ground, tmp_path: Path) -> None:
    rows = [{"id": number} for number in range(5_000)]
    table = pa.table({"id": [row["id"] for row in rows]})
    contents: dict[str, io.BytesIO] = {kind: io.BytesIO() for kind in ("parquet", "orc", "avro", "jsonl", "text")}
    parquet.write_table(table, contents["parquet"])
    orc.write_table(table, contents["orc"])
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]})
    fastavro.writer(contents["avro"], schema, rows)
    contents["jsonl"].write(b"".join(b'{"id": %d}\n' % row["id"] for row in rows))
    contents["text"].write(b"".join(b"%d\n" % row["id"] for row in rows))
    for kind, content in contents.items():
        root = tmp_path / kind
        root.mkdir(exist_ok=True)
        job = Job(root, {"path": f"{ground.url}/{{dataset}}/{{date:%Y/%m/%d}}.{kind}", "format": {"type": kind}})
        ground.put(f"{kind}/2013/01/02.{kind}", content.getvalue())
        assert job.run()[kind] == (COMMITTED, 5_000)
        assert job.run()[kind] == (IDLE, 0)


def test_far_folder_without_files_is_named(ground: Ground, tmp_path: Path) -> None:
    ground.put("other.txt", b"x")
    for path in ("nowhere/*.csv", "*.csv"):
        job = Job(tmp_path, {"path": posixpath.join(ground.url, path), "format": {"type": "csv"}})
        with pytest.raises(SourceError, match="no file matches"):
            plan_job(job.project, job.spec)


# -- S3 alone ----------------------------------------------------------------------------------------------------------
@pytest.mark.s3
def test_folder_without_a_name_is_an_error_of_the_path(s3_server: S3Server, tmp_path: Path) -> None:
    url = f"s3://{s3_server.new_bucket('nameless')}//lake/*.csv"
    job = Job(tmp_path, {"path": url, "format": {"type": "csv"}})
    with pytest.raises(SourceError, match=r"cannot list s3://.*//lake: Empty path component.*\. Correct `path`\."):
        plan_job(job.project, job.spec)


@pytest.mark.s3
class TestEtags:
    """What S3 tells of objects, for `compare: checksum`."""

    @pytest.fixture
    def s3(self, s3_server: S3Server) -> S3Ground:
        return S3Ground(s3_server, s3_server.new_bucket("etags"))

    def job(self, s3: S3Ground, root: Path) -> Job:
        source = {"path": f"{s3.url}/{{dataset}}/*.csv", "format": {"type": "csv"}, "compare": "checksum"}
        return Job(root, source | {"read_changed": "again"})

    def put_in_parts(self, s3: S3Ground, path: str, data: bytes) -> None:
        client, where = s3.server.client, {"Bucket": s3.bucket, "Key": f"in/{path}"}
        upload = client.create_multipart_upload(**where)["UploadId"]
        etag = client.upload_part(**where, UploadId=upload, PartNumber=1, Body=data)["ETag"]
        parts = {"Parts": [{"ETag": etag, "PartNumber": 1}]}
        client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload=parts)

    def test_object_that_is_replaced_within_the_tick_of_the_clock_has_changed(
        self, s3: S3Ground, tmp_path: Path
    ) -> None:
        job = self.job(s3, tmp_path)
        s3.put("a/x.csv", b"id\n1\n")
        assert job.run() == {"a": (COMMITTED, 1)}
        s3.put("a/x.csv", b"id\n2\n")
        assert job.run() == {"a": (COMMITTED, 1)}
        assert job.run() == {"a": (IDLE, 0)}

    def test_object_that_is_put_together_anew_from_parts_is_compared_by_its_bytes(
        self, s3: S3Ground, tmp_path: Path
    ) -> None:
        job = self.job(s3, tmp_path)
        s3.put("a/x.csv", b"id\n1\n")
        assert job.run() == {"a": (COMMITTED, 1)}
        wait_for_another_time(s3)
        self.put_in_parts(s3, "a/x.csv", b"id\n1\n")
        assert "1 file(s) have a new time of change and the same content" in job.notes()
        assert job.run() == {"a": (COMMITTED, 0)}
        wait_for_another_time(s3)
        self.put_in_parts(s3, "a/x.csv", b"id\n1\n")
        assert job.run() == {"a": (COMMITTED, 0)}
        wait_for_another_time(s3)
        # Of parts, S3 tells nothing that the bytes could be compared with.
        s3.put("a/x.csv", b"id\n1\n")
        assert job.run() == {"a": (COMMITTED, 1)}

    def test_object_that_takes_the_place_of_the_planned_one_is_refused(self, s3: S3Ground, tmp_path: Path) -> None:
        job = self.job(s3, tmp_path)
        s3.put("a/x.csv", b"id\n1\n")
        (dataset,) = plan_job(job.project, job.spec).datasets
        s3.put("a/x.csv", b"id\n2\n")
        files = FilesSource(FilesOptions.model_validate(dict(job.spec.source.options)), ConstructContext("far", "/"))
        with pytest.raises(ExtractError, match="changed since it was planned"):
            list(files.extractor(dataset.work_units[0]).chunks())

    def test_list_with_checksums_is_the_list_without_but_for_them(self, s3: S3Ground) -> None:
        for path in ("a/x.csv", "a/b/y.csv", "a/z 1+2 ü%.csv"):
            s3.put(path, b"id\n1\n")
        s3.server.client.put_object(Bucket=s3.bucket, Key="in/a/", Body=b"")
        for url in (f"s3://{s3.bucket}", s3.url, f"{s3.url}/a"):
            plain = sorted(remote.remote_files(url).scan(url), key=attrgetter("name"))
            told = sorted(checksums.scan_with_checksums(url), key=attrgetter("name"))
            assert all(entry.facts is None or entry.facts.checksum.startswith("etag=") for entry in told)
            bare = [replace(entry, facts=entry.facts and entry.facts._replace(checksum="")) for entry in told]
            assert bare == plain
        with pytest.raises(FileNotFoundError):
            list(checksums.scan_with_checksums(f"{s3.url}/nowhere"))


# -- SFTP alone --------------------------------------------------------------------------------------------------------
def test_sftp_host_that_is_not_known_is_refused(
    as_sftp_user: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_bytes((as_sftp_user.home / ".ssh/id_ed25519").read_bytes())
    monkeypatch.setenv("HOME", str(home))
    job = Job(tmp_path, {"path": f"{as_sftp_user.url}{tmp_path}/*.csv", "format": {"type": "csv"}})
    with pytest.raises(SourceError, match=r"(?i)host key|not trusted"):
        plan_job(job.project, job.spec)


def test_sftp_key_that_the_server_does_not_know_is_refused(
    as_sftp_user: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/known_hosts").write_bytes((as_sftp_user.home / ".ssh/known_hosts").read_bytes())
    monkeypatch.setenv("HOME", str(home))
    job = Job(tmp_path, {"path": f"{as_sftp_user.url}{tmp_path}/*.csv", "format": {"type": "csv"}})
    with pytest.raises(SourceError, match=r"(?i)permission denied"):
        plan_job(job.project, job.spec)


def test_sftp_server_that_is_away_may_come_back(tmp_path: Path) -> None:
    job = Job(tmp_path, {"path": "sftp://me@127.0.0.1:9/in/*.csv", "format": {"type": "csv"}})
    with pytest.raises(TransientError, match="cannot list sftp://me@127"):
        plan_job(job.project, job.spec)


def test_sftp_connection_that_was_lost_is_opened_again(as_sftp_user: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("id\n1\n")
    job = Job(tmp_path, {"path": f"{as_sftp_user.url}{tmp_path}/in/*.csv", "format": {"type": "csv"}})
    assert job.run() == {"n.t": (COMMITTED, 1)}
    (tmp_path / "in/2.csv").write_text("id\n2\n")
    for pid in as_sftp_user.connections():
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while as_sftp_user.connections() and time.monotonic() < until:
        time.sleep(0.01)
    assert job.run() == {"n.t": (COMMITTED, 1)}


def test_sftp_server_that_falls_silent_keeps_nobody_waiting(
    as_sftp_user: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobblin_dagster.storage.sftp.KEEPALIVE_S", 0.2)
    (tmp_path / "1.csv").write_text("id\n1\n")
    job = Job(tmp_path, {"path": f"{as_sftp_user.url}{tmp_path}/*.csv", "format": {"type": "csv"}})
    plan_job(job.project, job.spec)
    silent = as_sftp_user.connections()
    for pid in silent:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TransientError, match="cannot list"):
            plan_job(job.project, job.spec)
    finally:
        for pid in silent:
            os.kill(pid, signal.SIGKILL)


def test_links_on_sftp_are_followed(as_sftp_user: SftpServer, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/x.csv").write_text("id\n1\n")
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/link.csv").symlink_to(tmp_path / "real/x.csv")
    (tmp_path / "in/a/dangling.csv").symlink_to(tmp_path / "real/gone.csv")
    (tmp_path / "in/b").symlink_to(tmp_path / "real")
    job = Job(tmp_path, {"path": f"{as_sftp_user.url}{tmp_path}/in/{{dataset}}/*.csv", "format": {"type": "csv"}})
    assert job.run() == {"a": (COMMITTED, 1), "b": (COMMITTED, 1)}
    assert "dangling.csv (no regular file)" in job.notes()


# -- what is wrong before anything is connected to
# -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "scheme", "module", "hint"),
    [
        ("sftp://host/x", "sftp", "sshfs", r"gobblin-dagster\[sftp\]"),
        ("s3://bucket/x", "s3", "boto3.session", r"gobblin-dagster\[s3\]"),
    ],
    ids=["sftp", "s3"],
)
def test_missing_package_is_named_with_the_extra(
    url: str, scheme: str, module: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from gobblin_dagster.storage import _s3_client

    monkeypatch.setitem(sys.modules, module, None)
    schemes._LOADED.clear()
    _s3_client.s3_client.cache_clear()
    with pytest.raises(EnvironmentFaultError, match=hint):
        remote.remote_files(url)


@pytest.mark.parametrize("url", ["sftp://me:secret@host/x", "s3://key:secret@bucket/x", "gs://secret@bucket/x"])
def test_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="to the environment") as caught:
        remote.remote_files(url)
    assert "secret" not in str(caught.value)


def test_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="Files of scheme 'gopher' cannot be read"):
        remote.remote_files("gopher://host/x")
