"""Remembered answers: given to who got them, bounded in size, and with their age."""

from __future__ import annotations

from typing import Any

from gobblin_dagster.service.api.messages import Answer, Request
from gobblin_dagster.service.api.remembered import RememberedAnswers
from gobblin_dagster.service.security.access import Principal


def request(path: str, name: str = "owner", **headers: str) -> Request:
    return Request("GET", path, "q=1", headers, b"", Principal(name))


def test_newest_answer_is_given_again_with_its_age() -> None:
    times = iter([10.0, 20.0, 65.5])
    remembered = RememberedAnswers(lambda: next(times))
    assert remembered.find(request("/a")) is None
    remembered.remember(request("/a"), Answer(200, {"v": 1}, {"ETag": '"1"'}))
    remembered.remember(request("/a"), Answer(200, {"v": 2}, {"ETag": '"2"'}))
    found = remembered.find(request("/a"))
    assert found is not None
    assert (found.document, found.headers["ETag"], found.headers["Age"]) == ({"v": 2}, '"2"', "45")


def test_answers_are_kept_apart_and_failures_are_forgotten() -> None:
    remembered = RememberedAnswers(lambda: 0)
    remembered.remember(request("/a"), Answer(200, {}))
    version = {"x-restli-protocol-version": "2.0.0"}
    others: list[Any] = [request("/b"), request("/a", "somebody"), request("/a", **version)]
    assert [remembered.find(other) for other in others] == [None, None, None]
    remembered.remember(request("/a"), Answer(201, {}))
    assert remembered.find(request("/a")) is None


def test_oldest_answers_make_room() -> None:
    remembered = RememberedAnswers(lambda: 0, max_bytes=100)
    for path in ("/a", "/b", "/c"):
        remembered.remember(request(path), Answer(200, "x" * 38))  # 40 bytes of JSON
    assert [remembered.find(request(path)) is not None for path in ("/a", "/b", "/c")] == [False, True, True]
    remembered.remember(request("/b"), Answer(200, "x" * 200))
    assert remembered.find(request("/b")) is None, "too long to be kept; the old one would be wrong"
