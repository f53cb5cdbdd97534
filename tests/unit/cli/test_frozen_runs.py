"""A run freezes while it publishes to a table, a person calls a command, and the run goes on: early or late, every row
is there once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.publishers.delta_steps import AppendToDeltaStep, MergeIntoDeltaStep
from gobblin_dagster.constructs.publishers.iceberg_steps import AppendToIcebergStep, MergeIntoIcebergStep
from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import LocalStorage
from tests.unit.cli.conftest import Cli, write_job
from tests.unit.engine.test_lost_ledger import APPEND, file_table, table_ids

pytestmark = pytest.mark.usefixtures("inline")

STEPS = {
    "append to SQL": LoadSqlTableStep,
    "upsert to SQL": LoadSqlTableStep,
    "append to Delta": AppendToDeltaStep,
    "merge to Delta": MergeIntoDeltaStep,
    "append to Iceberg": AppendToIcebergStep,
    "merge to Iceberg": MergeIntoIcebergStep,
}
MODES: dict[str, dict[str, Any]] = {
    "upsert": {"mode": "upsert", "key": ["id"]},
    "merge": {"mode": "merge", "key": ["id"]},
}
COMMANDS: Sequence[Sequence[Sequence[str]]] = [
    [["commit", "abandon", "ID", "--yes"]] * 2,
    [["commit", "recover"]],
    [["rollback", "a", "--to", "1", "--yes"]],
    [["state", "reset", "a", "--yes"]],
    [["startpoint", "set", "a", "--oldest"]],
    [["clean"]],
    [["run"]],
    [["verify", "--repair"]],
    [["state", "export", "all.json"], ["state", "import", "all.json", "--yes"]],
]
"""`ID` is the commit that waits."""


@dataclass
class Frozen:
    """A step that a run was about to do."""

    step: Any
    execute: Any

    def wake(self) -> None:
        with suppress(GobblinDagsterError):  # it may be refused, but not do harm
            self.execute(self.step, LocalStorage())


def freeze(cli: Cli, step: type[Any], monkeypatch: pytest.MonkeyPatch) -> Frozen:
    """Run the job until it is about to do a step."""
    frozen: list[Any] = []
    execute = step.execute

    def stop(self: Any, _: Storage) -> None:
        frozen.append(self)
        raise OSError("frozen")

    with monkeypatch.context() as patched:
        patched.setattr(step, "execute", stop)
        assert cli("run").code == 1
    return Frozen(frozen[0], execute)


@pytest.mark.parametrize("has_rows", [True, False], ids=["more", "first"])
@pytest.mark.parametrize("is_early", [True, False], ids=["early", "late"])
@pytest.mark.parametrize("commands", COMMANDS, ids=lambda commands: "-".join(commands[0][:2]))
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.storm
def test_every_row_is_there_once(
    cli: Cli,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    commands: Sequence[Sequence[str]],
    is_early: bool,
    has_rows: bool,
) -> None:
    mode, _, target = kind.split()
    publisher: dict[str, Any] = APPEND
    read: Callable[[], list[int]] = partial(table_ids, project)
    if target != "SQL":
        publisher, read = file_table(project, target.lower())
    parts: dict[str, Any] = {"fork": {"branches": [{"name": "all", "publisher": publisher | MODES.get(mode, {})}]}}
    if has_rows:
        write_job(project, {"a": {"rows": 10}}, **parts)
        assert cli("run").code == 0
    write_job(project, {"a": {"rows": 20}}, **parts)
    frozen = freeze(cli, STEPS[kind], monkeypatch)
    for words in commands:
        cli(*(frozen.step.commit.commit_id if word == "ID" else word for word in words))
    if is_early:
        frozen.wake()
    cli("run")
    if not is_early:
        frozen.wake()
    write_job(project, {"a": {"rows": 30}}, **parts)
    cli("run")
    last = cli("run")
    assert last.code == 0, last.out + last.err
    assert read() == list(range(30))
