"""A file that cannot be read among readable ones: the others are published if the commit policy allows it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import run

PATTERNS = {"date": "in/{dataset}/{date:%Y%m%d}.csv", "modified": "in/{dataset}/*.csv", "name": "in/{dataset}/*.csv"}
every_way = pytest.mark.parametrize("new_files", PATTERNS)


class Folder:
    """A dataset `a` whose files contain a number each."""

    def __init__(self, root: Path, new_files: str, **parts: Any) -> None:
        self.root = root
        source = {"type": "files", "path": PATTERNS[new_files], "new_files": new_files, "format": {"type": "csv"}}
        body = {
            "job": "numbers",
            "source": source,
            "extract": {"namespace": "n", "table": "t"},
            "output": {"path": "lake"},
        }
        self.job = JobSpec.model_validate(body | {"commit": {"policy": "successful"}} | parts)
        (root / "in" / "a").mkdir(parents=True)

    def put(self, *numbers: int, text: str = "id\n{}\n") -> None:
        for number in numbers:
            (self.root / "in" / "a" / f"201301{number:02}.csv").write_text(text.format(number))

    def run(self) -> DatasetResult:
        (dataset,) = run(self.root, self.job).datasets
        return dataset

    def published(self) -> list[int]:
        files = (self.root / "lake").rglob("*.parquet")
        return sorted(int(value) for file in files for value in pq.read_table(file)["id"].to_pylist())


@every_way
@pytest.mark.parametrize("policy", ["successful", "partial"])
def test_bad_file_holds_up_others_for_few_runs(tmp_path: Path, new_files: str, policy: str) -> None:
    folder = Folder(tmp_path, new_files, commit={"policy": policy})
    folder.put(*range(1, 11))
    folder.put(11, text="id\n1,2,3\n")
    folder.put(*range(12, 29))
    good = [number for number in range(1, 29) if number != 11]
    for _ in range(3):
        result = folder.run()
    assert folder.published() == good
    (note,) = [note for note in result.notes if "failed" in note]
    assert (
        note
        == "2 run(s) of it failed; files that they tried are read at most 1 in a work unit, to separate bad from good."
    )
    assert [failure.message for failure in folder.run().failures if "20130111.csv" in failure.message]
    folder.put(11)
    assert folder.run().notes == ()
    assert folder.published() == [*range(1, 29)]


@every_way
def test_files_that_come_after_a_bad_one_are_read_together_and_at_once(tmp_path: Path, new_files: str) -> None:
    folder = Folder(tmp_path, new_files)
    folder.put(1, text="id\n1,2,3\n")
    assert folder.run().outcome == "failed"
    folder.put(2, 3, 4)
    assert folder.run().files == 1
    assert folder.published() == [2, 3, 4]


@every_way
def test_bad_file_does_not_take_all_the_room_of_a_run(tmp_path: Path, new_files: str) -> None:
    folder = Folder(tmp_path, new_files)
    options = folder.job.source.model_dump() | {"max_files_per_run": 3}
    folder.job = JobSpec.model_validate(folder.job.model_dump() | {"source": options})
    folder.put(*range(1, 9))
    folder.put(2, text="id\n1,2,3\n")
    for _ in range(7):
        folder.run()
    assert folder.published() == [1, *range(3, 9)]


def test_run_that_cannot_list_a_folder_says_nothing_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path, "name")
    folder.put(*range(1, 9))
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("/in/a"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        assert [folder.run().outcome, folder.run().outcome] == ["failed", "failed"]
    result = folder.run()
    assert (result.files, result.notes) == (1, ())
    assert folder.published() == [*range(1, 9)]


def test_where_nothing_is_published_beside_what_failed_work_units_stay_as_they_are(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "name", commit={"policy": "full"})
    folder.put(*range(1, 9))
    folder.put(2, text="id\n1,2,3\n")
    assert [folder.run().outcome, folder.run().outcome] == ["failed", "failed"]
    folder.put(2)
    assert folder.run().files == 1
    assert folder.published() == [*range(1, 9)]
