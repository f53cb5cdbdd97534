from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gobblin_dagster.engine.spark.worker_daemon import ENVIRONMENT, without_archives


def _package(folder: Path, name: str) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package


def test_archives_inside_the_installed_pyspark_are_left_out(tmp_path: Path) -> None:
    spark = _package(tmp_path, "pyspark")
    _package(tmp_path, "py4j")
    inside = [str(spark / "python" / "lib" / "pyspark.zip"), str(spark / "jars" / "spark-core.jar")]
    others = ["/job/libs.zip", str(tmp_path)]
    assert without_archives([*inside, *others]) == others


@pytest.mark.parametrize("installed", [["pyspark"], ["py4j"], []])
def test_path_stays_where_leaving_out_would_hide_a_package(tmp_path: Path, installed: list[str]) -> None:
    for name in installed:
        _package(tmp_path, name)
    path = [str(tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"), str(tmp_path)]
    assert without_archives(path) == path


def test_modules_that_workers_inherit_are_not_searched_for_cycles_after_every_task() -> None:
    as_spark_does = "from gobblin_dagster.engine.spark.worker_daemon import main; main()"
    replaced = "import gc, pyspark.daemon; pyspark.daemon.manager = lambda: print(gc.get_freeze_count())"
    done = subprocess.run(
        [sys.executable, "-c", f"{replaced}; {as_spark_does}"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 50_000


def test_modules_of_the_current_folder_do_not_hide_those_of_python(tmp_path: Path) -> None:
    (tmp_path / "queue.py").touch()
    given = {name.removeprefix("spark.executorEnv."): value for name, value in ENVIRONMENT.items()}
    here = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-m", "gobblin_dagster.engine.spark.worker_daemon"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(here), **given},
        stdin=subprocess.DEVNULL,  # its end ends the daemon
        capture_output=True,
        check=False,  # it ends with 1 even if it was told to end
    )
    assert len(done.stdout) == 4, "the number of its port"
