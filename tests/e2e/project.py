"""A small project of CSV files, and the `gobblin` command run in it as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GOBBLIN = [sys.executable, "-m", "gobblin_dagster"]

WITH_SPARK = "project: shop\n"
WITHOUT_SPARK = "project: shop\nspark: {start: when_needed}\n"
JOB = """\
job: orders
source:
  type: files
  path: data/{dataset}/{date:%Y-%m-%d}.csv
  format: {type: csv, columns: {id: int64, amount: float64}}
extract: {namespace: shop, table: orders}
output: {path: lake}
"""


def make_project(root: Path, job: str = JOB, settings: str = WITHOUT_SPARK) -> Path:
    """Write a project with one job and no data; its runs need no Spark, which takes ten seconds to start."""
    (root / "jobs").mkdir(parents=True)
    (root / "gobblin.yaml").write_text(settings)
    (root / "jobs" / "orders.yaml").write_text(job)
    return root


def put(root: Path, path: str, content: str | bytes) -> Path:
    """Write a data file below `data`."""
    file = root / "data" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def gobblin(root: Path, *args: str, timeout: int = 180, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return what it said."""
    return subprocess.run(
        [*GOBBLIN, *args],
        cwd=root,
        env={**os.environ, "COLUMNS": "120", **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def flat(text: str) -> str:
    """Return a text with all white space folded, so that a wrapped message can be looked for."""
    return " ".join(text.split())
