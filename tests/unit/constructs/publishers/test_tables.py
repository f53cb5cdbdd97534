"""Tables of files that several datasets of one process change at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.constructs.publishers.lake import STORAGE, Lake, rows


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_no_append_of_those_that_are_made_at_once_is_in_vain(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobblin_dagster.constructs.publishers.tables.TRIES", 1)
    lake, ids = Lake(kind, tmp_path), range(4)
    steps = [
        lake.step(rows((number, "a")), mode="append", key=[], in_place=True, branch=f"b{number}") for number in ids
    ]
    with ThreadPoolExecutor(len(steps)) as threads:
        list(threads.map(lambda step: step.execute(STORAGE), steps))
    assert [row["id"] for row in lake.rows()] == [*ids]
