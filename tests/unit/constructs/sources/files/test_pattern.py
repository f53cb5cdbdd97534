from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gobblin_dagster.constructs.sources.files.pattern import PathPattern, escaped


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{date:%Y%m%d}/{date:%Y%m%d}", "got 2"),
        ("{date}.csv", "needs its format"),
        ("{date:%m-%d}.csv", "must give year, month and day"),
        ("{date:%Y-%d}.csv", "must give year, month and day"),
        ("{date:%Y-%m %H}.csv", "hours .* without days"),
        ("{date:%Y-%m-%d %M}.csv", "without hours"),
        ("{date:%Y-%m-%d-%p}.csv", "has %p; known"),
        ("{date:%Y-%Y-%m-%d}.csv", "twice"),
        ("{data}/{date:%Y%m%d}.csv", "unknown placeholder {data}"),
        ("{dataset}/{dataset}/{date:%Y%m%d}.csv", "at most one {dataset}"),
        ("a{dataset:**}/{date:%Y%m%d}.csv", "must stand alone"),
        ("a/***/{date:%Y%m%d}.csv", "got '...'"),
        ("a**/{date:%Y%m%d}.csv", "must stand alone"),
        ("a/**/b/**/c", "at most one"),
        ("{dataset:**}/**/c", "at most one"),
        ("a/**", "pattern of file names"),
        ("{date:%Y%m%d}/{dataset:**}", "pattern of file names"),
        ("{date:%Y%m%d}/", "pattern of file names"),
        ("a}/{date:%Y%m%d}", "unbalanced"),
        ("{a,}.csv", "expected names, or parts of names"),
        ("{a/x,b}.csv", "expected names, or parts of names"),
        ("{a*,b}.csv", "expected names, or parts of names"),
        ("{dataset:a,,b}.csv", "expected names, or parts of names"),
        ("{dataset:a}/{dataset}.csv", "at most one {dataset}"),
    ],
)
def test_parse_bad_pattern_says_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PathPattern.parse(text)


def test_one_of_several_texts_stands_for_each_of_them() -> None:
    pattern = PathPattern.parse("in/{a.b,c}-{dataset}.csv")
    assert pattern.root() == "in"
    names = ["a.b-x.csv", "c-y.csv", "axb-x.csv", "a.b,c-x.csv", "d-x.csv"]
    assert [name for name in names if pattern.matches_below_root([name])] == names[:2]


def test_dataset_may_be_one_of_some_names() -> None:
    pattern = PathPattern.parse("in/{dataset:a.b,c}.json")
    names = ["a.b.json", "c.json", "axb.json", "d.json"]
    assert [name for name in names if pattern.matches_below_root([name])] == names[:2]
    assert pattern.bind("c").levels[-1][0].value == "c"


@pytest.mark.parametrize("name", ["a*", "{a}", "a{b,c}*", "a\\*", "\\", "[a]?"])
def test_escaped_name_matches_itself_alone(name: str) -> None:
    pattern = PathPattern.parse(f"in/{escaped(name)}/*.csv")
    assert pattern.root() == f"in/{name}"
    file = PathPattern.parse(f"in/{escaped(name)}.csv")
    assert file.matches_below_root([f"{name}.csv"])
    assert not file.matches_below_root(["ab.csv"])


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("data/flights/{dataset}/{date:%Y%m%d}.csv", "data/flights"),
        ("data/x-{date:%Y%m%d}.csv", "data"),
        ("{date:%Y%m%d}.csv", ""),
        ("/{date:%Y%m%d}.csv", "/"),
        ("/data/*/{date:%Y%m%d}.csv", "/data"),
        ("s3://bucket/in/{date:%Y/%m/%d}.csv", "s3://bucket/in"),
    ],
)
def test_root_is_the_plain_beginning(text: str, root: str) -> None:
    assert PathPattern.parse(text).root() == root


@pytest.mark.parametrize(
    ("date_format", "granularity"),
    [
        ("%Y", "year"),
        ("%Y-%m", "month"),
        ("%Y-%m-%d", "day"),
        ("%y%j", "day"),
        ("%Y/%m/%d/%H", "hour"),
        ("%Y%m%dT%H%M", "minute"),
    ],
)
def test_granularity_is_that_of_the_smallest_directive(date_format: str, granularity: str) -> None:
    assert PathPattern.parse(f"{{date:{date_format}}}.csv").granularity == granularity


def test_local_day_has_the_hours_that_its_clock_shows() -> None:
    pattern = PathPattern.parse("{date:%Y-%m-%d}.csv", "Europe/Berlin")
    start = pattern.start_of("2026-03-29")
    assert start == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert pattern.end_of(start) - start == timedelta(hours=23)
    assert pattern.end_of(start) == pattern.start_of("2026-03-30")


@pytest.mark.parametrize(
    ("date_format", "text", "periods", "expected"),
    [
        ("%Y-%m", "2013-01", 1, "2013-02"),
        ("%Y-%m", "2013-01", -1, "2012-12"),
        ("%Y-%m", "2013-12", 13, "2015-01"),
        ("%Y", "2013", 2, "2015"),
        ("%Y-%m-%d", "2013-03-01", -1, "2013-02-28"),
        ("%Y-%m-%d-%H", "2013-03-01-00", -1, "2013-02-28-23"),
        ("%Y-%m-%d-%H-%M", "2013-03-01-00-00", -1, "2013-02-28-23-59"),
    ],
)
def test_dates_are_counted_in_their_granularity(date_format: str, text: str, periods: int, expected: str) -> None:
    pattern = PathPattern.parse(f"{{date:{date_format}}}.csv", "Europe/Berlin")
    assert pattern.shift(pattern.start_of(text), periods) == pattern.start_of(expected)


