"""A project whose run was killed: one process is killed, and each test gets a copy of what it left."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gobblin_dagster.storage import LocalStorage
from tests.unit.cli.conftest import write_project

KILLED = """
import sys
import gobblin_dagster.cli.spark as spark
from gobblin_dagster.cli.program import run_command
from gobblin_dagster.testing.inline_runner import InlineRunner
spark.LazySparkRunner = lambda *settings: InlineRunner()
sys.exit(run_command(["run", "--crash-at", sys.argv[1]]))
"""


def kill_run(root: Path) -> None:
    """Run the job of a project in a process that is killed after its first commit step."""
    assert subprocess.run([sys.executable, "-c", KILLED, "commit:1"], cwd=root, check=False).returncode == -9


@pytest.fixture(scope="session")
def _left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    write_project(root)
    kill_run(root)
    return root


@pytest.fixture
def killed(project: Path, _left_behind: Path) -> Path:
    """A project whose run was killed after its first commit step."""
    shutil.copytree(_left_behind, project, dirs_exist_ok=True)
    return project


@contextmanager
def no_manifests() -> Iterator[None]:
    """Let no manifest be written, as a folder of another user's does."""
    put = LocalStorage.put_if_absent

    def refuse(self: LocalStorage, path: str, content: bytes) -> bool:
        if "/manifests/" in path:
            raise PermissionError(13, "Permission denied", path)
        return put(self, path, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", refuse)
        yield
