from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gobblin_dagster.cli import warm
from gobblin_dagster.warm import client
from gobblin_dagster.warm.client import Refusal

WARM = "project: x\nspark: {keep_warm: 15m}\n"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], bool]]:
    """Return what was handed over: project, command line, whether a worker may be started."""
    calls: list[tuple[str, list[str], bool]] = []

    def take(root: Path, arguments: Sequence[str], *, may_start: bool) -> int | Refusal:
        calls.append((root.name, list(arguments), may_start))
        return Refusal("busy") if "--refuse" in arguments else 4

    monkeypatch.setattr(client, "run_in_worker", take)
    monkeypatch.delenv("GOBBLIN_PROJECT", raising=False)
    return calls


def make(root: Path, text: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "gobblin.yaml").write_text(text)
    return root


@pytest.mark.parametrize(
    "before", [("-C", "{p}"), ("--project", "{p}"), ("--project={p}",), ("-C{p}",), ("-C", "{p}/jobs")]
)
def test_run_is_handed_over(given: list[object], tmp_path: Path, before: tuple[str, ...]) -> None:
    root = make(tmp_path / "shop", WARM)
    (root / "jobs").mkdir()
    words = [*(word.format(p=root) for word in before), "run", "flights"]
    assert warm.hand_over(words) == 4
    assert given == [("shop", words, True)]


def test_project_is_found_upwards_and_by_its_variable(
    given: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "shop", WARM)
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(root / "a" / "b")
    assert warm.hand_over(["run"]) == 4
    monkeypatch.chdir(tmp_path)
    assert warm.hand_over(["run"]) is None
    monkeypatch.setenv("GOBBLIN_PROJECT", "shop")
    assert warm.hand_over(["run"]) == 4


def test_plan_starts_no_worker(given: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(tmp_path / "shop", WARM))
    assert warm.hand_over(["plan"]) == 4
    assert given == [("shop", ["plan"], False)]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["state", "list"],
        ["--help"],
        ["run", "--help"],
        ["run", "-h"],
        ["run", "--crash-at", "commit:2"],
        ["run", "--crash-at=commit:2"],
        ["--wrong", "run"],
        ["-C"],
        ["-C", "/nowhere/at/all", "run"],
        ["run", "--refuse"],
    ],
)
def test_other_commands_run_here(
    given: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(make(tmp_path / "shop", WARM))
    assert warm.hand_over(words) is None


@pytest.mark.parametrize(
    "text",
    [
        "project: x\n",
        "project: x\n# spark: {keep_warm: 15m}\n",
        "project: x\nspark:\n",
        "keep_warm: [",
        "spark: {keep_warm: }\n",
        "- keep_warm",
    ],
)
def test_projects_without_keep_warm_and_faulty_ones_run_here(
    given: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(make(tmp_path / "shop", text))
    assert warm.hand_over(["run"]) is None
    assert not given