@pytest.mark.parametrize(("date_format", "text"), [("%Y-%m-%d", "9999-12-31"), ("%Y-%m", "9999-12"), ("%Y", "9999")])
def test_date_behind_which_no_calendar_goes_is_none(date_format: str, text: str) -> None:
    with pytest.raises(ValueError, match="too far away"):
        PathPattern.parse(f"{{date:{date_format}}}.csv").start_of(text)


@pytest.mark.parametrize(
    ("date_format", "text", "zone"),
    [
        ("%Y-%m-%d", "2024-02-31", "UTC"),
        ("%Y%j", "2023366", "UTC"),
        ("%Y%j", "2023000", "UTC"),
        ("%Y/%y-%m-%d", "2024/23-01-01", "UTC"),
        ("%Y-%m-%d-%j", "2024-01-02-001", "UTC"),
        ("%Y-%m-%dT%H", "2024-03-31T02", "Europe/Berlin"),
        ("%Y-%m-%d", "2011-12-30", "Pacific/Apia"),
        ("%Y-%m-%d", "٢٠٢٤-01-01", "UTC"),
    ],
    ids=str,
)
def test_date_that_no_calendar_has_is_none(date_format: str, text: str, zone: str) -> None:
    # Day 366 of a year of 365 days, and an hour that clocks skip, were the instant of another date.
    with pytest.raises(ValueError, match=r"."):
        PathPattern.parse(f"{{date:{date_format}}}.csv", zone).start_of(text)


@pytest.mark.parametrize(
    ("date_format", "text", "zone"),
    [
        ("%Y%j", "2024366", "UTC"),
        ("%Y-%m-%d", "0007-01-02", "UTC"),
        ("%y%m%d", "690101", "UTC"),
        ("%Y-%m-%d", "2018-11-04", "America/Sao_Paulo"),  # its midnight does not exist, the day does
        ("%Y-%m-%dT%H", "2024-10-27T02", "Europe/Berlin"),  # exists twice
    ],
    ids=str,
)
def test_odd_date_of_the_calendar_is_one(date_format: str, text: str, zone: str) -> None:
    pattern = PathPattern.parse(f"{{date:{date_format}}}.csv", zone)
    assert pattern.end_of(pattern.start_of(text)) > pattern.start_of(text)


@pytest.mark.parametrize(
    ("date_format", "zone", "texts"),
    [
        ("%Y-%m-%d", "Africa/Cairo", "2025-04-24 2025-04-25 2025-04-26 2025-04-27"),
        ("%Y-%m-%d", "America/Havana", "2025-11-01 2025-11-02 2025-11-03"),  # the hour behind midnight comes twice
        ("%Y-%m", "Asia/Amman", "2016-03 2016-04 2016-05"),
        ("%Y", "America/Sao_Paulo", "1913 1914 1915"),
        ("%Y-%m-%d-%H", "Australia/Lord_Howe", "2025-10-05-01 2025-10-05-02 2025-10-05-03"),
    ],
    ids=lambda value: value.split()[0],
)
def test_date_ends_where_the_next_one_begins_also_if_clocks_skip_its_beginning(
    date_format: str, zone: str, texts: str
) -> None:
    pattern = PathPattern.parse(f"{{date:{date_format}}}.csv", zone)
    starts = [pattern.start_of(text) for text in texts.split()]
    assert [pattern.end_of(start) for start in starts[:-1]] == starts[1:]


@pytest.mark.parametrize(
    ("text", "zone", "instant", "around"),
    [
        ("%Y-%m-%d", "UTC", "2013-01-04T00:00Z", None),
        ("%Y-%m-%d", "UTC", "2013-01-04T23:59Z", ("2013-01-04T00:00Z", "2013-01-05T00:00Z")),
        ("%Y-%m-%d", "America/New_York", "2013-01-04T05:00Z", None),
        ("%Y-%m-%d", "America/New_York", "2013-01-04T00:00Z", ("2013-01-03T05:00Z", "2013-01-04T05:00Z")),
        ("%Y-%m", "UTC", "2013-01-04T00:00Z", ("2013-01-01T00:00Z", "2013-02-01T00:00Z")),
        ("%Y-%m-%d-%H", "Europe/Berlin", "2026-10-25T00:30Z", ("2026-10-25T00:00Z", "2026-10-25T01:00Z")),
        ("%Y-%m-%d-%H", "Europe/Berlin", "2026-10-25T01:00Z", None),
    ],
    ids=["beginning", "inside", "local beginning", "local day", "month", "hour", "second hour of one name"],
)
def test_instant_inside_of_a_date_is_told_from_its_ends(
    text: str, zone: str, instant: str, around: tuple[str, str] | None
) -> None:
    pattern = PathPattern.parse(f"{{date:{text}}}.csv", zone)
    expected = None if around is None else tuple(datetime.fromisoformat(one) for one in around)
    assert pattern.dates_around(datetime.fromisoformat(instant)) == expected


def test_bind_takes_the_urn_as_plain_text() -> None:
    assert PathPattern.parse("in/{dataset}/{date:%Y%m%d}.csv").bind("a*{b}").root() == "in/a*{b}"
    assert PathPattern.parse("in/{dataset:**}/{date:%Y%m%d}.csv").bind("a/b").root() == "in/a/b"
