"""Answers that are made while they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.api.app import Health, RestApp
from gobblin_dagster.service.api.messages import Answer, Request, collection
from gobblin_dagster.service.security.access import Access


class Numbers:
    """A resource of the numbers 1 to 3; its store goes away before the last one if it is asked for broken ones."""

    def find(self, request: Request, name: str) -> Answer:
        def more() -> Iterator[list[Any]]:
            yield []
            yield [{"n": 2, "x": "ü"}]
            if name == "broken":
                raise TransientError(problem="the store is away")
            yield [{"n": 3}]

        first = collection([{"n": 1, "x": ""}], request.path, request.query, 0, None, more=False)
        return Answer(200, first.document, more=more())

    def action(self, request: Request, name: str) -> Answer:
        raise NotImplementedError


def sent(query: str, method: str = "GET") -> list[dict[str, Any]]:
    """Return the messages that the application sends to the server."""
    access = Access("", allows_anonymous=True)
    app = RestApp({"numbers": Numbers()}, access, Health(lambda: True, list, lambda: True), lambda: None)
    scope = {"type": "http", "method": method, "path": "/numbers", "raw_path": b"/numbers"}
    headers = [(b"host", b"localhost"), (b"x-restli-protocol-version", b"2.0.0")]
    messages: list[dict[str, Any]] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    asyncio.run(app({**scope, "query_string": query.encode(), "headers": headers}, receive, send))
    return messages


@pytest.mark.parametrize(
    ("query", "elements"),
    [("q=all", [{"n": 1, "x": ""}, {"n": 2, "x": "ü"}, {"n": 3}]), ("q=all&fields=n", [{"n": 1}, {"n": 2}, {"n": 3}])],
)
def test_parts_of_an_answer_are_one_document(query: str, elements: list[Any]) -> None:
    head, *parts = sent(query)
    assert b"content-length" not in dict(head["headers"]), "nobody knows yet how long it becomes"
    assert [part.get("more_body", False) for part in parts] == [True] * 4 + [False]
    told = json.loads(b"".join(part.get("body", b"") for part in parts))
    assert told == {"elements": elements, "paging": {"count": 10, "start": 0, "links": []}}


def test_answer_whose_store_goes_away_is_cut_short() -> None:
    *_, last = sent("q=broken")
    assert last["more_body"], "the server ends the connection then, and no client takes a part for the whole"


def test_answer_to_head_has_no_body() -> None:
    head, *rest = sent("q=all", "HEAD")
    assert (head["status"], rest) == (200, [{"type": "http.response.body", "body": b""}])
