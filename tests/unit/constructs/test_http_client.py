from __future__ import annotations

from collections.abc import Callable

import pytest

from gobblin_dagster.constructs.http_client import HttpClient, HttpOptions
from gobblin_dagster.core.errors import TransientError
from tests.services.json_api import Reply, running_api


def sleeps(faults: list[Reply], requests: int = 1, **options: float) -> list[float]:
    """Return the pauses of a client whose server first answers with faults."""
    pauses: list[float] = []
    note: Callable[[float], None] = pauses.append
    with running_api(lambda _: Reply([])) as api:
        api.faults = faults
        client = HttpClient(HttpOptions.model_validate({"url": api.url, **options}), "d", sleep=note)
        for _ in range(requests):
            client.get("/", {})
        client.close()
    return pauses


def test_pauses_grow_where_the_server_asks_for_none() -> None:
    assert sleeps([Reply("", 503)] * 4) == [0.5, 1.0, 2.0, 4.0]


def test_server_may_ask_for_a_pause() -> None:
    assert sleeps([Reply("", 429, {"Retry-After": "7"}), Reply("", 429, {"Retry-After": "soon"})]) == [7.0, 1.0]


def test_rate_limit_spaces_requests() -> None:
    pauses = sleeps([], requests=5, requests_per_s=10)
    assert len(pauses) == 4
    assert all(0 < pause <= 0.4 for pause in pauses)


def test_server_that_is_away_is_transient() -> None:
    client = HttpClient(HttpOptions(url="http://127.0.0.1:9", retries=1), "d", sleep=lambda _: None)
    with pytest.raises(TransientError) as caught:
        client.get("/list", {"token": "secret-word"})
    assert str(caught.value).startswith(
        "Dataset 'd', /list: no answer from 127.0.0.1:9 (ConnectionError: Connection refused)."
    )
    assert "secret-word" not in str(caught.value)
