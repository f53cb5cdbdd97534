"""`compare`: files that changed are distinguished from files that were only touched, by their contents."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.sources.files import checksums
from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.constructs.sources.files.pattern import NO_DATE
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, InvalidSpecError
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.watermark.file_set import FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.storage import checksums as stored_checksums
from tests.unit.constructs.sources.files.test_new_files import Folder
from tests.unit.constructs.sources.files.test_source import source

ANEW = timedelta(minutes=5)
"""Age of files written after a first run."""


def folder_of(root: Path, compare: str = "checksum", **options: Any) -> Folder:
    return Folder(root, "in/{dataset}/*.csv", compare=compare, **options)


def versions(folder: Folder) -> dict[str, FileVersion]:
    assert folder.state is not None
    found: dict[str, Any] = {name: parts[-1][1] for name, parts in folder.state.committed.ranges.items()}
    return found


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose bytes were read for a checksum, in no order."""
    names: list[str] = []
    digest = stored_checksums._digest

    def counted(path: str, kind: str) -> str:
        names.append(Path(path).name)
        return digest(path, kind)

    monkeypatch.setattr(stored_checksums, "_digest", counted)
    return names


# -- what is the same --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=400)], ids=["later", "earlier"])
def test_touched_file_has_not_changed_and_is_looked_at_once(tmp_path: Path, taken: list[str], age: timedelta) -> None:
    folder = folder_of(tmp_path, read_changed="again")
    folder.put("in/a/x.csv")
    folder.put("in/a/y.csv")
    assert folder.run() == ["x.csv", "y.csv"]
    assert sorted(taken) == ["x.csv", "y.csv"]
    folder.put("in/a/x.csv", age=age)
    taken.clear()
    (note,) = folder.plan().notes
    assert note == "1 file(s) have a new time of change and the same content; the new time is stored: in/a/x.csv."
    assert folder.run() == []
    assert taken == ["x.csv"] * 2
    assert folder.plan().notes == []
    assert folder.plan().work_units == ()
    assert taken == ["x.csv"] * 2


