from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.constructs.sources.files.source import FilesSource
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import ExtractError, SourceError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.watermark import LongWatermark, TimestampWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import ConstructSpec

DAILY = "data/{dataset}/{date:%Y-%m-%d}.csv"
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)


def put(root: Path, *paths: str, text: str = "a,b\n1,2\n") -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def source(root: Path, path: str = DAILY, **options: Any) -> FilesSource:
    spec = ConstructSpec.model_validate({"type": "files", "path": path, "format": {"type": "csv"}} | options)
    made = registry.create(ConstructKind.SOURCE, spec, ConstructContext(job="flights", base_dir=str(root)))
    assert isinstance(made, FilesSource)
    return made


def plan(
    files: FilesSource,
    states: Mapping[str, DatasetState] | None = None,
    is_selected: Callable[[str], bool] = lambda urn: True,
) -> dict[str, DatasetOffer]:
    context = SourceContext(Extract("nyc", "flights"), states or {}, is_selected, SystemClock())
    return {offer.dataset_urn: offer for offer in files.plan(context)}


def committed(urn: str, *ranges: tuple[int, int], updated_at: datetime = LATER) -> dict[str, DatasetState]:
    """Return the state of a dataset with ranges of days of January 2013 committed."""
    done = CommittedRanges(TimestampWatermark, {})
    for low, high in ranges:
        done = done.add(WatermarkInterval(TimestampWatermark(day(low)), TimestampWatermark(day(high))))
    return {urn: DatasetState("flights", urn, 1, done, 1, "run", updated_at)}


def spans(offer: DatasetOffer) -> list[str]:
    return [str(unit.interval) for unit in offer.work_units]


def paths(unit: WorkUnit) -> list[str]:
    files: Any = unit.read.get("files", [])
    return [file["path"] for file in files]


