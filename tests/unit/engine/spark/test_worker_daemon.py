from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.engine.spark.worker_daemon import without_archives


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
