"""What S3Storage promises beyond the contract: conditions, lost answers, large objects, uploads that nobody ends."""

from __future__ import annotations

import errno
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.cli.commands.doctor import _output_check
from gobblin_dagster.core.errors import EnvironmentFaultError, UsageError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.commit.steps.rename import RenameFileStep
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.storage import _s3_client, s3
from gobblin_dagster.storage.s3 import S3Storage
from tests.services.s3 import S3Server
from tests.unit.engine.jobs import job_spec, project, run

pytestmark = pytest.mark.s3


@pytest.fixture
def storage(s3_server: S3Server) -> S3Storage:
    return S3Storage(s3_server.new_bucket())


def _write(storage: S3Storage, path: str, content: bytes) -> None:
    sink = storage.open_new(path)
    sink.write(content)
    sink.finish()


@contextmanager
def answers_lost(operation: str) -> Iterator[None]:
    """Let boto3 believe that the first answer to an operation never came, so that it asks again."""
    client = _s3_client.s3_client(os.getpid())
    asked: list[int] = []

    def once(**_: Any) -> float | None:
        asked.append(1)
        return 0.0 if len(asked) == 1 else None

    event = f"needs-retry.s3.{operation}"
    client.meta.events.register_first(event, once)
    yield
    client.meta.events.unregister(event, once)
    assert len(asked) == 2, "the operation was asked for twice"


