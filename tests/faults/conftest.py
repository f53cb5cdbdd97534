"""A scratch folder in memory where there is one: thousands of small synced files are written; and cheap forks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.huge_pages import make_pages_huge

MEMORY = Path("/dev/shm")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="gobblin-faults-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", autouse=True)
def cheap_forks() -> None:
    """Again for each module, because memory grows; what is huge already costs nothing."""
    make_pages_huge()
