"""A dataset is read on with another `path`: no file is read twice or passed over without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.core.constructs import DatasetOffer
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from tests.unit.constructs.sources.files.test_source import LATER, plan, put, source


def go_on(root: Path, before: str, after: str, *, came: str = "", **options: Any) -> DatasetOffer:
    """Return the offer for the dataset `a` by another path, after all that the first path matches was read."""
    first = plan(source(root, before, **options))["a"]
    done = CommittedRanges(type(first.work_units[0].low), {}).add_all(unit.interval for unit in first.work_units)
    state = DatasetState("flights", "a", 1, done, 1, "run", LATER, origin=first.origin)
    if came:
        put(root, came)
    return plan(source(root, after, **options), {"a": state})["a"]


@pytest.mark.parametrize("order", ["modified", "name"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("data/eu/{dataset}/*.csv", "data/*/{dataset}/*.csv"),
        ("data/*/{dataset}/*.csv", "data/eu/{dataset}/*.csv"),
        ("data/{eu,us}/{dataset}/*.csv", "data/eu/{dataset}/*.csv"),
        ("data/eu/{dataset}/*.csv", "data/**/{dataset}/*.csv"),
    ],
)
def test_folders_before_the_names_that_come_or_go_are_refused(
    tmp_path: Path, before: str, after: str, order: str
) -> None:
    """A name is a path below the folders without a placeholder: each file would be another one."""
    put(tmp_path, "data/eu/a/1.csv", "data/eu/a/2.csv")
    problem = go_on(tmp_path, before, after, came="data/us/a/1.csv", new_files=order).problem
    first, second = (PathPattern.parse(path).root() for path in (before, after))
    assert f"These were {first} when the dataset was committed, and are {second} now" in problem


@pytest.mark.parametrize("order", ["modified", "name"])
def test_folders_that_move_with_their_files_are_read_on(tmp_path: Path, order: str) -> None:
    put(tmp_path, "data/eu/a/1.csv")
    first = "data/eu/{dataset}/*.csv"
    assert go_on(tmp_path, first, first, came="data/eu/a/2.csv", new_files=order).problem == ""
    (tmp_path / "data/eu").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/a/2.csv").unlink()
    put(tmp_path, "data/eu/a/1.csv")
    offer = go_on(tmp_path, first, "elsewhere/{dataset}/*.csv", came="elsewhere/a/2.csv", new_files=order)
    assert (offer.problem, [unit.files for unit in offer.work_units]) == ("", [1])


@pytest.mark.parametrize("options", [{}, {"lookback": 1}], ids=["date", "lookback"])
def test_files_of_another_folder_that_count_as_read_are_named(tmp_path: Path, options: dict[str, Any]) -> None:
    """The folder may have moved with its files, or be another one."""
    for folder in ("eu", "us"):
        put(tmp_path, *(f"data/{folder}/a/2013-01-0{number}.csv" for number in range(1, 5)), text=f"{folder}\n1\n")
    paths = [f"data/{folder}/{{dataset}}/{{date:%Y-%m-%d}}.csv" for folder in ("eu", "us")]
    (note,) = (note for note in go_on(tmp_path, *paths, **options).notes if "began with" in note)
    assert note.startswith(
        "`path` began with the folder data/eu when the dataset was committed, and begins with data/us"
    )
    assert "data/us/a/2013-01-01.csv" in note


@pytest.mark.parametrize(
    ("before", "after", "options", "passed"),
    [
        ("data/{dataset}/{date:%Y-%m-%d}-eu.csv", "data/{dataset}/{date:%Y-%m-%d}-*.csv", {}, "2013-01-01-us.csv"),
        ("data/{dataset}/2*-eu.csv", "data/{dataset}/2*.csv", {"new_files": "name"}, "2013-01-01-us.csv"),
        ("data/{dataset}/*.csv", "data/{dataset}/**/*.csv", {"new_files": "name"}, "0/2013-01-01-eu.csv"),
    ],
)
def test_files_that_did_not_match_before_are_named_where_all_counts_as_read(
    tmp_path: Path, before: str, after: str, options: dict[str, Any], passed: str
) -> None:
    put(tmp_path, "data/a/2013-01-01-eu.csv", "data/a/2013-01-02-eu.csv", f"data/a/{passed}")
    offer = go_on(tmp_path, before, after, came="data/a/2013-01-03-eu.csv", **options)
    told = f"(`{before.removeprefix('data/')}`), and lie at positions that are committed; they are not read: data/a/"
    assert offer.problem == ""
    assert [f"{told}{passed}. " in note for note in offer.notes] == [True]


def test_file_of_another_date_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "data/a/2013-01-02.csv")
    problem = go_on(tmp_path, "data/{dataset}/{date:%Y-%m-%d}.csv", "data/{dataset}/{date:%Y-%d-%m}.csv").problem
    assert problem.startswith("data/a/2013-01-02.csv is of the date 2013-02-01 now, and was of 2013-01-02 by `path`")


def test_files_that_another_rule_for_hidden_names_brings_are_named(tmp_path: Path) -> None:
    put(tmp_path, "data/a/2013-01-01.csv", "data/a/.2013-01-01.csv")
    path = "data/{dataset}/*{date:%Y-%m-%d}.csv"
    first = plan(source(tmp_path, path))["a"]
    done = CommittedRanges(type(first.work_units[0].low), {}).add_all(unit.interval for unit in first.work_units)
    state = DatasetState("flights", "a", 1, done, 1, "run", LATER, origin=first.origin)
    (note,) = plan(source(tmp_path, path, hidden="none"), {"a": state})["a"].notes
    assert "they are not read: data/a/.2013-01-01.csv." in note