# -- what is found -----------------------------------------------------------------------------------------------------
def test_first_plan_offers_each_dataset_from_its_first_to_the_end_of_its_last_date(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/AA/2013-01-03.csv", "data/UA/2013-01-02.csv")
    offers = plan(source(tmp_path))
    assert list(offers) == ["AA", "UA"]
    assert spans(offers["AA"]) == ["[2013-01-01, 2013-01-04)"]
    unit = offers["AA"].work_units[0]
    assert paths(unit) == ["data/AA/2013-01-01.csv", "data/AA/2013-01-03.csv"]
    assert (unit.files, unit.size_bytes, unit.rows) == (2, 16, None)
    assert (offers["AA"].low, offers["AA"].expected_high) == (unit.low, unit.expected_high)


@pytest.mark.parametrize("urn", ["a b", "a:b", "..x", "ü", "100%", "a'b", "x*y", "{z}"])
def test_folder_name_is_taken_as_the_urn_as_it_is(tmp_path: Path, urn: str) -> None:
    put(tmp_path, f"data/{urn}/2013-01-01.csv")
    assert list(plan(source(tmp_path))) == [urn]
    done = committed(urn, (1, 2))[urn].committed
    assert source(tmp_path).count_rows(urn, done) == 1


def test_tree_dataset_spans_folders_of_any_depth(tmp_path: Path) -> None:
    put(tmp_path, "data/eu/de/2013/01/01.csv", "data/us/2013/01/02.csv", "data/us/ny/2013/01/02.csv")
    offers = plan(source(tmp_path, "data/{dataset:**}/{date:%Y/%m/%d}.csv"))
    assert {urn: spans(offer) for urn, offer in offers.items()} == {
        "eu/de": ["[2013-01-01, 2013-01-02)"],
        "us": ["[2013-01-02, 2013-01-03)"],
        "us/ny": ["[2013-01-02, 2013-01-03)"],
    }
    assert (
        source(tmp_path, "data/{dataset:**}/{date:%Y/%m/%d}.csv").count_rows(
            "us", committed("us", (1, 9))["us"].committed
        )
        == 1
    )


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("data/**/*.csv", ["a.csv", "x/b.csv", "x/y/c.csv", "x/y/2013/d.csv"]),
        ("data/x/**/*", ["x/b.csv", "x/y/c.csv", "x/y/2013/d.csv", "x/e.txt"]),
        ("data/**/y/*", ["x/y/c.csv"]),
        ("data/{dataset}/**/*.csv", ["x/b.csv", "x/y/c.csv", "x/y/2013/d.csv"]),
        ("data/**/{date:%Y}/*.csv", ["x/y/2013/d.csv"]),
        ("data/x/y/{date:%Y}/**/*", ["x/y/2013/d.csv"]),
    ],
)
def test_two_stars_are_any_number_of_folders(tmp_path: Path, path: str, found: list[str]) -> None:
    everything = ["a.csv", "x/b.csv", "x/y/c.csv", "x/y/2013/d.csv", "x/e.txt"]
    put(tmp_path, *(f"data/{name}" for name in everything), "data/x/.hidden/f.csv")
    (tmp_path / "data/x/again").symlink_to(tmp_path / "data")
    made = source(tmp_path, path)
    offers = plan(made).values()
    assert sorted(name for offer in offers for unit in offer.work_units for name in paths(unit)) == sorted(
        f"data/{name}" for name in found
    )
    pattern, folder = PathPattern.parse(path), PathPattern.parse(path).root().removeprefix("data").strip("/")
    inside = [name for name in everything if name.startswith(folder)]
    matching = [one for one in inside if pattern.matches_below_root(one.removeprefix(folder).strip("/").split("/"))]
    assert sorted(matching) == sorted(found)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ["_b.csv", "_y/d.csv", "a.csv"]),
        ({"hidden": "dot"}, ["_b.csv", "_y/d.csv", "a.csv"]),
        ({"hidden": "hadoop"}, ["a.csv"]),
        ({"hidden": "none"}, [".c.csv", ".x/e.csv", "_b.csv", "_y/d.csv", "a.csv"]),
    ],
)
def test_hidden_names_are_those_that_the_job_says(tmp_path: Path, options: dict[str, str], found: list[str]) -> None:
    put(tmp_path, *(f"in/{name}" for name in ("a.csv", "_b.csv", ".c.csv", "_y/d.csv", ".x/e.csv", ".a.csv.crc")))
    offers = plan(source(tmp_path, "in/**/*.c*", **options)).values()
    assert sorted(name for offer in offers for unit in offer.work_units for name in paths(unit)) == [
        f"in/{name}" for name in found
    ]


@pytest.mark.parametrize("path", ["data/{dataset:**}/*", "data/{dataset}/*", "data/*/*/*"])
def test_what_writers_of_hadoop_have_in_the_making_is_left_alone(tmp_path: Path, path: str) -> None:
    inside = ["_SUCCESS", "c.csv._COPYING_", "_temporary/0/_temporary/attempt_1/a.csv", ".spark-staging-1/d=1/a.csv"]
    inside += ["_gobblin/manifests/j/x/a.csv"]
    put(tmp_path, "data/x/a.csv", "data/x/y/_b.csv", *(f"data/x/{name}" for name in inside), "data/_temporary/0/a.csv")
    put(tmp_path, *(f"data/x/y/{name}" for name in inside))
    offers = plan(source(tmp_path, path)).values()
    found = {path for offer in offers for unit in offer.work_units for path in paths(unit)}
    expected = {"data/x/a.csv", "data/x/y/_b.csv"}
    assert found == {name for name in expected if "**" in path or name.count("/") == path.count("/")}


def test_dataset_in_the_file_name_and_date_in_the_folders(tmp_path: Path) -> None:
    put(tmp_path, "in/2013/001/AA-part1.csv", "in/2013/001/AA-part2.csv", "in/2013/002/UA-part1.csv")
    offers = plan(source(tmp_path, "in/{date:%Y/%j}/{dataset}-part*.csv"))
    assert {urn: [paths(u) for u in offer.work_units] for urn, offer in offers.items()} == {
        "AA": [["in/2013/001/AA-part1.csv", "in/2013/001/AA-part2.csv"]],
        "UA": [["in/2013/002/UA-part1.csv"]],
    }


