"""The built wheel, alone in an empty environment outside of the repository, makes, plans and runs the demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.slow,
    # `make install` puts it there wherever it can be had; pip would download Spark for this test alone.
    pytest.mark.skipif(not UV.exists(), reason="uv is not installed in this environment: pip install uv"),
]


@dataclass(frozen=True)
class Installed:
    """A wheel, and the environment that holds it, what it declares, and nothing else."""

    wheel: Path
    environment: Path

    def run(self, program: str, *args: str, cwd: Path) -> str:
        done = subprocess.run(
            [str(self.environment / "bin" / program), *args],
            cwd=cwd,
            env=outside_of_the_repository(COLUMNS="120"),
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def outside_of_the_repository(**more: str) -> dict[str, str]:
    """Return the environment variables without those that lead to the packages of the tests."""
    return {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}} | more


def uv(*args: str | Path) -> None:
    """Call uv with the packages that it has stored; it asks the network only if one is missing."""
    call = [str(UV), *map(str, args)]
    for offline in (["--offline"], []):
        done = subprocess.run(
            [*call, *offline], env=outside_of_the_repository(), capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy: setuptools writes into the folder that it builds, and packs what an earlier build left there.
    source = folder / "source"
    shutil.copytree(ROOT / "gobblin_dagster", source / "gobblin_dagster", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    uv("build", "--wheel", "--quiet", "--out-dir", folder / "dist", source)
    (wheel,) = (folder / "dist").glob("*.whl")
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", sys.executable, environment)
    # Links: copies of Spark and pyarrow would take half a gigabyte of what may be memory.
    install = ("pip", "install", "--quiet", "--link-mode", "symlink", "--python", environment / "bin" / "python")
    uv(*install, "--constraint", ROOT / "constraints.txt", wheel)
    return Installed(wheel, environment)


def test_wheel_holds_every_file_of_the_package(installed: Installed) -> None:
    packed = {name for name in zipfile.ZipFile(installed.wheel).namelist() if name.startswith("gobblin_dagster/")}
    files = (path for path in (ROOT / "gobblin_dagster").rglob("*") if path.is_file())
    ours = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert ours - packed == set()
    assert packed - ours == set()


def test_demo_runs_from_the_wheel_alone(installed: Installed, tmp_path: Path) -> None:
    where = installed.run("python", "-c", "import gobblin_dagster as g; print(g.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.environment)
    assert "Made demo" in installed.run("gobblin", "init", "demo", cwd=tmp_path)
    demo = tmp_path / "demo"
    assert "6 datasets with new data" in installed.run("gobblin", "plan", cwd=demo)
    assert "6 watermarks moved, 2,850 rows read" in installed.run("gobblin", "run", cwd=demo)
