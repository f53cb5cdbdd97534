from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_init_makes_a_project_that_checks_and_plans(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "demo"
    called = cli("init", target)
    assert called.code == 0
    assert called.out.splitlines()[-1] == f"Next: cd {target} && gobblin run"
    assert cli("-C", target, "check").code == 0
    (job,) = cli("-C", target, "plan", "-o", "json").json()["jobs"]
    assert len(job["datasets"]) >= 3
    assert job["has_changes"]


def test_init_refuses_a_folder_that_holds_something(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    called = cli("init", tmp_path)
    assert called.code == 2
    assert "is not an empty folder" in called.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
