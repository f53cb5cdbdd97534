"""The benchmark runs, compares the rows of both sides, and prints its table. Its figures are not judged here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.slow]

# What little work costs is the start of the JVMs: these compile less, and collect in one thread.
SMALL_JVM = {
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=160m "
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
}


@pytest.mark.storm
def test_benchmark_prints_a_ratio_per_scenario_and_the_idle_run(tmp_path: Path) -> None:
    sizes = ["--rows", "3200", "--datasets", "5", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "benchmarks/run.py", *sizes, "--cache", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, **SMALL_JVM},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same rows") == 2
    assert done.stdout.count("cold") == done.stdout.count("warm") == 2
    assert "Idle run over 5 datasets" in done.stdout
    assert "Spark not started, dataset states read in 1 query" in " ".join(done.stdout.split())


def test_quick_benchmarks_with_little_work_make_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "benchmarks/all.py", "--smoke", "--page", str(page)],
        cwd=ROOT,
        env={**os.environ, **SMALL_JVM},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "publish 100 staged files" in done.stdout
    assert "of its speed" in done.stdout
    text = page.read_text()
    assert text.count("<h2>") == text.count("<pre>") >= 2
    assert "publish 100 staged files" in text


@pytest.mark.postgres
def test_service_benchmark_prints_its_figures() -> None:
    sizes = ["--flows", "100", "--due", "150", "--seconds", "1", "--runs", "0"]
    done = subprocess.run(
        [sys.executable, "benchmarks/service.py", *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    assert "claims: 150 flows due at one moment, each with a durable execution" in done.stdout
    assert "catalog: 100 flows in PostgreSQL" in done.stdout
    assert done.stdout.count("worst of 20") == 8
    assert "0 errors" in done.stdout
