"""Ctrl-C during a real run: the signal goes to the whole process group, as a terminal sends it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .project import GOBBLIN, WITH_SPARK, WITHOUT_SPARK, flat, gobblin, make_project

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

SLOW_SOURCE = """\
import time

from gobblin_dagster.testing.rows_source import RowsExtractor, RowsSource


class SlowExtractor(RowsExtractor):
    def chunks(self):
        for chunk in super().chunks():
            time.sleep(0.1)
            yield chunk


class SlowSource(RowsSource):
    def extractor(self, unit):
        return SlowExtractor(unit, self._options.datasets[unit.dataset_urn], self._options.batch_rows)
"""
QUICK_SOURCE = SLOW_SOURCE.replace("time.sleep(0.1)", "time.sleep(0)")
DATASETS = [f"d{number:02}" for number in range(24)]
ROWS = ", ".join(f"{urn}: {{rows: 1000}}" for urn in DATASETS)
JOB = f"""\
job: slow
source:
  type: slow:SlowSource
  datasets: {{{ROWS}}}
extract: {{namespace: test, table: slow}}
output: {{path: lake}}
"""


def _start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*GOBBLIN, "run"],
        cwd=root,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _wait_for(run: subprocess.Popen[str], text: str) -> list[str]:
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if line.startswith(text):
            return lines
    raise AssertionError(f"never said {text!r}: {''.join(lines)}")


def _rows(root: Path) -> dict[str, int]:
    lake = root / "lake/test/slow/main"
    return {urn: pq.read_table(lake / urn).num_rows for urn in DATASETS if (lake / urn).exists()}


def test_first_interrupt_commits_what_is_whole_and_the_next_run_reads_the_rest(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p", JOB, WITH_SPARK)
    (root / "slow.py").write_text(SLOW_SOURCE)
    run = _start(root)
    _wait_for(run, "read ")
    os.killpg(run.pid, signal.SIGINT)
    said = run.communicate(timeout=240)[0]
    assert run.returncode == 130, said
    published = _rows(root)
    assert 1 <= len(published) < len(DATASETS), said
    assert set(published.values()) == {1000}
    assert "running work units end" in flat(said) or "interrupt" in flat(said).lower()
    (root / "gobblin.yaml").write_text(WITHOUT_SPARK)
    (root / "slow.py").write_text(QUICK_SOURCE)
    assert gobblin(root, "run").returncode == 0
    assert _rows(root) == dict.fromkeys(DATASETS, 1000)


def test_second_interrupt_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    root = make_project(tmp_path / "p", JOB.replace("rows: 1000", "rows: 20000"), WITH_SPARK)
    (root / "slow.py").write_text(SLOW_SOURCE)
    run = _start(root)
    _wait_for(run, "Spark starts")
    os.killpg(run.pid, signal.SIGINT)
    _wait_for(run, "")
    os.killpg(run.pid, signal.SIGINT)
    said = run.communicate(timeout=240)[0]
    assert run.returncode == 130, said
    assert _rows(root) == {}
    root.joinpath("jobs/orders.yaml").write_text(JOB)
    (root / "gobblin.yaml").write_text(WITHOUT_SPARK)
    (root / "slow.py").write_text(QUICK_SOURCE)
    assert gobblin(root, "run").returncode == 0
    assert _rows(root) == dict.fromkeys(DATASETS, 1000)