def test_note_of_a_touched_file_is_a_unit_that_reads_nothing(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")
    folder.run()
    folder.put("in/a/x.csv", age=ANEW)
    (unit,) = folder.plan().work_units
    assert (unit.is_noted, unit.is_empty, unit.rows, unit.files) == (True, True, 0, 0)
    assert "files" not in unit.read
    assert source(tmp_path, folder.path, **folder.options).preview_schema(unit) is None


def test_rows_of_a_touched_file_can_be_counted_anew(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv", "id\n1\n2\n")
    folder.run()
    folder.put("in/a/x.csv", "id\n1\n2\n", age=ANEW)
    folder.run()
    assert folder.state is not None
    assert versions(folder)["a/x.csv"].contents == 1
    assert source(tmp_path, folder.path, **folder.options).count_rows("a", folder.state.committed) == 2


def test_many_touched_files_are_told_by_their_number(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for age in (timedelta(hours=1), ANEW):
        for number in range(8):
            folder.put(f"in/a/{number}.csv", age=age)
        notes = folder.plan().notes
        folder.run()
    assert notes == [
        "8 file(s) have a new time of change and the same content; the new time is stored: "
        + ", ".join(f"in/a/{number}.csv" for number in range(5))
        + " and 3 more."
    ]


def test_more_files_are_looked_at_than_at_once(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, read_changed="again")
    names = [f"{number}.csv" for number in range(8)]
    for name in names:
        folder.put(f"in/a/{name}", f"id\n{name}\n")
    assert folder.run() == names
    for name in names:
        folder.put(f"in/a/{name}", f"id\n{name}\n" if name != "5.csv" else "id\nother\n", age=ANEW)
    assert folder.run() == ["5.csv"]
    assert {one.checksum for one in versions(folder).values() if one.contents == 1} == {
        "sha256=" + hashlib.sha256(f"id\n{name}\n".encode()).hexdigest() for name in names if name != "5.csv"
    }


def test_file_of_the_size_and_time_that_were_read_is_not_looked_at(tmp_path: Path, taken: list[str]) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv", "id\n1\n")
    folder.run()
    folder.put("in/a/x.csv", "id\n2\n")
    taken.clear()
    assert (folder.plan().work_units, folder.plan().notes, taken) == ((), [], [])


# -- what changed ------------------------------------------------------------------------------------------------------
def test_changed_file_is_told_by_its_content(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, read_changed="again")
    folder.put("in/a/x.csv", "id\n1\n")
    folder.put("in/a/y.csv", "id\n1\n")
    folder.run()
    folder.put("in/a/x.csv", "id\n2\n", age=ANEW)
    folder.put("in/a/y.csv", "id\n1\n", age=ANEW)
    assert "they are read again, whole: in/a/x.csv (replaced)." in folder.plan().notes[1]
    assert folder.run() == ["x.csv"]
    assert folder.run() == []
    assert {name: (one.contents, one.noted) for name, one in versions(folder).items()} == {
        "a/x.csv": (2, 0),
        "a/y.csv": (1, 1),
    }


def test_file_of_another_size_is_changed_without_looking(tmp_path: Path, taken: list[str]) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv", "id\n1\n")
    folder.run()
    folder.put("in/a/x.csv", "id\n1\n2\n", age=ANEW)
    taken.clear()
    assert "in/a/x.csv (grew from 5 to 7 bytes)" in folder.plan().notes[0]
    assert taken == []


def test_touched_file_does_not_fail_its_dataset_and_a_changed_one_does(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, read_changed="fail")
    folder.put("in/a/x.csv", "id\n1\n")
    folder.run()
    folder.put("in/a/x.csv", "id\n1\n", age=ANEW)
    assert folder.plan().problem == ""
    folder.put("in/a/x.csv", "id\n2\n", age=ANEW)
    offer = folder.plan()
    assert offer.problem.startswith("1 file(s) changed after they were read, and `read_changed` is `fail`: in/a/x.csv")
    assert offer.work_units == ()


def test_replacement_of_the_same_size_and_time_is_seen_where_files_are_always_compared(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "checksum_always", read_changed="again")
    folder.put("in/a/x.csv", "id\n1\n")
    folder.run()
    assert folder.run() == []
    folder.put("in/a/x.csv", "id\n2\n")
    assert folder.run() == ["x.csv"]
    assert folder.run() == []


# -- with a window of dates --------------------------------------------------------------------------------------------
def test_touched_file_of_the_window_has_not_changed(tmp_path: Path) -> None:
    path = "in/{dataset}/{date:%Y-%m-%d}.csv"
    folder = Folder(tmp_path, path, compare="checksum", lookback=2, read_changed="again")
    for day in range(1, 6):
        folder.put(f"in/a/2013-01-0{day}.csv")
    assert len(folder.run()) == 5
    for day in range(1, 6):
        folder.put(f"in/a/2013-01-0{day}.csv", age=ANEW)
    assert folder.run() == []
    folder.put("in/a/2013-01-04.csv", "id\n2\n", age=timedelta(0))
    folder.put("in/a/2013-01-09.csv", age=timedelta(0))
    assert folder.run() == ["2013-01-04.csv", "2013-01-09.csv"]
    assert folder.run() == []
    assert folder.plan().notes == []


# -- states without checksums ------------------------------------------------------------------------------------------
def old_state(folder: Folder) -> None:
    """Let the folder be read without checksums, and its state be one that an earlier version wrote."""
    options, folder.options = folder.options, {}
    folder.run()
    folder.options = options
    assert folder.state is not None
    stored = json.loads(to_json(folder.state))
    assert stored["committed"]["version"] == 3
    stored["committed"]["version"] = 1
    folder.state = from_json(DatasetState, json.dumps(stored))


def test_checksums_are_added_to_an_old_state_once_and_nothing_is_read_again(tmp_path: Path, taken: list[str]) -> None:
    folder = folder_of(tmp_path, read_changed="again")
    folder.put("in/a/x.csv")
    folder.put("in/a/y.csv")
    old_state(folder)
    assert folder.plan().notes == [
        "2 file(s) were remembered without a checksum; it is computed and stored now: in/a/x.csv, in/a/y.csv."
    ]
    assert folder.run() == []
    taken.clear()
    assert (folder.plan().notes, taken) == ([], [])
    folder.put("in/a/x.csv", age=ANEW)
    assert folder.run() == []
    expected = "sha256=" + hashlib.sha256(b"id\n1\n").hexdigest()
    assert {one.checksum for one in versions(folder).values()} == {expected}


def test_old_file_that_was_touched_since_is_said_to_be_changed_and_why(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")
    old_state(folder)
    folder.put("in/a/x.csv", age=ANEW)
    why, changed = folder.plan().notes
    assert why == (
        "1 file(s) were remembered without a checksum; only size and time of change are compared: in/a/x.csv."
    )
    assert changed.startswith("1 file(s) changed after they were read; they are not read again: in/a/x.csv (replaced).")


def test_job_that_goes_back_to_times_of_change_goes_by_them(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")
    folder.run()
    folder.options = {}
    assert (folder.run(), folder.plan().notes) == ([], [])
    folder.put("in/a/x.csv", age=ANEW)
    assert "in/a/x.csv (replaced)" in folder.plan().notes[0]


def test_newer_state_is_refused_by_its_version() -> None:
    stored = CommittedRanges(FileSetWatermark, {}).to_json() | {"version": 4}
    with pytest.raises(Exception, match="expected version 3, got 4"):
        CommittedRanges.from_json(stored)


# -- between plan and read ---------------------------------------------------------------------------------------------
def test_file_that_took_the_place_of_the_planned_one_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv", "id\n1\n")
    (unit,) = folder.plan().work_units
    folder.put("in/a/x.csv", "id\n2\n", age=ANEW)
    with pytest.raises(ExtractError, match="changed since it was planned: it was written again"):
        source(tmp_path, folder.path, **folder.options).extractor(unit)


def test_replacement_of_the_same_time_is_refused_once_it_was_read_where_files_are_always_compared(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, "checksum_always")
    folder.put("in/a/x.csv", "id\n1\n")
    (unit,) = folder.plan().work_units
    folder.put("in/a/x.csv", "id\n2\n")
    extractor = source(tmp_path, folder.path, **folder.options).extractor(unit)
    with pytest.raises(ExtractError, match="changed since it was planned: it has another checksum"):
        list(extractor.chunks())


@pytest.mark.parametrize("was_known", [True, False], ids=["compared", "added"])
def test_file_that_is_written_to_while_it_is_compared_is_left_for_the_next_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_known: bool
) -> None:
    folder = folder_of(tmp_path, read_changed="again")
    folder.put("in/a/x.csv", "id\n1\n")
    if was_known:
        folder.run()
        folder.put("in/a/x.csv", "id\n1\n", age=ANEW)
    else:
        old_state(folder)
    digest = stored_checksums._digest

    def overtaken(path: str, kind: str) -> str:
        folder.put("in/a/x.csv", "id\n2\n", age=timedelta(0))
        return digest(path, kind)

    with monkeypatch.context() as patch:
        patch.setattr(stored_checksums, "_digest", overtaken)
        offer = folder.plan()
    assert offer.work_units == ()
    assert offer.notes == [
        "1 file(s) were written to or deleted while they were compared; the next plan does it: in/a/x.csv."
    ]
    # The file that was read is not confused with the file that replaced it.
    assert folder.run() == ["x.csv"]


def test_file_that_goes_while_it_is_compared_is_gone_in_the_next_plan(tmp_path: Path) -> None:
    gone = FoundFile(NO_DATE, str(tmp_path / "x.csv"), 5, 1.0, 7)
    (finding,) = checksums.Checksums().look([(gone, FileVersion(1, 5, 6, checksum="sha256=00"))])
    assert finding.verdict is checksums.Verdict.UNSETTLED


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (FileVersion(1, 5, 7, checksum="etag=00"), checksums.Verdict.SAME),
        (FileVersion(1, 5, 6, checksum="etag=00"), checksums.Verdict.TOUCHED),
        (FileVersion(1, 5, 7), checksums.Verdict.ADDED),
        (FileVersion(1, 5, 6), checksums.Verdict.UNTOLD),
    ],
)
def test_file_whose_checksum_stands_in_a_list_is_not_asked_for(known: FileVersion, verdict: checksums.Verdict) -> None:
    # The bucket does not exist: a request would fail.
    listed = FoundFile(NO_DATE, "s3://nobody/x.csv", 5, 1.0, 7, "etag=00")
    assert checksums.Checksums().look([(listed, known)]) == [checksums.Finding(listed, verdict)]
    assert checksums.Checksums().taken([listed]) == [listed]


def test_file_that_cannot_be_compared_fails_its_dataset_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")
    folder.run()
    folder.put("in/a/x.csv", age=ANEW)

    def refused(path: str, kind: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(stored_checksums, "_digest", refused)
    offer = folder.plan()
    assert offer.problem == "cannot compare in/a/x.csv with what was read: Permission denied."
    assert offer.work_units == ()


def test_new_file_whose_checksum_cannot_be_taken_gets_it_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")

    def refused(path: str, kind: str) -> str:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(stored_checksums, "_digest", refused)
        assert folder.run() == ["x.csv"]
    assert versions(folder)["a/x.csv"].checksum == ""
    assert folder.run() == []
    assert versions(folder)["a/x.csv"].checksum.startswith("sha256=")


def test_bug_while_comparing_is_not_taken_for_a_fault_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path)
    folder.put("in/a/x.csv")

    def broken(path: str, kind: str) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(stored_checksums, "_digest", broken)
    with pytest.raises(ZeroDivisionError):
        folder.plan()


# -- options -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"compare": "md5"}, "'modified', 'checksum' or 'checksum_always'"),
        ({"compare": "checksum", "new_files": "name"}, "`compare: checksum` needs remembered files"),
        (
            {"compare": "checksum_always", "path": "in/{date:%Y-%m-%d}.csv"},
            "`compare: checksum_always` needs remembered files: set `new_files: modified` or a `lookback`",
        ),
    ],
    ids=["unknown", "by name", "by date"],
)
def test_comparing_is_refused_where_nothing_is_remembered(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidSpecError, match=problem):
        source(tmp_path, **({"path": "in/*.csv"} | options))


