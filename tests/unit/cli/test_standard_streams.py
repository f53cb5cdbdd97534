"""Commands whose caller closed standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import os, subprocess, sys
from gobblin_dagster.cli.standard_streams import open_closed_streams
open_closed_streams()
with open("state.db", "w") as file:
    assert file.fileno() > 2
    print("said")
    sys.stderr.write("an error")
    subprocess.run(["sh", "-c", "echo from a child; echo its error >&2; cat"], check=True)
    assert sys.stdin.read() == ""
assert os.stat("state.db").st_size == 0
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    (tmp_path / "code.py").write_text(CODE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} code.py {closed} || exit 7"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_command_ends_as_always_if_its_output_is_closed(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gobblin_dagster --version >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_are_utf8_in_every_locale(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: cities\n")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/größe數.yaml").write_text("job: cities\n")
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "gobblin_dagster", "check"]
    done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True, check=False)
    assert "FAULT jobs/größe數.yaml has 3 faults" in done.stdout.decode()
