"""The source `rest` against a real HTTP server: paging, cursors, faults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.errors import InvalidSpecError, UsageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import Specific, StartpointPosition, Timestamp, Upcoming
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import JobSpec
from tests.services.json_api import Asked, JsonApi, Reply, running_api
from tests.unit.engine.jobs import project, run
from tests.unit.engine.plan.test_startpoints import wish

COLUMNS = {"id": "int64", "title": "string", "updated_at": "timestamp"}
BY_ID = {"column": "id", "newest_params": {"sort": "-id"}}


@dataclass
class Issues:
    """A list of issues that can be asked in all ways."""

    records: list[dict[str, Any]] = field(default_factory=list)
    page_size: int = 10
    heeds_bounds: bool = True
    counts_bounds_in: bool = True
    grows: int = 0
    """How many records come with each request of a page, up to 300."""
    newest_first: bool = False

    def add(self, count: int, at: str = "2026-01-01T00:00:00Z") -> None:
        first = len(self.records) + 1
        self.records += [{"id": n, "title": f"t{n}", "updated_at": at} for n in range(first, first + count)]

    def reply(self, asked: Asked) -> Reply:
        params, found = asked.params, list(self.records)
        if self.heeds_bounds and "min_id" in params:
            first = int(params["min_id"]) + (not self.counts_bounds_in)
            found = [record for record in found if record["id"] >= first]
        if params.get("sort") == "-id":
            return Reply(sorted(found, key=lambda record: -int(record["id"]))[:1])
        if len(self.records) < 300:
            self.add(self.grows)
        if self.newest_first:
            found.reverse()
        start = int(params.get("offset", 0)) + (int(params.get("page", 1)) - 1) * self.page_size
        start += int(params.get("cursor", 0))
        page, end = found[start : start + self.page_size], start + self.page_size
        more = end < len(found)
        last = int(params.get("starting_after", 0))
        link = {"Link": f'</link?cursor={end}>; rel="next"'} if more and asked.path == "/link" else {}
        bodies = {
            "/cursor": {"data": {"items": page}, "meta": {"next": end if more else None}},
            "/next": {"items": page, "links": {"next": f"next?cursor={end}" if more else None}},
            "/after": found[last : last + self.page_size],
            "/counted": {"items": page, "meta": {"pages": -(-len(found) // self.page_size)}},
        }
        is_behind = asked.path == "/counted" and 0 < start >= len(found)
        return Reply(bodies.get(asked.path, page), 404 if is_behind else 200, link)


@dataclass
class RestJob:
    root: Path
    api: JsonApi
    issues: Issues
    options: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    """The parts of the job without its source."""

    @property
    def spec(self) -> JobSpec:
        source = {"type": "rest", "url": self.api.url, "datasets": {"issues": "/issues"}, "columns": COLUMNS}
        return JobSpec.model_validate(
            {
                "job": "issues",
                "source": source | self.options,
                "extract": {"namespace": "test", "table": "issues", "is_full": "cursor" not in self.options},
                "output": {"path": "lake"},
                "execution": {"retries": {"count": 0}},  # a client's own retries are what these tests are about
            }
            | self.parts
        )

    def run(self) -> DatasetResult:
        (dataset,) = run(self.root, self.spec).datasets
        return dataset

    def plan(self) -> DatasetPlan:
        (dataset,) = plan_job(project(self.root, self.spec), self.spec).datasets
        return dataset

    def table(self, urn: str = "issues") -> pa.Table:
        store = project(self.root, self.spec).open_store()
        try:
            return pa.concat_tables([pq.read_table(file.path) for file in store.load_snapshot("issues", urn)])
        finally:
            store.close()

    def ids(self) -> list[int]:
        ids: list[int] = sorted(self.table()["id"].to_pylist())
        return ids


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[Callable[..., RestJob]]:
    with ExitStack() as stack:

        def make(parts: dict[str, Any] | None = None, **options: Any) -> RestJob:
            issues = Issues()
            return RestJob(tmp_path, stack.enter_context(running_api(issues.reply)), issues, options, parts or {})

        yield make


@pytest.mark.parametrize(
    ("position", "ids", "problem"),
    [
        (Specific("3"), [3, 4, 5], ""),
        (Upcoming(), [6], ""),
        (Specific("1000"), [6], "it lies beyond the end, 6"),
        (Timestamp(datetime(2026, 1, 1, tzinfo=UTC)), [6], "its positions are no times"),
    ],
    ids=["specific", "upcoming", "beyond", "timestamp"],
)
def test_startpoints_lie_at_the_end_of_the_list_or_before_it(
    new_job: Callable[..., RestJob], position: StartpointPosition, ids: list[int], problem: str
) -> None:
    job = new_job(cursor=BY_ID)
    job.issues.add(5)
    wish(job.root, job.spec, position, "issues")
    assert problem in job.plan().problem
    assert bool(job.plan().problem) is bool(problem)
    if problem:
        wish(job.root, job.spec, Upcoming(), "issues")
    job.run()
    if ids == [6]:
        job.issues.add(1)
        job.run()
    assert job.ids() == ids


def test_fields_that_no_column_is_declared_for_are_named_by_the_run(new_job: Callable[..., RestJob]) -> None:
    job = new_job(columns={"id": "int64"})
    job.issues.add(3)
    assert job.run().notes == (
        "field(s) of the records that `columns` does not declare were left out: 'title', 'updated_at'.",
    )


PAGINGS = [
    pytest.param("/issues", {"type": "page"}, "", id="page"),
    pytest.param("/issues", {"type": "offset"}, "", id="offset"),
    pytest.param("/cursor", {"type": "cursor", "next": "meta.next"}, "data.items", id="cursor"),
    pytest.param("/link", {"type": "link"}, "", id="link"),
    pytest.param("/next", {"type": "next_url", "next": "links.next"}, "items", id="next_url"),
    pytest.param("/after", {"type": "after"}, "", id="after"),
    pytest.param("/counted", {"type": "page", "pages": "meta.pages"}, "items", id="page_of_pages"),
]


@pytest.mark.parametrize(("path", "paging", "records"), PAGINGS)
@pytest.mark.parametrize("count", [0, 1, 10, 35])
def test_all_pages_are_read(
    new_job: Callable[..., RestJob], path: str, paging: dict[str, str], records: str, count: int
) -> None:
    job = new_job(datasets={"issues": path}, paging=paging, records=records)
    job.issues.add(count)
    assert job.run().rows_read == count


def test_short_pages_in_the_middle_are_not_the_end(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page"})
    pages = [[{"id": 1}, {"id": 2}], [{"id": 3}], [{"id": 4}, {"id": 5}], []]
    job.api.reply = lambda asked: Reply(pages[int(asked.params["page"]) - 1])
    assert job.run().rows_read == 5


def test_empty_page_is_not_the_end_if_there_are_more_pages(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page", "pages": "pages"}, records="items")
    pages = [[{"id": 1}], [], [], [{"id": 2}]]
    job.api.reply = lambda asked: Reply({"items": pages[int(asked.params["page"]) - 1], "pages": len(pages)})
    assert job.run().rows_read == 2


def test_records_that_pages_repeat_are_kept_once(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page"}, key=["id"])
    pages = [[{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 3}], []]
    job.api.reply = lambda asked: Reply(pages[int(asked.params["page"]) - 1])
    job.run()
    assert job.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    ("paging", "body", "said"),
    [
        ({"type": "page"}, [{"id": 1}], "it repeats a page"),
        ({"type": "offset"}, [{"id": 1}], "it repeats a page"),
        ({"type": "cursor", "next": "next"}, {"next": "a", "items": [{"id": 1}]}, "leads back"),
        ({"type": "next_url"}, {"next": "/issues", "items": [{"id": 1}]}, "leads back"),
        ({"type": "after"}, [{"id": 1}], "leads back"),
    ],
)
def test_server_that_repeats_itself_is_not_asked_for_ever(
    new_job: Callable[..., RestJob], paging: dict[str, str], body: Any, said: str
) -> None:
    job = new_job(paging=paging, records="items" if isinstance(body, dict) else "")
    job.api.reply = lambda _: Reply(body)
    failed = job.run()
    assert failed.outcome is DatasetOutcome.FAILED
    assert said in failed.failures[0].message


@pytest.mark.parametrize("type_", ["page", "offset", "cursor", "next_url"])
def test_server_that_begins_again_behind_its_last_page_is_not_asked_for_ever(
    new_job: Callable[..., RestJob], type_: str
) -> None:
    job = new_job(paging={"type": type_, **({"next": "next"} if type_ in ("cursor", "next_url") else {})}, records="r")
    asked = job.api.asked

    def reply(_: Asked) -> Reply:
        following = f"/issues?c={len(asked)}" if type_ == "next_url" else f"c{len(asked)}"
        return Reply({"r": [{"id": len(asked) % 3}], "next": following}, 200 if len(asked) < 9 else 404)

    job.api.reply = reply
    (failure,) = job.run().failures
    assert "hands out its pages again from the first one on" in failure.message
    assert len(asked) == 6


def test_server_that_does_not_know_the_cursor_is_not_asked_for_ever(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "cursor", "next": "next"}, records="items")
    job.api.reply = lambda _: Reply(
        {"items": [{"id": 1}], "next": f"new{len(job.api.asked)}"}, 200 if len(job.api.asked) < 5 else 404
    )
    (failure,) = job.run().failures
    assert "ignores the parameter 'cursor': it repeats a page" in failure.message


def test_fraction_as_cursor_keeps_all_digits(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "cursor", "next": "next"}, records="items")
    bodies = {
        None: b'{"items": [{"id": 1}], "next": 1700000000.12345678901}',
        "1700000000.12345678901": b'{"items": [{"id": 2}], "next": null}',
    }
    job.api.reply = lambda asked: Reply(bodies.get(asked.params.get("cursor"), b"{}"))
    job.run()
    assert job.ids() == [1, 2]


@pytest.mark.parametrize("heeds_bounds", [True, False])
def test_number_cursor_reads_each_record_once(new_job: Callable[..., RestJob], heeds_bounds: bool) -> None:
    job = new_job(paging={"type": "offset"}, cursor={**BY_ID, "low_param": "min_id"})
    job.issues.heeds_bounds = heeds_bounds
    job.issues.add(12)
    job.run()
    assert job.ids() == list(range(1, 13))
    assert job.run().outcome is DatasetOutcome.IDLE
    assert job.plan().work_units == ()
    job.issues.add(13)
    assert str(job.run().actual_high) == "26"
    assert job.ids() == list(range(1, 26))


def test_position_of_another_cursor_is_refused(new_job: Callable[..., RestJob]) -> None:
    job = new_job(cursor=BY_ID)
    job.issues.add(3)
    job.run()
    job.options |= {"columns": {**COLUMNS, "rank": "int64"}, "cursor": {**BY_ID, "column": "rank"}}
    assert "its watermark column is `rank`, it was `id` when the dataset was committed up to 4" in job.plan().problem


def test_record_that_comes_after_the_plan_waits_for_the_next_run(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "offset"}, cursor=BY_ID)
    job.issues.add(3)
    reply = job.issues.reply

    def grow(asked: Asked) -> Reply:
        answer = reply(asked)
        if "sort" in asked.params:
            job.issues.add(1)
        return answer

    job.api.reply = grow
    job.run()
    assert job.ids() == [1, 2, 3]
    job.api.reply = reply
    job.run()
    assert job.ids() == [1, 2, 3, 4]


def test_timestamp_cursor_keeps_a_lag_and_tells_the_server_its_bounds(new_job: Callable[..., RestJob]) -> None:
    cursor = {"column": "updated_at", "low_param": "since", "high_param": "until", "lag_s": 3600}
    job = new_job(cursor=cursor | {"start": "2025-12-31T00:00:00Z"})
    now = datetime.now(UTC)
    job.issues.add(2, "2026-01-01T00:00:00Z")
    job.issues.add(1, "2025-01-01T00:00:00Z")  # before the start
    job.issues.add(1, (now - timedelta(minutes=5)).isoformat())  # within the lag
    job.run()
    assert job.ids() == [1, 2]
    params = job.api.asked[-1].params
    assert params["since"] == "2025-12-30T23:59:59Z"  # before the start, for servers that do not count it in
    until = datetime.fromisoformat(params["until"])
    assert timedelta(minutes=59, seconds=59) <= datetime.now(UTC) - until < timedelta(hours=1, minutes=5)
    job.run()
    since = datetime.fromisoformat(job.api.asked[-1].params["since"])
    assert timedelta() < until - since <= timedelta(seconds=1)
    assert job.ids() == [1, 2]


@pytest.mark.parametrize(
    ("form", "since", "until"),
    [
        ("iso", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
        ("unix", "1767225600", "1767225601"),
        ("unix_ms", "1767225600123", "1767225600789"),
    ],
)
def test_bounds_are_written_as_the_server_wants_them_and_leave_no_record_out(
    new_job: Callable[..., RestJob], form: str, since: str, until: str
) -> None:
    start = "2026-01-01T00:00:00.123456Z"
    params = {"low_param": "since", "high_param": "until", "newest_params": {"sort": "-id"}, "param_format": form}
    job = new_job(cursor={"column": "updated_at", "start": start, **params})
    job.issues.add(1, "2026-01-01T00:00:00.788900Z")
    job.run()
    asked = job.api.asked[-1].params
    assert (asked["since"], asked["until"]) == (since, until)


def test_newest_record_of_a_timestamp_cursor_makes_idle_runs_idle(new_job: Callable[..., RestJob]) -> None:
    job = new_job(cursor={"column": "updated_at", "newest_params": {"sort": "-id"}})
    assert (job.plan().low, job.run().outcome) == (None, DatasetOutcome.IDLE)  # without anything to read yet
    job.issues.add(2)
    assert str(job.run().actual_high) == "2026-01-01T00:00:00.000001Z"
    assert job.run().outcome is DatasetOutcome.IDLE


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        (
            [{"id": 3, "updated_at": None}],
            "expected 'updated_at' in the newest record, got nothing; it has id, updated_at.",
        ),
        (
            [{"id": 3, "updatedAt": "2026-01-01T00:00:00Z"}],
            "got nothing; it has id, updatedAt. Correct `cursor.column`",
        ),
        ([7], "got nothing; it has int."),
        (
            [{"id": n, "updated_at": f"2026-01-0{n}T00:00:00Z"} for n in (1, 2, 3)],
            "expected the newest record first, got 2026-01-01 00:00:00+00:00 before 2026-01-03 00:00:00+00:00. Correct",
        ),
    ],
    ids=["null", "other-name", "number", "oldest-first"],
)
def test_newest_record_that_tells_no_end_of_the_list_is_no_empty_list(
    new_job: Callable[..., RestJob], newest: list[Any], said: str
) -> None:
    cursor = {"column": "updated_at", "newest_params": {"sort": "-updated_at"}}
    job = new_job(columns={"id": "int64", "updated_at": "timestamp"}, cursor=cursor, paging={"type": "page"})
    job.api.reply = lambda _: Reply(newest)
    assert said in job.plan().problem


def test_newest_record_of_a_list_without_pages_may_stand_anywhere(new_job: Callable[..., RestJob]) -> None:
    job = new_job(cursor={"column": "id", "newest_params": {}})
    job.issues.add(5)
    assert job.run().rows_read == 5


def test_newest_record_may_be_of_the_last_instant(new_job: Callable[..., RestJob]) -> None:
    job = new_job(cursor={"column": "updated_at", "newest_params": {"sort": "-id"}})
    job.issues.add(1, "9999-12-31T23:59:59.999999Z")
    assert job.run().rows_read == 0


def test_without_a_cursor_every_run_takes_the_place_of_the_last(new_job: Callable[..., RestJob]) -> None:
    job = new_job()
    job.issues.add(2)
    job.run()
    job.issues.add(1)
    del job.issues.records[0]
    assert job.run().rows_read == 2
    assert job.ids() == [2, 3]
    job.parts = {"publisher": {"type": "append"}}
    job.run()
    assert job.ids() == [2, 2, 3, 3]


def test_list_without_a_cursor_is_not_appended_again_and_again(new_job: Callable[..., RestJob]) -> None:
    job = new_job({"extract": {"namespace": "test", "table": "issues"}})
    with pytest.raises(UsageError, match=r"would publish it again and again\. Give a `cursor`, or"):
        job.run()


def test_cursor_of_a_full_extract_reads_from_the_beginning_each_time(new_job: Callable[..., RestJob]) -> None:
    extract = {"namespace": "test", "table": "issues", "type": "snapshot_only"}
    job = new_job({"extract": extract}, cursor={**BY_ID, "low_param": "min_id"})
    job.issues.add(3)
    job.run()
    job.issues.records[0]["title"] = "mended"
    assert job.run().rows_read == 3
    assert sorted(job.table()["title"].to_pylist()) == ["mended", "t2", "t3"]


def test_record_without_its_cursor_fails_with_its_number(new_job: Callable[..., RestJob]) -> None:
    job = new_job(cursor={"column": "updated_at"})
    job.api.reply = lambda _: Reply([{"id": 1, "updated_at": "2026-01-01T00:00:00Z"}, {"id": 2}])
    failed = job.run()
    assert "/issues, row 2: the record has no 'updated_at'" in failed.failures[0].message


def test_nested_values_become_text_in_string_columns(new_job: Callable[..., RestJob]) -> None:
    job = new_job()
    job.api.reply = lambda _: Reply([{"id": 1, "title": {"en": ["a"]}}, {"id": 2, "title": "plain"}])
    job.run()
    assert job.table()["title"].to_pylist() == ['{"en": ["a"]}', "plain"]


def test_nested_columns_are_lists_objects_and_json(new_job: Callable[..., RestJob]) -> None:
    columns = {"id": "int64", "lines": [{"sku": "string", "price": "decimal(20,4)"}], "more": "json"}
    job = new_job(columns=columns)
    price = "1234567890123456.7891"
    line = f'{{"sku": "a", "price": {price}, "x": 1}}'
    job.api.reply = lambda _: Reply(
        f'[{{"id": 1, "lines": [{line}], "more": "t"}}, {{"id": 2, "more": [0.10]}}]'.encode()
    )
    job.run()
    assert job.table().to_pylist() == [
        {"id": 1, "lines": [{"sku": "a", "price": Decimal(price)}], "more": '"t"'},
        {"id": 2, "lines": None, "more": "[0.10]"},
    ]


def test_fractions_in_nested_values_keep_all_digits(new_job: Callable[..., RestJob]) -> None:
    job = new_job()
    job.api.reply = lambda _: Reply(b'[{"id": 1, "title": {"ratio": [0.1000000000000000055511151231257827, 1E2]}}]')
    job.run()
    assert job.table()["title"].to_pylist() == ['{"ratio": [0.1000000000000000055511151231257827, 1E2]}']


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_busy_server_is_asked_again(new_job: Callable[..., RestJob], status: int) -> None:
    job = new_job()
    job.issues.add(3)
    job.api.faults = [Reply("busy", status, {"Retry-After": "0"})] * 2
    assert job.run().rows_read == 3
    assert len(job.api.asked) == 3


def test_server_that_stays_busy_fails_as_transient(new_job: Callable[..., RestJob]) -> None:
    job = new_job(retries=2)
    job.api.reply = lambda _: Reply("busy", 503, {"Retry-After": "0"})
    (failure,) = job.run().failures
    assert failure.transient
    assert "/issues: it answers 503" in failure.message
    assert len(job.api.asked) == 3


@pytest.mark.parametrize(
    "asked_for", ["301", format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)], ids=["seconds", "date"]
)
def test_pause_beyond_the_cap_fails_at_once(new_job: Callable[..., RestJob], asked_for: str) -> None:
    job = new_job()
    job.api.reply = lambda _: Reply("busy", 429, {"Retry-After": asked_for})
    (failure,) = job.run().failures
    assert failure.transient
    assert "more than `retry_after_cap_s`" in failure.message
    assert len(job.api.asked) == 1


@pytest.mark.parametrize(
    ("body", "may_lack", "is_read"),
    [
        ({"data": {"items": None}}, False, True),
        ({"data": {}}, True, True),
        ({"data": {}}, False, False),
        ({"data": None}, False, False),
        ({"rows": [{"id": 1}]}, False, False),
    ],
    ids=["null", "left out, and may be", "left out", "null above it", "elsewhere"],
)
def test_answer_without_the_list_is_no_empty_list(
    new_job: Callable[..., RestJob], body: Any, may_lack: bool, is_read: bool
) -> None:
    job = new_job(records="data.items", records_may_lack=may_lack)
    job.api.reply = lambda _: Reply(body)
    result = job.run()
    assert result.outcome is (DatasetOutcome.COMMITTED if is_read else DatasetOutcome.FAILED)
    if not is_read:
        (failure,) = result.failures
        assert "expected a list at 'data.items', got nothing. The answer has " in failure.message
        assert result.actual_high == result.low


@pytest.mark.parametrize(
    ("body", "may_lack", "is_read"),
    [
        ({"meta": {"next": None}}, False, True),
        ({"meta": {"next": ""}}, False, True),
        ({"meta": {}}, True, True),
        ({}, True, True),
        ({"meta": {}}, False, False),
        ({"meta": None}, False, False),
        ({"next_cursor": "a"}, False, False),
    ],
    ids=["null", "empty", "left out, and may be", "all left out, and may be", "left out", "null above it", "elsewhere"],
)
def test_answer_without_the_next_cursor_is_no_last_page(
    new_job: Callable[..., RestJob], body: Any, may_lack: bool, is_read: bool
) -> None:
    paging = {"type": "cursor", "next": "meta.next", "next_may_lack": may_lack}
    job = new_job(records="items", paging=paging)
    job.api.reply = lambda _: Reply({"items": [{"id": 1}]} | body)
    result = job.run()
    assert result.outcome is (DatasetOutcome.COMMITTED if is_read else DatasetOutcome.FAILED)
    if not is_read:
        (failure,) = result.failures
        assert (
            "expected the next cursor at 'meta.next', or null there, got nothing. The answer has items"
            in failure.message
        )
        assert result.actual_high == result.low


@pytest.mark.parametrize(("cursor", "got"), [({"next": None}, "dict"), (["b"], "list"), (True, "bool")])
def test_next_cursor_that_is_no_text_or_number_is_refused(
    new_job: Callable[..., RestJob], cursor: Any, got: str
) -> None:
    job = new_job(records="items", paging={"type": "cursor", "next": "meta"})
    job.api.reply = lambda _: Reply({"items": [{"id": 1}], "meta": cursor})
    (failure,) = job.run().failures
    assert f"expected the next cursor at 'meta', got {got}. Correct `paging.next`." in failure.message
    assert len(job.api.asked) == 1


@pytest.mark.parametrize(
    ("paging", "body", "said"),
    [
        (
            {"type": "next_url"},
            {},
            "expected the next URL at 'next', or null there, got nothing. The answer has items.",
        ),
        ({"type": "next_url"}, {"next": 7}, "expected the next URL at 'next', got int. Correct `paging.next`."),
        ({"type": "next_url"}, {"next": "http://[x/"}, "expected the next URL at 'next', got a text that is none: "),
        (
            {"type": "next_url"},
            {"next": "http://x:99999/"},
            "expected the next URL at 'next', got a text that is none: ",
        ),
        ({"type": "after", "column": "key"}, {}, "whole number at 'key' in the last record of the page, got nothing."),
        ({"type": "after", "column": "at"}, {}, "at 'at' in the last record of the page, got dict. Correct `paging."),
        ({"type": "page", "pages": "total"}, {"total": "3"}, "expected the number of pages at 'total', got \"3\"."),
        ({"type": "page", "pages": "total"}, {}, "at 'total', got null. The answer has items. Correct `paging.pages`."),
    ],
)
def test_what_leads_to_the_next_page_is_told_if_it_is_wrong(
    new_job: Callable[..., RestJob], paging: dict[str, Any], body: dict[str, Any], said: str
) -> None:
    job = new_job(records="items", paging=paging)
    job.api.reply = lambda _: Reply({"items": [{"id": 1, "at": {}}], **body})
    (failure,) = job.run().failures
    assert said in failure.message
    assert len(job.api.asked) == 1


def test_decimals_keep_all_digits(new_job: Callable[..., RestJob]) -> None:
    job = new_job(columns={"id": "int64", "amount": "decimal(30,4)", "share": "float64"})
    amounts = ["12345678901234567.8901", "0.1", "-1e3", '"2.50"', "7"]
    rows = ", ".join(f'{{"id": 1, "amount": {amount}, "share": 0.25}}' for amount in amounts)
    job.api.reply = lambda _: Reply(f"[{rows}]".encode())
    job.run()
    expected = [Decimal(one) for one in ("12345678901234567.8901", "0.1", "-1000", "2.5", "7")]
    assert job.table()["amount"].to_pylist() == expected
    assert job.table()["share"].to_pylist() == [0.25] * 5


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("text/plain", "utf-8"),  # requests takes it for Latin-1
        ("", "utf-8"),
        ("application/json", "utf-16"),
        ("application/json; charset=UTF-8", "utf-8-sig"),
        ('text/json; charset="latin-1"', "latin-1"),
    ],
)
def test_text_is_read_as_what_it_is(new_job: Callable[..., RestJob], kind: str, encoding: str) -> None:
    job = new_job(columns={"title": "string"})
    job.api.reply = lambda _: Reply('[{"title": "Zoë"}]'.encode(encoding), headers={"Content-Type": kind})
    job.run()
    assert job.table()["title"].to_pylist() == ["Zoë"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("application/json", "answers text that is not utf-8: byte 0xeb at 14."),
        ("application/json; charset=ascii", "answers text that is not ascii: byte 0xeb at 14."),
        ("application/json; charset=klingon", "answers text in a charset that is unknown here."),
    ],
)
def test_text_that_cannot_be_decoded_is_refused(new_job: Callable[..., RestJob], kind: str, said: str) -> None:
    job = new_job(columns={"title": "string"})
    job.api.reply = lambda _: Reply('[{"title": "Zoë"}]'.encode("latin-1"), headers={"Content-Type": kind})
    (failure,) = job.run().failures
    assert said in failure.message


def test_records_without_a_key_are_not_one_record(new_job: Callable[..., RestJob]) -> None:
    job = new_job(columns={"id": "int64", "part": "int64", "title": "string"}, key=["id", "part"])
    job.api.reply = lambda _: Reply([{"id": 1, "title": "a"}, {"title": "b"}, {"title": "c"}])
    (failure,) = job.run().failures
    assert "row 2: the record has no 'id' or 'part', which identifies it (`key`)." in failure.message
    job.api.reply = lambda _: Reply([{"id": 1, "title": "a"}, {"id": 1, "title": "a"}])
    assert job.run().rows_read == 1


def test_older_state_of_a_record_does_not_hide_it(new_job: Callable[..., RestJob]) -> None:
    """A replica that is behind shows a record as it was, then another one as it is."""
    cursor = {"column": "updated_at", "start": "2026-01-01T00:00:00Z"}
    job = new_job(
        columns={"id": "int64", "updated_at": "timestamp"}, cursor=cursor, key=["id"], paging={"type": "page"}
    )
    days = [["2025-12-31"], ["2026-01-02", "2026-01-02"], []]
    job.api.reply = lambda asked: Reply(
        [{"id": 1, "updated_at": f"{day}T00:00:00Z"} for day in days[int(asked.params["page"]) - 1]]
    )
    job.run()
    assert job.ids() == [1]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply("no", 404), "answers 404"),
        (Reply("", 304), "answers 304."),
        (Reply("no", 401), "check the credentials"),
        (Reply("", 302, {"Location": "http://127.0.0.1:9/"}), "a redirect"),
        (Reply(b"<html>"), "no JSON"),
        (
            Reply({"id": 1}),
            "expected a list at 'the top', got dict. The answer has id. Set `records` to the path of the list.",
        ),
        (
            Reply([{"id": "one"}]),
            "row 1: the record is no JSON object of the declared columns: field 'id' is of the type string, expected",
        ),
        (Reply([{"id": 1}, None]), "row 2: the record is null"),
        (Reply(b'[{"id": 1, "id": 2}]'), "answers JSON that cannot be read: field 'id' was specified twice."),
        (Reply(b'[{"id": 1e999}]'), "cannot be read: the number 1e999 is too large for 64 bits."),
        (Reply(b'[{"id": 1, "title": [NaN]}]'), "row 1: the record holds NaN, Infinity or -Infinity, which"),
        (
            Reply(b'[{"id": 1, "title": ' + b"[" * 600 + b"]" * 600 + b"}]"),
            "lists and objects nested too deep to be read.",
        ),
    ],
    ids=["404", "304", "401", "redirect", "html", "object", "type", "null", "twice", "large", "nan", "deep"],
)
def test_wrong_answer_fails_with_what_it_was(new_job: Callable[..., RestJob], reply: Reply, said: str) -> None:
    job = new_job()
    job.api.reply = lambda _: reply
    (failure,) = job.run().failures
    assert said in failure.message
    assert not failure.transient


def test_link_to_another_host_is_not_asked(new_job: Callable[..., RestJob], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "Bearer hunter2")
    other = new_job()
    job = new_job(paging={"type": "link"}, headers_env={"Authorization": "API_TOKEN"})
    job.api.reply = lambda _: Reply([{"id": 1}], headers={"Link": f'<{other.api.url}/issues>; rel="next"'})
    (failure,) = job.run().failures
    assert "leads to another host" in failure.message
    in_body = new_job(paging={"type": "next_url"}, records="items", headers_env={"Authorization": "API_TOKEN"})
    in_body.api.reply = lambda _: Reply({"items": [{"id": 1}], "next": f"{other.api.url}/issues"})
    (failure,) = in_body.run().failures
    assert "leads to another host" in failure.message
    assert other.api.asked == []


def test_secret_header_is_sent_and_stands_nowhere(
    new_job: Callable[..., RestJob], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = new_job(headers_env={"Authorization": "API_TOKEN"}, headers={"X-Team": "lake"})
    job.issues.add(1)
    assert "API_TOKEN, which is not set in the environment" in job.run().failures[0].message
    monkeypatch.setenv("API_TOKEN", "Bearer hunter2")
    with caplog.at_level(logging.DEBUG):
        job.run()
    headers = job.api.asked[-1].headers
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer hunter2", "lake")
    assert "hunter2" not in caplog.text
    assert not any(b"hunter2" in path.read_bytes() for path in job.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(5))
def test_incremental_equals_full_under_random_arrivals_and_faults(new_job: Callable[..., RestJob], seed: int) -> None:
    chance = Random(seed)
    job = new_job(paging={"type": "offset"}, cursor={**BY_ID, "low_param": "min_id"}, retries=0)
    job.issues.counts_bounds_in = seed % 2 == 0
    for _ in range(6):
        job.issues.add(chance.randrange(25))
        job.api.faults = [Reply("busy", 503)] if chance.random() < 0.5 else []
        if job.api.faults and chance.random() < 0.5:
            job.api.faults.insert(0, Reply([{"id": len(job.issues.records)}]))  # the plan passes, the reading fails
        job.run()
    job.api.faults = []
    job.run()
    assert job.ids() == [record["id"] for record in job.issues.records]
    assert job.plan().work_units == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x/"}, "http://host"),
        ({"url": "http://me:secret@x/"}, "headers_env"),
        ({"headers": {"Authorization": "x"}}, "headers_env"),
        ({"columns": {}}, "columns"),
        ({"key": ["nope"]}, "nope"),
        ({"paging": {"type": "nxt_url"}}, r"\.paging: unknown type 'nxt_url'; did you mean 'next_url'\?"),
        ({"paging": {"type": "links"}}, "unknown type 'links'; did you mean 'link'"),
        ({"paging": {"type": "x"}}, "unknown type 'x'; known: after, cursor, link, next_url, none, offset, page"),
        ({"paging": {"next": "x"}}, r"\.paging: expected keys and values with `type`, got keys and values \(next\)"),
        ({"paging": {"type": "next_url", "nxt": "a"}}, r"\.paging\.nxt: unknown key; did you mean 'next'\?"),
        ({"cursor": {"column": "title"}}, "must be timestamp or int64"),
        ({"cursor": {"column": "at"}, "columns": {"at": ["int64"]}}, "must be timestamp or int64"),
        ({"key": ["at"], "columns": {"at": {"x": "int64"}}}, "`key` names at, a list or object"),
        ({"cursor": {"column": "id"}}, "newest_params"),
        ({"cursor": {"column": "updated_at", "start": 5}}, "must fit"),
        ({"cursor": {"column": "updated_at", "start": "2026-01-01T00:00:00"}}, "time zone"),
    ],
)
def test_wrong_options_are_told(new_job: Callable[..., RestJob], options: dict[str, Any], said: str) -> None:
    job = new_job(**options)
    with pytest.raises(InvalidSpecError, match=said):
        job.run()
    assert job.api.asked == []


def test_sorted_list_is_read_in_parts_by_limited_runs(new_job: Callable[..., RestJob]) -> None:
    cursor = {**BY_ID, "is_sorted": True}
    job = new_job(paging={"type": "page"}, cursor=cursor, key=["id"], parts={"execution": {"limit": {"rows": 15}}})
    job.issues.add(35)
    assert [job.run().rows_read for _ in range(4)] == [15, 15, 5, 0]
    assert job.ids() == list(range(1, 36))


def test_sorted_list_that_grows_as_fast_as_it_is_read_has_an_end(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page"}, cursor={**BY_ID, "is_sorted": True}, key=["id"])
    job.issues.add(35)
    job.issues.grows = 10
    assert job.run().rows_read == 35
    assert len(job.api.asked) < 10
    known = len(job.issues.records)
    job.issues.newest_first, job.issues.grows = True, 300 - known  # against its promise, and once: pages behind the end
    assert job.run().rows_read == known - 35


def test_list_that_is_not_sorted_and_grows_as_fast_as_it_is_read_fails(
    new_job: Callable[..., RestJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gobblin_dagster.constructs.sources.rest.extractor._MOST_NEW", 5)
    job = new_job(paging={"type": "page"}, cursor=BY_ID)
    job.issues.add(35)
    job.issues.grows = 10
    (failed,) = job.run().failures
    assert "the last 10 pages hold only records that came after the plan: the list grows as fast" in failed.message
    job.issues.grows = 0
    assert job.run().rows_read == len(job.issues.records)


def test_list_that_is_not_sorted_as_promised_fails_and_publishes_nothing(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page"}, cursor={**BY_ID, "is_sorted": True}, parts={"commit": {"policy": "partial"}})
    job.issues.add(35)
    job.issues.records.reverse()
    failed = job.run()
    assert failed.outcome is DatasetOutcome.FAILED
    assert "rows are not in ascending order of 'id'" in failed.failures[0].message


def test_part_before_a_broken_page_is_published(new_job: Callable[..., RestJob]) -> None:
    job = new_job(paging={"type": "page"}, cursor={**BY_ID, "is_sorted": True}, parts={"commit": {"policy": "partial"}})
    job.issues.add(35)
    job.issues.records[22]["updated_at"] = "x"
    part = job.run()
    assert (part.outcome, str(part.actual_high), len(part.failures)) == (DatasetOutcome.COMMITTED, "20", 1)
    job.issues.records[22]["updated_at"] = None
    assert job.run().failures == ()
    assert job.ids() == list(range(1, 36))