def test_pattern_without_dataset_is_one_dataset_named_by_the_extract(tmp_path: Path) -> None:
    put(tmp_path, "a/2013-01-01.csv", "b/2013-01-01.csv", ".hidden/2013-01-01.csv")
    offers = plan(source(tmp_path, "*/{date:%Y-%m-%d}.csv"))
    assert list(offers) == ["nyc.flights"]
    assert offers["nyc.flights"].work_units[0].files == 2


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_absolute_path_is_read_and_named_as_it_is(tmp_path: Path, prefix: str) -> None:
    put(tmp_path, "lake/2013-01-01.csv")
    offers = plan(source(tmp_path / "project", f"{prefix}{tmp_path}/lake/{{date:%Y-%m-%d}}.csv"))
    assert paths(offers["nyc.flights"].work_units[0]) == [f"{tmp_path}/lake/2013-01-01.csv"]


def test_url_is_listed_and_read_through_fsspec(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/in-files/AA/2013-01-01.csv", b"a,b\n1,2\n3,4\n")
    memory.pipe("/in-files/AA/notes.txt", b"-")
    try:
        files = source(tmp_path, "memory://in-files/{dataset}/{date:%Y-%m-%d}.csv")
        unit = plan(files)["AA"].work_units[0]
        extractor = files.extractor(unit)
        assert sum(chunk.batch.num_rows for chunk in extractor.chunks()) == 2
        assert unit.size_bytes == extractor.bytes_read == 12
        with pytest.raises(SourceError, match="no file matches memory://nowhere"):
            plan(source(tmp_path, "memory://nowhere/{date:%Y-%m-%d}.csv"))
    finally:
        memory.rm("/in-files", recursive=True)


def test_hourly_files_have_hourly_positions(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01T05.csv", "data/AA/2013-01-01T06.csv")
    offers = plan(source(tmp_path, "data/{dataset}/{date:%Y-%m-%dT%H}.csv"))
    assert spans(offers["AA"]) == ["[2013-01-01T05:00:00Z, 2013-01-01T07:00:00Z)"]


def test_dates_begin_by_the_clock_of_their_zone(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    offers = plan(source(tmp_path, timezone="Asia/Tokyo"))
    assert spans(offers["AA"]) == ["[2012-12-31T15:00:00Z, 2013-01-01T15:00:00Z)"]


def test_unselected_datasets_are_not_offered_and_are_no_error(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/UA/2013-01-01.csv")
    assert list(plan(source(tmp_path), is_selected=lambda urn: urn == "UA")) == ["UA"]
    assert plan(source(tmp_path), committed("AA", (1, 2)), is_selected=lambda urn: False) == {}


# -- what is new -------------------------------------------------------------------------------------------------------
def test_nothing_new_offers_no_work_units_at_the_watermark(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/AA/2013-01-02.csv")
    offer = plan(source(tmp_path), committed("AA", (1, 3)))["AA"]
    assert offer == DatasetOffer("AA", TimestampWatermark(day(3)), TimestampWatermark(day(3)), notes=[])


def test_new_files_are_planned_from_the_last_committed_position(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/AA/2013-01-05.csv")
    assert spans(plan(source(tmp_path), committed("AA", (1, 3)))["AA"]) == ["[2013-01-03, 2013-01-06)"]


def test_gap_is_planned_first_and_alone(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/AA/2013-01-0{number}.csv" for number in range(1, 9)))
    offer = plan(source(tmp_path), committed("AA", (1, 3), (5, 7)))["AA"]
    assert spans(offer) == ["[2013-01-03, 2013-01-05)", "[2013-01-07, 2013-01-09)"]
    assert paths(offer.work_units[0]) == ["data/AA/2013-01-03.csv", "data/AA/2013-01-04.csv"]
    assert offer.notes == []


def test_gap_without_files_stays_open_and_is_noted(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    offer = plan(source(tmp_path), committed("AA", (1, 3), (5, 7)))["AA"]
    assert offer.work_units == ()
    assert "[2013-01-03, 2013-01-05) was never committed, and its files are gone" in offer.notes[0]


def test_work_units_hold_so_many_files_and_never_split_a_date(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/AA/{part}-2013-01-0{number}.csv" for number in range(1, 5) for part in "xy"))
    path = "data/{dataset}/*-{date:%Y-%m-%d}.csv"
    offer = plan(source(tmp_path, path, files_per_work_unit=3))["AA"]
    assert spans(offer) == [f"[2013-01-0{number}, 2013-01-0{number + 1})" for number in range(1, 5)]
    assert {unit.files for unit in offer.work_units} == {2}
    offer = plan(source(tmp_path, path, files_per_work_unit=4))["AA"]
    assert spans(offer) == ["[2013-01-01, 2013-01-03)", "[2013-01-03, 2013-01-05)"]


def test_work_units_hold_so_many_bytes(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/AA/2013-01-0{number}.csv" for number in range(1, 4)))
    offer = plan(source(tmp_path, bytes_per_work_unit=17))["AA"]
    assert [unit.size_bytes for unit in offer.work_units] == [16, 8]
    assert len({unit.id for unit in offer.work_units}) == 2


def test_start_leaves_older_files_alone(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/AA/2013-01-02.csv")
    offer = plan(source(tmp_path, start="2013-01-02"))["AA"]
    assert spans(offer) == ["[2013-01-02, 2013-01-03)"]
    assert plan(source(tmp_path, start="2013-01-02"), committed("AA", (2, 3)))["AA"].notes == []
    offer = plan(source(tmp_path, start="2013-01-03"))["AA"]
    assert (spans(offer), offer.notes) == ([], ["its 2 file(s) are dated before `start` and are not read."])


# -- what must not be lost in silence ----------------------------------------------------------------------------------
def test_files_before_all_that_is_committed_are_read_and_named(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/AA/2013-01-0{number}.csv" for number in range(1, 5)))
    offer = plan(source(tmp_path), committed("AA", (3, 5)))["AA"]
    assert spans(offer) == ["[2013-01-01, 2013-01-03)"]
    assert offer.notes[0].startswith("2 file(s) dated before all that is committed")
    assert "data/AA/2013-01-02.csv" in offer.notes[0]
    assert "`start`" in offer.notes[0]


def test_file_that_came_after_its_date_was_committed_is_named(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/AA/2013-01-0{number}.csv" for number in range(1, 9)))
    early = datetime(2000, 1, 1, tzinfo=UTC)
    offer = plan(source(tmp_path), committed("AA", (1, 9), updated_at=early))["AA"]
    assert offer.work_units == ()
    assert offer.notes[0].startswith("8 file(s) came or changed after the last run began")
    assert "data/AA/2013-01-05.csv and 3 more" in offer.notes[0]
    assert "this is so after a folder was copied or restored" in offer.notes[0]
    assert "2013-01-06" not in offer.notes[0]


def test_moved_in_file_with_an_old_mtime_counts_as_new(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    os.utime(tmp_path / "data/AA/2013-01-01.csv", (0, 0))
    offer = plan(source(tmp_path), committed("AA", (1, 2), updated_at=datetime(2000, 1, 1, tzinfo=UTC)))["AA"]
    assert "1 file(s) came or changed" in offer.notes[0]


@pytest.mark.parametrize("name", ["2013-13-45.csv", "latest.csv", "2013-02-29.csv"])
def test_file_whose_date_does_not_parse_is_named(tmp_path: Path, name: str) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", f"data/AA/{name}", "data/AA/README.md")
    offer = plan(source(tmp_path))["AA"]
    assert len(offer.work_units) == 1
    assert offer.notes == [f"1 path(s) left out: their date cannot be read as %Y-%m-%d: data/AA/{name}."]


def test_day_that_its_year_does_not_have_is_no_other_day(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2023365.csv", "data/AA/2023366.csv")
    offer = plan(source(tmp_path, "data/{dataset}/{date:%Y%j}.csv"))["AA"]
    assert [paths(unit) for unit in offer.work_units] == [["data/AA/2023365.csv"]]
    assert offer.notes == ["1 path(s) left out: their date cannot be read as %Y%j: data/AA/2023366.csv."]


def test_hour_that_clocks_skip_is_named_with_the_zone(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2024-03-31T02.csv", "data/AA/2024-03-31T03.csv")
    offer = plan(source(tmp_path, "data/{dataset}/{date:%Y-%m-%dT%H}.csv", timezone="Europe/Berlin"))["AA"]
    assert [paths(unit) for unit in offer.work_units] == [["data/AA/2024-03-31T03.csv"]]
    assert "cannot be read as %Y-%m-%dT%H in Europe/Berlin: data/AA/2024-03-31T02.csv" in offer.notes[0]


def test_files_none_of_which_reads_as_a_date_are_no_match_as_long_as_nothing_was_read(tmp_path: Path) -> None:
    put(tmp_path, *(f"data/{name}/2013-01-0{number}.csv" for name in ("AA", "UA") for number in (1, 2, 3)))
    made = source(tmp_path, "data/{dataset}/{date:%Y%m%d}.csv")
    near = r"data/AA/2013-01-01\.csv, .*data/AA/2013-01-02\.csv, .*data/AA/2013-01-03\.csv\.$"
    with pytest.raises(SourceError, match=rf"no file matches .*: no date can be read as %Y%m%d in .*{near}"):
        plan(made)
    with pytest.raises(SourceError, match="no file matches"):
        plan(source(tmp_path, "data/{dataset}/{date:%Y%m}/*.csv"))
    put(tmp_path, "data/UA/20130104.csv")
    offers = plan(made)
    assert [(offer.low is None, len(offer.notes)) for offer in offers.values()] == [(True, 1), (False, 1)]
    assert plan(made, committed("UA", (1, 3)))["AA"].notes[0].startswith("3 path(s) left out")


def test_folder_whose_date_does_not_parse_is_named_once(tmp_path: Path) -> None:
    put(tmp_path, "in/2013/01/01/AA.csv", "in/2013/01/01/UA.csv", "in/tmp/01/01/AA.csv")
    offers = plan(source(tmp_path, "in/{date:%Y/%m/%d}/{dataset}.csv"))
    assert [len(offer.notes) for offer in offers.values()] == [1, 0]
    assert "in/tmp" in offers["AA"].notes[0]


def test_dataset_whose_files_all_vanished_is_offered_with_a_note(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    offer = plan(source(tmp_path), committed("UA", (1, 3)))["UA"]
    assert offer.work_units == ()
    assert offer.notes == ["all of its files are gone; it is committed up to 2013-01-03."]


def test_link_that_leads_nowhere_and_a_pipe_are_named_not_read(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    (tmp_path / "data/AA/2013-01-02.csv").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "data/AA/2013-01-03.csv")
    offer = plan(source(tmp_path))["AA"]
    assert paths(offer.work_units[0]) == ["data/AA/2013-01-01.csv"]
    assert offer.notes[0].startswith("2 path(s) left out")
    assert "leads nowhere" in offer.notes[0]
    assert "no regular file" in offer.notes[0]


def test_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/AA/2013-01-02.csv/part-0.csv", "data/AA/v1.2/x.csv")
    assert plan(source(tmp_path))["AA"].notes == [
        "1 path(s) left out: data/AA/2013-01-02.csv (a folder where `path` has a file)."
    ]
    (tmp_path / "data/AA/2013-01-01.csv").unlink()
    with pytest.raises(SourceError, match=r"no file matches .*; left out: .*02\.csv \(a folder where"):
        plan(source(tmp_path))


def test_links_to_no_folder_are_named_where_the_pattern_has_one(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/01/x.csv")
    (tmp_path / "file").touch()
    for name, target in {"AA/02": "gone", "UA": "gone", "LL": "LL", "DL": "../file", ".#x": "me@here.17:1"}.items():
        (tmp_path / "data" / name).symlink_to(target)
    offers = plan(source(tmp_path, "data/{dataset}/*/*.csv"))
    assert {urn: (len(offer.notes), offer.problem) for urn, offer in offers.items()} == {
        "AA": (1, ""),
        "LL": (0, f"cannot list {tmp_path}/data/LL: Too many levels of symbolic links"),
        "UA": (1, ""),
    }
    assert "data/AA/02 (a link that leads nowhere" in offers["AA"].notes[0]


def test_link_loop_ends_and_is_named(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv")
    (tmp_path / "data/AA/again").symlink_to(tmp_path / "data")
    offers = plan(source(tmp_path, "data/{dataset:**}/{date:%Y-%m-%d}.csv"))
    assert list(offers) == ["AA"]
    assert "data/AA/again" in offers["AA"].notes[0]


def test_link_to_itself_fails_no_more_than_its_dataset(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/UA/2013-01-01.csv")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data/loop")
    (tmp_path / "data/UA/2013-01-02.csv").symlink_to(tmp_path / "data/UA/2013-01-02.csv")
    offers = plan(source(tmp_path))
    assert len(offers["AA"].work_units) == 1
    assert offers["UA"].problem.startswith(
        f"cannot read the size and time of {tmp_path}/data/UA/2013-01-02.csv: Too many levels"
    )


def test_linked_dataset_folder_is_read(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/2013-01-01.csv")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/AA").symlink_to(tmp_path / "elsewhere")
    assert paths(plan(source(tmp_path))["AA"].work_units[0]) == ["data/AA/2013-01-01.csv"]


# -- what fails, and how far it reaches --------------------------------------------------------------------------------
def test_missing_folder_is_told_with_the_nearest_that_exists(tmp_path: Path) -> None:
    put(tmp_path, "data/x.txt")
    with pytest.raises(SourceError) as caught:
        plan(source(tmp_path, "data/flights/in/{dataset}/{date:%Y-%m-%d}.csv"))
    assert f"no file matches {tmp_path}/data/flights/in/{{dataset}}/{{date:%Y-%m-%d}}.csv" in str(caught.value)
    assert f"there is no folder {tmp_path}/data/flights/in, the nearest, {tmp_path}/data, holds 1" in str(caught.value)


@pytest.mark.parametrize(
    ("there", "path", "told"),
    [
        ("data/gro\u0308n/a.csv", "data/gr\xf6n/{dataset}.csv", [r"data/gr\xf6n, the nearest", r"e.g. gro\u0308n."]),
        ("gr\xf6n/a.csv", "gro\u0308n/{dataset}.csv", [r"/gro\u0308n, the nearest", r"e.g. gr\xf6n"]),
        (
            "gr\xf6n/a.csv",
            "gr\xf6n/{dataset}.txt",
            ["gr\xf6n/{dataset}.txt; 1 file(s) there do not, e.g. ", "/gr\xf6n/a.csv."],
        ),
    ],
)
def test_paths_that_look_the_same_are_told_apart(tmp_path: Path, there: str, path: str, told: list[str]) -> None:
    put(tmp_path, there)
    with pytest.raises(SourceError) as caught:
        plan(source(tmp_path, path))
    assert [one for one in told if one not in str(caught.value)] == []


def test_no_matching_file_is_told_with_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/x.txt", "data/AA/y.txt", "data/UA/z.txt")
    with pytest.raises(
        SourceError, match=r"3 file\(s\) there do not, e\.g\. .*/data/AA/x\.txt, .*/data/AA/y\.txt, .*z\.txt\."
    ):
        plan(source(tmp_path))


def test_empty_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(SourceError, match=re.escape(f"{tmp_path}/data is empty")):
        plan(source(tmp_path))


@pytest.mark.parametrize(("urn", "shown"), [("a\nb", "a\\nb"), ("x" * 241, "x" * 241)])
def test_invalid_urn_fails_its_dataset_alone(tmp_path: Path, urn: str, shown: str) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", f"data/{urn}/2013-01-01.csv")
    offers = plan(source(tmp_path))
    assert len(offers["AA"].work_units) == 1
    assert "dataset.urn" in offers[shown].problem
    assert offers[shown].work_units == ()


def test_folder_that_cannot_be_listed_fails_its_dataset_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/UA/2013-01-01.csv")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("UA"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    # By patch and not by mode: root, as in containers, may list everything.
    monkeypatch.setattr(os, "scandir", refuse)
    offers = plan(source(tmp_path))
    assert len(offers["AA"].work_units) == 1
    assert offers["UA"].problem == f"cannot list {tmp_path}/data/UA: Permission denied"


def test_folder_that_goes_while_it_is_listed_is_named_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "data/AA/2013/01.csv", "data/AA/2014/01.csv")
    scandir = os.scandir

    def take_away(path: str) -> Any:
        if str(path).endswith("2013"):
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", take_away)
    offer = plan(source(tmp_path, "data/{dataset}/{date:%Y/%m}.csv"))["AA"]
    assert paths(offer.work_units[0]) == ["data/AA/2014/01.csv"]
    assert offer.notes == ["1 path(s) left out: data/AA/2013 (gone meanwhile)."]


@pytest.mark.parametrize("name", ["in", "in/eu"], ids=["root", "before-the-dataset"])
def test_folder_above_all_datasets_that_cannot_be_listed_fails_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    put(tmp_path, "in/eu/AA/2013-01-01.csv", "in/us/UA/2013-01-01.csv")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if str(path) == f"{tmp_path}/{name}":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceError, match=re.escape(f"cannot list {tmp_path}/{name}: Permission denied.")):
        plan(source(tmp_path, "in/*/{dataset}/{date:%Y-%m-%d}.csv"))


def test_file_name_that_is_no_text_fails_its_dataset_alone(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/x-2013-01-01.csv", "data/UA/x-2013-01-01.csv")
    Path(os.fsdecode(os.fsencode(tmp_path / "data/AA") + b"/\xff-2013-01-02.csv")).touch()
    offers = plan(source(tmp_path, "data/{dataset}/*-{date:%Y-%m-%d}.csv"))
    assert "no valid UTF-8; rename the file" in offers["AA"].problem
    assert offers["AA"].problem.isprintable()
    Path(os.fsdecode(os.fsencode(tmp_path / "data/UA") + b"/\xff-late.csv")).touch()
    (note,) = plan(source(tmp_path, "data/{dataset}/*-{date:%Y-%m-%d}.csv"))["UA"].notes
    assert "\\udcff-late.csv" in note
    assert len(offers["UA"].work_units) == 1


def test_state_of_another_watermark_type_fails_its_dataset_alone(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", "data/UA/2013-01-01.csv")
    done = CommittedRanges(LongWatermark, {}).add(WatermarkInterval(LongWatermark(0), LongWatermark(9)))
    state = DatasetState("flights", "AA", 1, done, 1, "run", LATER)
    offers = plan(source(tmp_path), {"AA": state})
    assert "type 'long'" in offers["AA"].problem
    assert len(offers["UA"].work_units) == 1


# -- counting ----------------------------------------------------------------------------------------------------------
def test_count_rows_counts_records_of_committed_dates_only(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", text='a,b\n"line\nbreak",2\n3,4\n')
    put(tmp_path, "data/AA/2013-01-02.csv", text="a,b\n")
    put(tmp_path, "data/AA/2013-01-03.csv", "data/UA/2013-01-01.csv")
    assert source(tmp_path).count_rows("AA", committed("AA", (1, 3))["AA"].committed) == 2
    assert source(tmp_path).count_rows("AA", committed("AA", (1, 2), (3, 4))["AA"].committed) == 3
    assert source(tmp_path).count_rows("gone", committed("gone", (1, 4))["gone"].committed) == 0


def test_count_rows_of_a_broken_file_names_it(tmp_path: Path) -> None:
    put(tmp_path, "data/AA/2013-01-01.csv", text="")
    with pytest.raises(ExtractError, match=r"Dataset 'AA', file data/AA/2013-01-01\.csv: is empty"):
        source(tmp_path).count_rows("AA", committed("AA", (1, 2))["AA"].committed)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timezone": "Mars/Olympus"}, "expected an IANA zone"),
        ({"files_per_work_unit": 0}, "expected at least 1, got 0"),
        ({"start": "soon"}, "date"),
    ],
)
def test_bad_option_is_refused_with_a_reason(options: dict[str, Any], problem: str) -> None:
    faults = registry.check(ConstructKind.SOURCE, "files", {"path": DAILY, "format": {"type": "csv"}} | options)
    assert [(where, problem in message) for where, message in faults] == [(tuple(options), True)]
