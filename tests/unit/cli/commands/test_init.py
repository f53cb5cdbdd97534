from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli, Terminal


def test_init_makes_a_project_that_checks_and_plans(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "demo"
    called = cli("init", target)
    assert called.code == 0
    assert called.out.splitlines()[-1] == f"Next: cd {target} && gobblin run"
    assert cli("-C", target, "check").code == 0
    (job,) = cli("-C", target, "plan", "-o", "json").json()["jobs"]
    assert len(job["datasets"]) >= 3
    assert job["has_changes"]


def test_init_shows_control_characters_of_its_folder(cli: Cli, tmp_path: Path) -> None:
    called = cli("init", tmp_path / "de\x1b[2Jmo")
    assert called.code == 0
    assert "\x1b" not in called.out
    assert called.out.splitlines()[-1] == f"Next: cd {tmp_path}/de\\x1b[2Jmo && gobblin run"


def test_init_refuses_a_folder_that_holds_something(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    called = cli("init", tmp_path)
    assert called.code == 2
    assert "is not an empty folder" in called.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("options", "typed", "asked"),
    [
        ((), "files\n{place}\n", ["Which data (demo, files, query, kafka, rest) [demo]:", "Place (the folder of"]),
        ((), "csv\nFiles \n {place} \n", ["expected one of demo, files, query, kafka, rest, got 'csv'"]),
        (("--source", "files"), "{place}\n", ["Place (the folder of your files):"]),
        (("--from", "{place}"), "demo\nfiles\n", ["Which data (files, query, kafka, rest):", "got 'demo'"]),
    ],
)
def test_init_asks_for_what_is_missing_on_a_terminal(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    typed: str,
    asked: list[str],
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "a.csv").write_text("n\n1\n")
    monkeypatch.setattr("sys.stdin", Terminal(typed.format(place=place)))
    called = cli("init", tmp_path / "p", *(option.format(place=place) for option in options))
    assert called.code == 0
    assert [text for text in asked if text not in called.err] == []
    assert "types inferred from 1 row of 1 file: int64: n." in " ".join(called.out.split())
    assert (tmp_path / "p" / "jobs" / "in.yaml").exists()


@pytest.mark.parametrize(("options", "typed"), [((), "\n"), ((), "demo\n"), (("--template", "demo"), "")])
def test_init_makes_the_demo_on_a_terminal(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], typed: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    called = cli("init", tmp_path / "demo", *options)
    assert (called.code, "Which data" in called.err) == (0, bool(typed))
    assert (tmp_path / "demo" / "jobs" / "flights.yaml").exists()


def test_init_asks_nothing_if_the_folder_is_in_use(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setattr("sys.stdin", Terminal("files\n"))
    called = cli("init", tmp_path)
    assert (called.code, "Which data" in called.err, "is not an empty folder" in called.err) == (2, False, True)
