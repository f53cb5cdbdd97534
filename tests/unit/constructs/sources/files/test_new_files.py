"""The strategies to find new files, through the source: options, watermarks, notes."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, InvalidSpecError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.protocol.scenario import SetClock
from tests.unit.constructs.sources.files.test_source import paths, put, source
from tests.unit.engine.jobs import run

NOON = datetime(2013, 1, 10, 12, tzinfo=UTC)


class Folder:
    """A dataset `a` on its way through several runs."""

    def __init__(self, root: Path, path: str, **options: Any) -> None:
        self.root, self.path, self.options = root, path, options
        self.state: DatasetState | None = None
        self.now = NOON

    def put(self, name: str, text: str = "id\n1\n", age: timedelta = timedelta(hours=1)) -> None:
        put(self.root, name, text=text)
        changed = (self.now - age).timestamp()
        os.utime(self.root / name, (changed, changed))

    def plan(self) -> DatasetOffer:
        states = {"a": self.state} if self.state else {}
        context = SourceContext(Extract("n", "t"), states, lambda _: True, SetClock(self.now))
        (offer,) = source(self.root, self.path, **self.options).plan(context)
        return offer

    def run(self) -> list[str]:
        """Publish all that is planned; return the names of the files."""
        offer = self.plan()
        assert not offer.problem
        if offer.work_units:
            kind = type(offer.work_units[0].low)
            before = self.state.committed if self.state else CommittedRanges(kind, {})
            assert offer.low is not None
            committed = before.anchored(offer.low).add_all(unit.interval for unit in offer.work_units)
            assert str(committed.watermark) == str(offer.expected_high)
            self.state = DatasetState("flights", "a", 1, committed, 1, "run", datetime(2100, 1, 1, tzinfo=UTC))
        return [path.rpartition("/")[2] for unit in offer.work_units for path in paths(unit)]


# -- by time of change -------------------------------------------------------------------------------------------------
def test_files_without_dates_are_remembered_and_read_in_order_of_their_change(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/new.csv", age=timedelta(hours=1))
    folder.put("in/a/old.csv", age=timedelta(hours=5))
    assert str(folder.plan().low) == "0 files"
    assert folder.run() == ["old.csv", "new.csv"]
    assert folder.run() == []
    assert str(folder.plan().low) == "2 files, newest of 2013-01-10 11:00:00Z"
    folder.put("in/a/older.csv", age=timedelta(days=300))
    assert folder.run() == ["older.csv"]


def test_file_of_a_list_that_is_not_there_is_named_and_read_once_it_comes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{one,other}.csv")
    folder.put("in/a/one.csv")
    folder.put("in/a/third.csv")
    assert folder.plan().notes == ["no file of `path` has other in its name; it is read once it comes."]
    assert folder.run() == ["one.csv"]
    folder.put("in/a/other.csv")
    assert folder.plan().notes == []
    assert folder.run() == ["other.csv"]


def test_dataset_of_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset:one, other}.csv")  # the blank is a part of the name
    folder.put("in/one.csv")
    folder.put("in/other.csv")
    assert folder.plan().notes == ["no file of `path` has  other in its name; it is read once it comes."]


@pytest.mark.parametrize(
    ("pattern", "strange"),
    [
        ("in/{dataset}/*.csv", "in/b/1.CSV"),
        ("in/{dataset}/*.csv", "in/b/2024/1.csv"),
        ("in/{dataset}/out/*.csv", "in/b/Out/1.csv"),
        ("in/{dataset}/out/*.csv", "in/b/1.csv"),
        ("in/{dataset:**}/*.csv", "in/b/1.CSV"),
    ],
)
def test_folder_of_which_nothing_matches_is_named_beside_others_that_match(
    tmp_path: Path, pattern: str, strange: str
) -> None:
    folder = Folder(tmp_path, pattern)
    folder.put(pattern.replace("{dataset:**}", "a").replace("{dataset}", "a").replace("*", "1"))
    folder.put(strange)
    (tmp_path / "in/empty").mkdir()
    (note,) = folder.plan().notes
    assert note.startswith("1 folder(s) hold no file that matches `path`: b (in/b/")


def test_other_files_beside_those_that_match_are_not_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset:**}/*.csv")
    for path in ("in/shop/a/1.csv", "in/shop/a/readme.md", "in/shop/readme.md", "in/shop/a/old/1.zip"):
        folder.put(path)
    folder.put("in/b/.DS_Store")
    assert folder.plan().notes == []


def test_moved_root_makes_no_file_new(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv")
    folder.run()
    (tmp_path / "in").rename(tmp_path / "archive")
    folder.path = str(tmp_path / "archive/{dataset}/*.csv")
    assert folder.run() == []


@pytest.mark.parametrize(
    ("text", "said"), [("id\n1\n2\n", "grew from 5 to 7 bytes"), ("id\n2\n", "replaced"), ("id\n", "replaced")]
)
def test_changed_file_is_named_and_not_read(tmp_path: Path, text: str, said: str) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv")
    folder.run()
    folder.put("in/a/x.csv", text, age=timedelta(0))
    offer = folder.plan()
    assert offer.work_units == ()
    assert offer.notes == [
        f"1 file(s) changed after they were read; they are not read again: in/a/x.csv ({said}). "
        "To read them again, whole, set `read_changed: again`."
    ]


def test_changed_file_is_read_again_whole_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv", read_changed="again")
    for text in ("id\n1\n", "id\n1\n2\n", "id\n3\n"):
        folder.put("in/a/x.csv", text, age=timedelta(hours=len(text)))
        assert folder.run() == ["x.csv"]
        assert folder.run() == []
    assert folder.state is not None
    assert str(folder.state.watermark) == "1 file, newest of 2013-01-10 07:00:00Z"
    # The file is another one than the published one: the source's rows cannot be counted again.
    assert source(tmp_path, folder.path, **folder.options).count_rows("a", folder.state.committed) is None


def test_changed_file_fails_its_dataset_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv", read_changed="fail")
    folder.put("in/a/x.csv")
    folder.run()
    folder.put("in/a/x.csv", "id\n2\n", age=timedelta(0))
    folder.put("in/a/y.csv")
    offer = folder.plan()
    assert offer.problem.startswith("1 file(s) changed after they were read, and `read_changed` is `fail`: in/a/x.csv")
    assert offer.work_units == ()


def test_run_that_reads_nothing_reports_what_changed_in_its_result(tmp_path: Path) -> None:
    spec = {
        "job": "changes",
        "source": {"type": "files", "path": "in/{dataset}/*.csv", "format": "csv"},
        "extract": {"namespace": "n", "table": "t"},
        "output": {"path": "lake"},
    }
    put(tmp_path, "in/a/x.csv", text="id\n1\n")
    run(tmp_path, JobSpec.model_validate(spec))
    put(tmp_path, "in/a/x.csv", text="id\n1\n2\n")
    (dataset,) = run(tmp_path, JobSpec.model_validate(spec)).datasets
    assert dataset.outcome is DatasetOutcome.IDLE
    assert "in/a/x.csv (grew from 5 to 7 bytes)" in dataset.notes[0]


def test_vanished_file_is_named_and_read_once_only_where_it_comes_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv")
    folder.put("in/a/y.csv")
    folder.run()
    (tmp_path / "in/a/x.csv").unlink()
    assert folder.plan().notes == ["1 file(s) that were read are gone: a/x.csv."]
    folder.put("in/a/x.csv")
    assert folder.plan().notes == []
    assert folder.run() == []


@pytest.mark.parametrize("new_files", ["date", "modified", "name"])
def test_folder_that_was_emptied_is_no_fault_once_something_was_read(tmp_path: Path, new_files: str) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv", new_files=new_files)
    folder.put("in/a/2013-01-09.csv")
    folder.run()
    (tmp_path / "in/a/2013-01-09.csv").unlink()
    assert folder.run() == []
    assert folder.plan().notes[-1].startswith("all of its files are gone; it is committed up to ")


def test_rows_of_remembered_files_are_counted_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv", "id\n1\n2\n")
    folder.run()
    folder.put("in/a/not-read.csv")
    assert folder.state is not None
    assert source(tmp_path, folder.path).count_rows("a", folder.state.committed) == 2


def test_file_that_was_written_anew_since_the_plan_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv", "id\n1\n")
    (unit,) = folder.plan().work_units
    folder.put("in/a/x.csv", "id\n2\n", age=timedelta(0))
    with pytest.raises(ExtractError, match=r"in/a/x\.csv: changed since it was planned: it was written again"):
        source(tmp_path, folder.path).extractor(unit)


def test_file_that_is_written_to_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv")
    folder.put("in/a/x.csv", "id\n1\n")
    (unit,) = folder.plan().work_units
    chunks = source(tmp_path, folder.path).extractor(unit).chunks()
    next(chunks)
    with (tmp_path / "in/a/x.csv").open("a") as file:
        file.write("2\n")
    with pytest.raises(ExtractError, match="planned 5 bytes, found 7"):
        list(chunks)


# -- by name -----------------------------------------------------------------------------------------------------------
def test_names_are_read_in_order_and_late_ones_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/*.csv", new_files="name", files_per_work_unit=1)
    folder.put("in/a/b.csv")
    folder.put("in/a/c.csv")
    assert [str(unit.interval) for unit in folder.plan().work_units] == ["[, a/c.csv)", "[a/c.csv, after a/c.csv)"]
    assert folder.run() == ["b.csv", "c.csv"]
    folder.put("in/a/d.csv")
    assert folder.run() == ["d.csv"]
    assert folder.state is not None
    assert str(folder.state.watermark) == "after a/d.csv"
    read_at = (tmp_path / "in/a/d.csv").stat().st_ctime + 0.001
    folder.state = replace(folder.state, updated_at=datetime.fromtimestamp(read_at, UTC))
    folder.put("in/a/bb.csv")
    while (tmp_path / "in/a/bb.csv").stat().st_ctime <= read_at + 0.001:  # the file system's clock ticks every few ms
        folder.put("in/a/bb.csv")
    assert folder.plan().work_units == ()
    assert (
        folder.plan()
        .notes[0]
        .startswith(
            "1 file(s) came or changed after the last run began, though they sort before what is committed; they are "
            "not read: in/a/bb.csv."
        )
    )


@pytest.mark.parametrize("path", ["in/{dataset}/*.csv", "in/{dataset}/{date:%Y-%m-%d}.csv"], ids=["name", "date"])
def test_file_with_a_time_of_change_to_come_is_not_late_once_it_was_read(tmp_path: Path, path: str) -> None:
    folder = Folder(tmp_path, path, new_files="date" if "{date" in path else "name")
    folder.put("in/a/2013-01-01.csv", age=timedelta(days=-100_000))
    assert folder.run() == ["2013-01-01.csv"]
    assert folder.plan().notes == []


# -- by date -----------------------------------------------------------------------------------------------------------
def test_late_file_inside_the_window_is_read_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}/*.csv", lookback=2)
    for day in range(1, 7):
        folder.put(f"in/a/2013-01-0{day}/x.csv")
    assert folder.run() == ["x.csv"] * 6
    assert folder.state is not None
    assert str(folder.state.watermark) == "2013-01-04 and 3 files, newest of 2013-01-10 11:00:00Z"
    folder.put("in/a/2013-01-04/late.csv")
    assert folder.run() == ["late.csv"]
    assert folder.run() == []
    folder.put("in/a/2013-01-09/x.csv")
    folder.put("in/a/2013-01-06/late.csv")
    assert folder.run() == ["late.csv", "x.csv"]
    assert set(folder.state.committed.ranges) == {"", "a/2013-01-09/x.csv"}
    assert folder.run() == []


def test_months_have_their_own_lengths(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m}/*.csv", lookback=1)
    for month in ("2012-11", "2012-12", "2013-01"):
        folder.put(f"in/a/{month}/x.csv")
    assert len(folder.run()) == 3
    assert folder.state is not None
    assert str(folder.state.watermark).startswith("2012-12-01 and 2 files")


# -- for all -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "new_files"),
    [("in/{dataset}/*.csv", "modified"), ("in/{dataset}/*.csv", "name")],
    ids=["modified", "name"],
)
def test_young_file_waits(tmp_path: Path, path: str, new_files: str) -> None:
    folder = Folder(tmp_path, path, new_files=new_files, lead_time="30m")
    folder.now = datetime.now(UTC) + timedelta(minutes=10)  # a file came at its ctime, which cannot be set
    folder.put("in/a/x.csv")
    assert folder.run() == []
    assert folder.plan().notes == ["1 file(s) are younger than `lead_time` and wait for a later run."]
    folder.now += timedelta(minutes=21)
    assert folder.run() == ["x.csv"]


@pytest.mark.parametrize("lookback", [0, 3])
def test_file_of_a_mistyped_year_does_not_make_all_before_it_late(tmp_path: Path, lookback: int) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv", lookback=lookback)
    folder.put("in/a/2013-01-10.csv")
    folder.put("in/a/2103-01-09.csv")
    assert folder.plan().notes[0].startswith("1 file(s) are dated more than a day ahead and wait")
    assert folder.run() == ["2013-01-10.csv"]
    folder.put("in/a/2013-01-11.csv")  # written under a clock that is ahead of UTC
    assert folder.run() == ["2013-01-11.csv"]


def test_files_that_come_before_their_dates_are_read_where_that_is_said(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv", lead_time="-7d")
    folder.put("in/a/2013-01-16.csv")
    folder.put("in/a/2013-01-18.csv")
    assert folder.run() == ["2013-01-16.csv"]
    assert folder.plan().notes == ["1 file(s) are younger than `lead_time` and wait for a later run."]


@pytest.mark.parametrize(("lead_time", "read"), [("999999999d", []), ("-999999999d", ["2013-01-09.csv"])])
def test_lead_time_beyond_the_calendar_is_no_fault(tmp_path: Path, lead_time: str, read: list[str]) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv", lead_time=lead_time)
    folder.put("in/a/2013-01-09.csv")
    assert folder.run() == read


def test_day_waits_until_its_beginning_is_old_enough(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv", lead_time="1d")
    folder.put("in/a/2013-01-09.csv")
    folder.put("in/a/2013-01-10.csv")
    assert folder.run() == ["2013-01-09.csv"]
    folder.now += timedelta(hours=12)
    assert folder.run() == ["2013-01-10.csv"]


@pytest.mark.parametrize("new_files", ["date", "modified", "name"])
def test_run_takes_so_many_files_and_says_how_many_are_left(tmp_path: Path, new_files: str) -> None:
    path = "in/{dataset}/{date:%Y-%m-%d}.csv"
    folder = Folder(tmp_path, path, new_files=new_files, max_files_per_run=2)
    names = [f"2013-01-0{day}.csv" for day in range(1, 6)]
    for number, name in enumerate(names):
        folder.put(f"in/a/{name}", age=timedelta(hours=9 - number))
    assert "3 file(s) are left for a later run (`max_files_per_run`)." in folder.plan().notes
    assert [folder.run(), folder.run(), folder.run(), folder.run()] == [names[:2], names[2:4], names[4:], []]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"new_files": "date"}, "needs a {date"),
        ({"start": "2013-01-01"}, "`start` needs a {date"),
        ({"lookback": 2}, "`new_files` is `modified`"),
        ({"new_files": "name", "read_changed": "again"}, "needs remembered files"),
        ({"lead_time": "soon"}, "expected a duration like 90s"),
        ({"lead_time": 5}, "expected a duration like 90s"),
        ({"lead_time": "99999999999d"}, "longer than any calendar"),
        ({"max_files_per_run": 0}, "expected at least 1, got 0"),
        ({"new_files": "size"}, "'date', 'modified' or 'name'"),
        ({"path": "sftp://me:secret@host/in/*.csv"}, "holds a password"),
        ({"path": "s3://key:secret@bucket/in/*.csv"}, "holds a password"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_options_that_do_not_fit_together_are_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpecError, match=problem) as caught:
        source(tmp_path, **({"path": "in/*.csv"} | options))
    assert "secret" not in str(caught.value)


def test_state_of_another_way_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "in/{dataset}/{date:%Y-%m-%d}.csv")
    folder.put("in/a/2013-01-09.csv")
    folder.run()
    folder.options = {"new_files": "modified"}
    assert "of type 'timestamp'" in folder.plan().problem
    assert "'file_set'; give the job another name" in folder.plan().problem
