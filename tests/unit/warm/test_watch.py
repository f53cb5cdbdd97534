from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gobblin_dagster.warm.watch import Watch

ENVIRONMENT = {"A": "1", "TERM": "xterm"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "gobblin.yaml").write_text("project: x\n")
    (tmp_path / "own.py").write_text("A = 1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.py").write_text("B = 1\n")
    (tmp_path / "data" / "days").mkdir(parents=True)
    return tmp_path


def touch(path: Path, text: str = "changed = True\n") -> None:
    path.write_text(text)
    os.utime(path, (1, 1))


def test_nothing_changed(root: Path) -> None:
    watch = Watch(root, ENVIRONMENT)
    (root / "jobs.yaml").write_text("read again by each command")
    (root / "data" / "days" / "1.csv").write_text("a")
    assert watch.changed(ENVIRONMENT | {"TERM": "dumb", "COLUMNS": "80"}) == ""


@pytest.mark.parametrize("name", ["gobblin.yaml", "own.py", "parts/more.py", "new.py", "parts/new.py"])
def test_changed_and_new_files_are_noticed(root: Path, name: str) -> None:
    watch = Watch(root, ENVIRONMENT)
    touch(root / name)
    assert str(root) in watch.changed(ENVIRONMENT)


def test_deleted_code_is_noticed(root: Path) -> None:
    watch = Watch(root, ENVIRONMENT)
    (root / "parts" / "more.py").unlink()
    assert "Python files" in watch.changed(ENVIRONMENT)


def test_environment_is_named_without_its_values(root: Path) -> None:
    watch = Watch(root, ENVIRONMENT | {"GONE": "x"})
    said = watch.changed(ENVIRONMENT | {"A": "secret", "NEW": "y"})
    assert said == "the environment changed: A, GONE, NEW"


def test_modules_imported_later_are_watched(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "warm_probe.py").write_text("A = 1\n")
    os.utime(folder / "warm_probe.py", (1, 1))
    monkeypatch.syspath_prepend(str(folder))
    watch = Watch(root, ENVIRONMENT)
    __import__("warm_probe")
    watch.learn(time.time())
    assert watch.changed(ENVIRONMENT) == ""
    (folder / "warm_probe.py").write_text("A = 22\n")
    assert "warm_probe.py changed" in watch.changed(ENVIRONMENT)
    del sys.modules["warm_probe"]


def test_module_written_while_a_command_ran_counts_as_changed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "later"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    watch = Watch(root, ENVIRONMENT)
    (folder / "warm_probe_two.py").write_text("A = 1\n")
    __import__("warm_probe_two")
    watch.learn(time.time() - 60)
    assert "warm_probe_two.py changed" in watch.changed(ENVIRONMENT)
    del sys.modules["warm_probe_two"]
