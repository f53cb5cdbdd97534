"""`gobblin commit recover` in a process of its own, where the job says nothing any more of what its sequence has to
do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from gobblin_dagster.constructs.publishers import STEP_MODULES
from tests.unit.cli.conftest import Cli, write_job

from .conftest import kill_run

PACKAGES = ("confluent_kafka", "deltalake", "pyiceberg")
DATASETS = {"a": {"rows": 25}}


def settings(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}


def _before_others(folder: Path) -> str:
    """Return PYTHONPATH with a folder before those that it has: in a work tree of its own it names the package."""
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def recover(cli: Cli) -> tuple[int, str]:
    called = cli("commit", "recover", "--output", "json")
    return called.code, _outcome(called.out)


def recover_without(hidden: Path) -> tuple[int, str]:
    """Call the command in a process of its own; modules in a folder hide installed ones."""
    command = [sys.executable, "-m", "gobblin_dagster", "commit", "recover", "--output", "json"]
    environment = os.environ | {"PYTHONPATH": _before_others(hidden)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, _outcome(done.stdout)


def _outcome(said: str) -> str:
    (recovered,) = json.loads(said)["recovered"]
    assert recovered["dataset"] == "a"
    assert not recovered["audit"] or recovered["audit"]["lost"] == 0
    return f"{recovered['state']}: {recovered['reason']}"


@pytest.fixture
def killed(project: Path) -> Path:
    """A job whose file was in place, but not yet in its Iceberg table, when its run was killed; it then lost its
    publisher."""
    publisher = {"type": "iceberg", "table": "lake.numbers", "catalog": settings(project)}
    write_job(project, DATASETS, publisher=publisher, commit={"redo_limit": 1})
    kill_run(project)
    write_job(project, DATASETS, commit={"redo_limit": 1})
    return project


def test_step_of_a_publisher_that_the_job_no_longer_has_is_done(cli: Cli, killed: Path) -> None:
    assert recover(cli) == (0, "committed: ")
    table = load_catalog("default", **settings(killed)).load_table("lake.numbers")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(25))


def test_sequence_waits_for_a_package_that_is_not_installed(cli: Cli, killed: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyiceberg.py").write_text("raise ModuleNotFoundError('No module named pyiceberg')\n")
    for _ in range(2):  # more often than `redo_limit` allows faults of the sequence itself
        code, outcome = recover_without(hidden)
        assert code == 1
        assert outcome.startswith("prepared: ")
        assert "pip install 'gobblin-dagster[iceberg]'" in outcome
    assert recover(cli) == (0, "committed: ")


def test_every_step_of_a_publisher_is_read_without_optional_packages() -> None:
    program = f"""
import sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))
from gobblin_dagster.constructs.publishers import STEP_MODULES
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.engine.commit import step_from_json
assert not sys.modules.keys() & set(STEP_MODULES.values())
for name in STEP_MODULES:
    try:
        step_from_json({{"type": name, "version": 1}})
    except CorruptRecordError as error:
        print(error.what, error.problem)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert len(told) == len(STEP_MODULES)
    assert all("Error" in line and "not registered" not in line for line in told), told