# -- kinds of checksums ------------------------------------------------------------------------------------------------
MD5 = hashlib.md5(b"id\n1\n", usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(b"id\n1\n").hexdigest()


@pytest.mark.parametrize(
    ("known", "told", "is_same"),
    [
        (f"sha256={SHA256}", "", True),
        (f"sha256={MD5}", "", False),
        (f"sha256={SHA256}", "etag=abc-2", True),
        (f"md5={MD5}", "", True),
        (f"md5={MD5}", "crc32c=AAAAAA==", True),
        (f"md5={MD5}", f"md5={'0' * 32}", False),
        (f"etag={MD5}", "", True),
        (f"etag={MD5}", "etag=abc-2", True),
        (f"etag={'0' * 32}", f"etag={MD5}", False),
        ("etag=abc-2", "etag=abc-2", True),
        ("etag=abc-2", f"etag={MD5}", False),
        ("crc32c=AAAAAA==", "", False),
        ("crc32c=AAAAAA==", "md5=AAAAAA==", False),
    ],
)
def test_content_is_compared_in_the_kind_that_is_known(tmp_path: Path, known: str, told: str, is_same: bool) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"id\n1\n")
    assert stored_checksums.has_content(str(path), known, told) is is_same


def test_large_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(1_000)
    (tmp_path / "x").write_bytes(content)
    monkeypatch.setattr(stored_checksums, "_PIECE_BYTES", 64)
    assert stored_checksums.take_checksum(str(tmp_path / "x")) == "sha256=" + hashlib.sha256(content).hexdigest()
