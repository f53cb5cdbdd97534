"""An S3 server on 127.0.0.1 for tests: moto in a process of its own, which ends with the tests."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.services.ending import wait_or_kill


@dataclass
class S3Server:
    """A running server; `new_bucket` gives each test one of its own."""

    url: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def environment(self) -> dict[str, str]:
        """Variables from which clients of any kind learn where it is."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @cached_property
    def client(self) -> Any:
        """A plain client, made once: each reads megabytes of descriptions of services."""
        from boto3.session import Session

        session = Session(aws_access_key_id="tests", aws_secret_access_key="tests", region_name="us-east-1")
        return session.client("s3", endpoint_url=self.url)

    def new_bucket(self, prefix: str = "test") -> str:
        """Make a bucket and return its name."""
        name = f"{prefix}-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        return name


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start a server and end it afterwards."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("s3_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        if not ready:
            raise RuntimeError("The S3 server did not start; its own words are above.")
        yield S3Server(f"http://127.0.0.1:{ready[1]}")
    finally:
        process.stdin.close()
        wait_or_kill(process)
