"""A scheme keeps one client for each server and process, and opens another one if it was lost."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gobblin_dagster.storage.scheme import Scheme
from gobblin_dagster.testing.faults import run_in_child


class Line:
    """A connection that may be lost."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.is_lost = False


class LineScheme(Scheme):
    def connect(self, authority: str) -> Line:
        if authority == "away":
            raise ConnectionError(authority)
        return Line()

    def is_lost(self, client: Any) -> bool:
        return bool(client.is_lost)


def test_client_is_kept_by_server_until_it_is_lost() -> None:
    scheme = LineScheme("line")
    first = scheme.client("a")
    assert scheme.client("a") is first
    assert scheme.client("b") is not first
    first.is_lost = True
    assert scheme.client("a") is not first


def test_client_that_could_not_connect_is_asked_for_again() -> None:
    scheme = LineScheme("line")
    for _ in range(2):
        with pytest.raises(ConnectionError, match="away"):
            scheme.client("away")


def test_forked_process_has_a_client_of_its_own() -> None:
    scheme = LineScheme("line")
    ours = scheme.client("a")

    def look() -> None:
        assert scheme.client("a").process == os.getpid() != ours.process

    assert run_in_child(look) == 0