WRITES: dict[str, Callable[[S3Storage], object]] = {
    "put_if_absent": lambda storage: storage.put_if_absent("/a", b""),
    "open_new": lambda storage: storage.open_new("/a"),
    "move": lambda storage: storage.move("/there", "/a"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_store_that_ignores_conditions_is_refused(s3_server: S3Server, write: Callable[[S3Storage], object]) -> None:
    bucket = s3_server.new_bucket("careless")
    s3_server.client.put_object(Bucket=bucket, Key="there", Body=b"")
    with pytest.raises(EnvironmentFaultError, match=rf"'{bucket}' ignores the condition `If-None-Match: \*` of PutObj"):
        write(S3Storage(bucket))
    assert list(S3Storage(bucket).walk_files("/")) == ["/there"]


def test_source_that_was_written_after_its_move_is_no_leftover(
    storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(storage, "/in/a", b"1")
    step = RenameFileStep("/in/a", "/out/a", 1, storage.sha256("/in/a"))
    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "delete", lambda *_: None)  # as if the process was killed before that
        step.execute(storage)
    assert storage.is_leftover("/in/a", "/out/a")
    assert not any(
        storage.is_leftover(*pair) for pair in (("/in/none", "/out/a"), ("/in/a", "/out/none"), ("/in/a", "/in/a/"))
    )
    step.forget_source(storage)
    assert storage.size("/in/a") is None
    time.sleep(1.1)  # the times of S3 may be whole seconds
    _write(storage, "/in/a", b"1")
    step.execute(storage)
    step.forget_source(storage)
    assert (storage.size("/in/a"), storage.size("/out/a")) == (1, 1)


def test_check_of_conditions_leaves_nothing_behind(s3_server: S3Server, storage: S3Storage) -> None:
    assert storage.put_if_absent("/lake/a", b"1")
    found = s3_server.client.list_objects_v2(Bucket=storage.bucket)["Contents"]
    assert [one["Key"] for one in found] == ["lake/a"]
    assert "Uploads" not in s3_server.client.list_multipart_uploads(Bucket=storage.bucket)


def test_put_if_absent_lost_answer_is_no_lost_race(storage: S3Storage) -> None:
    storage.put_if_absent("/first", b"")
    with answers_lost("PutObject"):
        assert storage.put_if_absent("/a", b"mine")
    with answers_lost("PutObject"):
        assert not storage.put_if_absent("/a", b"theirs")
    assert storage.read("/a") == b"mine"


def test_finish_and_move_lost_answer_is_no_lost_race(storage: S3Storage) -> None:
    sink = storage.open_new("/staging/a")
    sink.write(b"rows")
    with answers_lost("CompleteMultipartUpload"):
        assert sink.finish().size_bytes == 4
    with answers_lost("CompleteMultipartUpload"):
        storage.move("/staging/a", "/a")
    assert list(storage.walk_files("/")) == ["/a"]


def test_finish_where_another_object_came_first_is_refused_and_spares_it(storage: S3Storage) -> None:
    sink = storage.open_new("/a")
    storage.put_if_absent("/a", b"theirs")
    with pytest.raises(FileExistsError, match="/a"):
        sink.finish()
    sink.abort()
    assert storage.read("/a") == b"theirs"


def test_abort_after_finish_deletes_the_object(storage: S3Storage) -> None:
    sink = storage.open_new("/a")
    sink.finish()
    sink.abort()
    assert storage.size("/a") is None


def test_large_object_is_sent_and_copied_in_parts(storage: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "COPY_BYTES", 6 << 20)
    content = bytes(range(256)) * (20 << 12)
    _write(storage, "/staging/a", content)
    assert storage._head("/staging/a")["ETag"].endswith('-3"')
    storage.move("/staging/a", "/a")
    assert storage._head("/a")["ETag"].endswith('-4"')
    assert storage.read("/a") == content


def test_move_failed_copy_keeps_the_source_and_leaves_no_upload(
    s3_server: S3Server, storage: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(storage, "/staging/a", bytes(12 << 20))
    # The store refuses parts but the last that are smaller than 5 MiB.
    monkeypatch.setattr(s3, "COPY_BYTES", 4 << 20)
    with pytest.raises(OSError, match="EntityTooSmall"):
        storage.move("/staging/a", "/a")
    assert list(storage.walk_files("/")) == ["/staging/a"]
    assert "Uploads" not in s3_server.client.list_multipart_uploads(Bucket=storage.bucket)


def test_delete_tree_ends_uploads_that_a_killed_writer_left(s3_server: S3Server, storage: S3Storage) -> None:
    storage.open_new("/staging/run/a").write(bytes(9 << 20))
    storage.open_new("/staging/run-2/a").write(b"")
    storage.delete_tree("/staging/run")
    left = s3_server.client.list_multipart_uploads(Bucket=storage.bucket)["Uploads"]
    assert [one["Key"] for one in left] == ["staging/run-2/a"]


def test_storage_travels_to_other_processes_and_takes_urls_and_paths(storage: S3Storage) -> None:
    copy = pickle.loads(pickle.dumps(storage))
    url = f"s3://{storage.bucket}/lake"
    assert copy.put_if_absent(f"{url}/a%2Fb ü", b"1")
    assert list(copy.walk_files(url)) == [f"{url}/a%2Fb ü"]
    assert list(copy.walk_files("/lake")) == ["/lake/a%2Fb ü"]
    with pytest.raises(OSError, match="not a path of s3://") as caught:
        copy.size("s3://elsewhere/a")
    assert caught.value.errno == errno.EINVAL


def test_missing_bucket_says_so(s3_server: S3Server) -> None:
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        S3Storage("nowhere").put_if_absent("/a", b"")


def test_doctor_writes_to_the_bucket_and_leaves_nothing(storage: S3Storage) -> None:
    assert _output_check(f"s3://{storage.bucket}/lake")() == f"s3://{storage.bucket}/lake is writable"
    assert storage.list_names("/") == []
    with pytest.raises(UsageError, match=r"Cannot write to s3://nowhere/lake: NoSuchBucket.*change `output\.path`"):
        _output_check("s3://nowhere/lake")()


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    _s3_client.s3_client.cache_clear()
    with pytest.raises(EnvironmentFaultError, match=r"boto3.*pip install 'gobblin-dagster\[s3\]'"):
        S3Storage("bucket").size("/a")


def test_answer_of_something_else_than_the_store_is_an_error_of_its_path(storage: S3Storage) -> None:
    problem = "has no 'UploadId'; does a proxy answer in the place of the store"
    answer: dict[str, str] = {}
    with pytest.raises(OSError, match=problem) as caught, _s3_client.s3_errors("s3://bucket/a"):
        answer["UploadId"]
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "s3://bucket/a")


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html>\n<p>Log in<br>", b"<html><p>Log in</p></html>"], ids=["html", "xml"]
)
def test_page_of_a_proxy_is_no_object_no_folder_and_no_write(page: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else page)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", host)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "tests")
        _s3_client.s3_client.cache_clear()
        try:
            bucket = S3Storage("bucket")
            monkeypatch.setattr(s3._conditions, "_checked", {(os.getpid(), host, "bucket")})
            uses: dict[str, Callable[[], object]] = {
                "HeadObject": lambda: bucket.size("/a"),
                "GetObject": lambda: bucket.read("/a"),
                "ListObjectsV2": lambda: bucket.list_names("/a"),
                "PutObject": lambda: bucket.put_if_absent("/a", b""),
                "DeleteObject": lambda: bucket.delete("/a"),
            }
            for operation, use in uses.items():
                said = f"{host} answered {operation} with HTML in the place of an S3 answer.*Check AWS_ENDPOINT_URL_S3"
                with pytest.raises(OSError, match=said) as caught:
                    use()
                assert caught.value.filename == "/a"
        finally:
            server.shutdown()
            _s3_client.s3_client.cache_clear()


def test_run_that_finds_nothing_new_asks_the_output_with_few_requests(
    s3_server: S3Server, storage: S3Storage, tmp_path: Path
) -> None:
    """It asks for a few manifests and one list of folders, however many datasets there are; polls ask for nothing."""
    spec = job_spec({f"d{n}": {"rows": 1} for n in range(5)}, output={"path": f"s3://{storage.bucket}/lake"})
    run(tmp_path, spec)
    asked: list[str] = []
    _s3_client.s3_client(os.getpid()).meta.events.register(
        "before-call.s3", lambda model, **_: asked.append(model.name), unique_id="requests-of-idle-run"
    )
    with closing(project(tmp_path, spec).open_store()) as store:
        JobContext.of(project(tmp_path, spec), spec, store).plan(is_poll=True)
    assert asked == []
    assert run(tmp_path, spec).status is RunStatus.SUCCEEDED
    assert sorted(asked) == ["HeadObject"] * 3 + ["ListObjectsV2"]
    for path in storage.walk_files(f"s3://{storage.bucket}/lake"):
        storage.delete(path)
    assert run(tmp_path, spec).status is RunStatus.FAILED
