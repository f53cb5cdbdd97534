"""Standard error that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from gobblin_dagster.core.utils.standard_error import unfailing_stderr
sys.stderr = unfailing_stderr()
sys.stderr.write("a line\\n")
sys.stderr.write("half a line \\u00e9 \\udcff")
print("said")
sys.exit(5)
"""


def run(code: str, stderr: int, **env: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True, check=False)
    return done.returncode, done.stdout


def test_full_disk_changes_nothing_but_what_is_told() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    assert run(CODE, full) == (5, "said\n")
    os.close(full)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_pipe_that_nobody_reads_changes_nothing_but_what_is_told(is_blocking: bool) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, is_blocking)
    if is_blocking:
        os.close(reader)
    code = CODE if is_blocking else CODE.replace('"a line\\n"', '"a line\\n" * 100_000')
    assert run(code, writer) == (5, "said\n")
    os.close(writer)


def test_what_can_be_written_is_written_as_by_python(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as file:
        assert run(CODE, file.fileno(), PYTHONIOENCODING="latin-1") == (5, "said\n")
    assert (tmp_path / "said").read_bytes() == b"a line\nhalf a line \xe9 \\udcff"
