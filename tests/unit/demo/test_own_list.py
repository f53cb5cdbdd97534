"""`gobblin init --source rest` against a real HTTP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.demo.own_list import job_of_list
from tests.services.json_api import Reply, running_api
from tests.unit.cli.conftest import Cli, cli
from tests.unit.demo.test_own_data import jobs, planned

CURSOR = {"type": "cursor", "param": "cursor", "next": "meta.next_cursor"}
__all__ = ["cli"]
ROWS = [
    {"id": 1, "at": "2026-01-01T00:00:00Z", "n": 1.5, "ok": True, "who": {"a": 1}, "tags": ["x"]},
    {"id": 2, "zip": "007", "tags": [], "mixed": 1},
    {"id": 3, "n": 2, "mixed": "a"},
]


def test_list_of_an_api_is_typed_by_its_first_answer(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "Bearer hunter2")
    monkeypatch.setenv("API_KEY", "k-12345")
    with running_api(lambda asked: Reply({"data": {"items": ROWS}, "next": "/v1/things?page=2"})) as api:
        asked = f"{api.url}/v1/things?sort=id&key=${{API_KEY}}"
        given = ("--source", "rest", "--from", asked, "--header", "Authorization=API_TOKEN")
        assert cli("init", tmp_path / "p", *given).code == 0
        assert set(planned(cli, tmp_path / "p")) == {"things"}
        assert api.asked[0].params == {"sort": "id", "key": "k-12345"}
        assert api.asked[0].headers["Authorization"] == "Bearer hunter2"
        (job,) = jobs(tmp_path / "p").values()
        assert job["source"] == {
            "type": "rest",
            "url": f"{api.url}/v1",
            "datasets": {"things": "/things"},
            "params": {"sort": "id", "key": "${API_KEY}"},
            "headers_env": {"Authorization": "API_TOKEN"},
            "records": "data.items",
            "paging": {"type": "next_url", "next": "next"},
            "columns": {
                "id": "int64",
                "at": "timestamp",
                "n": "float64",
                "ok": "bool",
                "who": "json",
                "tags": ["string"],
                "zip": "string",
                "mixed": "json",
            },
        }


@pytest.mark.parametrize(
    ("body", "headers", "paging"),
    [
        (ROWS, {"Link": '</x?page=2>; rel="next"'}, {"type": "link"}),
        ({"items": ROWS, "links": {"next": "?page=2"}}, {}, {"type": "next_url", "next": "links.next"}),
        ({"value": ROWS, "@odata.nextLink": "https://x/y"}, {}, {"type": "next_url", "next": "@odata.nextLink"}),
        (
            {"items": ROWS, "nextPageToken": "abc"},
            {},
            {"type": "cursor", "param": "pageToken", "next": "nextPageToken"},
        ),
        ({"items": ROWS, "next": None}, {}, None),
        (ROWS, {}, None),
    ],
)
def test_paging_is_told_by_the_first_answer(body: Any, headers: dict[str, str], paging: Any) -> None:
    with running_api(lambda _: Reply(body, headers=headers)) as api:
        assert job_of_list(f"{api.url}/things/", "p", {}).body["source"].get("paging") == paging


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply("no", 401), "answers 401.*--header Authorization=API_TOKEN"),
        (Reply(b"<html>"), "answers no JSON"),
        (Reply({"items": []}), "holds no list of objects"),
        (Reply("", 302, {"Location": "/elsewhere"}), "a redirect"),
    ],
)
def test_answer_without_a_list_is_told(reply: Reply, said: str) -> None:
    with running_api(lambda _: reply) as api, pytest.raises(UsageError, match=said):
        job_of_list(f"{api.url}/things", "p", {})


def test_url_without_a_path_is_read() -> None:
    with running_api(lambda _: Reply(ROWS)) as api:
        source = job_of_list(api.url, "p", {}).body["source"]
    assert (source["url"], source["datasets"]) == (api.url, {"data_127_0_0_1": "/"})


def test_last_slash_of_a_path_is_kept() -> None:
    answers = {"/api/things/": Reply(ROWS)}
    with running_api(lambda asked: answers.get(asked.path, Reply("", 301))) as api:
        source = job_of_list(f"{api.url}/api/things/", "p", {}).body["source"]
    assert (source["url"], source["datasets"]) == (f"{api.url}/api", {"things": "/things/"})


def test_record_that_is_no_object_hinders_no_look() -> None:
    with running_api(lambda _: Reply([*ROWS, None])) as api:
        columns = job_of_list(f"{api.url}/things", "p", {}).body["source"]["columns"]
    assert columns["id"] == "int64"
