"""Logs of Delta tables with a damaged file: which one is named, and whether what is said to do helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from gobblin_dagster.constructs.publishers.delta_log import DeltaLog

USELESS = f"{3:020}.checkpoint.parquet of its log cannot be read; bring the checkpoint back from a copy of the table, "
LOST = 'bring the file back from a copy of the table. If there is none, write `{"commitInfo":{}}` into it'


class Log:
    """The log of a table with a row in each of four versions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for number in range(4):
            write_deltalake(root, pa.table({"id": [number]}), mode="append")

    def version(self, number: int) -> Path:
        return self.root / f"_delta_log/{number:020}.json"

    @property
    def hint(self) -> Path:
        return self.root / "_delta_log/_last_checkpoint"

    def checkpoint(self) -> Path:
        DeltaTable(self.root).create_checkpoint()
        (found,) = self.hint.parent.glob("*.checkpoint.parquet")
        return found

    def cut_checkpoint(self, *lacking: int) -> None:
        found = self.checkpoint()
        found.write_bytes(found.read_bytes()[:100])
        for number in lacking:
            self.version(number).unlink()

    def look(self) -> DeltaLog:
        return DeltaLog.listed(str(self.root), {})


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def cut(path: Path, kept_bytes: int) -> int:
    return path.write_bytes(path.read_bytes()[:kept_bytes])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda log: cut(log.version(2), 0),
            f"{2:020}.json of its log has 0 bytes: what it changed is lost; {LOST}",
        ),
        (lambda log: log.version(2).write_text("\n"), f"{2:020}.json of its log has 1 bytes"),
        (
            lambda log: (log.checkpoint(), cut(log.version(2), 0)),
            f"{2:020}.json of its log has 0 bytes: what it changed is lost, unless checkpoint 3 was made",
        ),
        (lambda log: cut(log.version(0), 0), "is lost; bring the file back from a copy of the table"),
        (lambda log: cut(log.version(2), 50), f"{2:020}.json of its log cannot be read (Unterminated string"),
        (
            lambda log: log.version(2).write_bytes(bytes(500)),
            "02.json of its log cannot be read (Expecting value",
        ),
        (lambda log: log.version(2).write_bytes(b"\xff" * 50), f"{2:020}.json of its log cannot be read ('utf-8'"),
        (lambda log: log.version(2).write_text("[1, 2, 3]"), f"{2:020}.json of its log cannot be read; bring"),
        (lambda log: log.version(2).unlink(), f"{2:020}.json of its log is missing; bring it back"),
        (
            Log.cut_checkpoint,
            f"{USELESS}or delete {3:020}.checkpoint.parquet and _last_checkpoint: the log is whole without",
        ),
        (
            lambda log: log.cut_checkpoint(0),
            f"{USELESS}because versions that it replaced are gone",
        ),
        (
            lambda log: log.hint.write_text('{"version":9,"size":1}'),
            "_last_checkpoint of its log names checkpoint 9, which is not there; bring the checkpoint back from a copy "
            "of the table, or delete _last_checkpoint: the log is whole without",
        ),
    ],
    ids=[
        "empty",
        "line",
        "empty-below",
        "first",
        "cut",
        "zeros",
        "bytes",
        "list",
        "gone",
        "checkpoint",
        "only",
        "hint",
    ],
)
def test_damaged_file_is_named_with_what_to_do(log: Log, damage: Callable[[Log], object], said: str) -> None:
    assert not log.look().fault()
    damage(log)
    assert said in log.look().fault()


def test_table_is_whole_without_the_files_that_are_said_to_be_useless(log: Log) -> None:
    log.cut_checkpoint()
    with pytest.raises(DeltaError):
        DeltaTable(log.root)
    for name in log.look().fault().partition("or delete ")[2].partition(":")[0].split(" and "):
        (log.root / "_delta_log" / name).unlink()
    assert not log.look().fault()
    assert DeltaTable(log.root).count() == 4


def test_version_that_was_given_up_is_no_damage(log: Log) -> None:
    log.version(2).write_text('{"commitInfo":{}}')
    assert not log.look().fault()
    assert DeltaTable(log.root).version() == 3
    assert DeltaTable(log.root).count() == 3


def test_file_of_another_name_is_no_version(log: Log) -> None:
    log.version(10**20 - 1).write_bytes(log.version(3).read_bytes())
    assert f"{4:020}.json of its log is missing" in log.look().fault()
    log.version(10**20 - 1).unlink()
    (log.version(0).parent / "notes.json").touch()
    assert not log.look().fault()
