from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.constructs.clients.http import HttpClient, HttpOptions
from gobblin_dagster.core.errors import ExtractError, TransientError
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


@pytest.mark.parametrize("now", ["0", "-5", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_server_that_asks_for_no_pause_is_not_asked_at_once_again_and_again(now: str) -> None:
    assert sleeps([Reply("", 429, {"Retry-After": now})] * 3) == [0.5, 1.0, 2.0]


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


def test_answer_that_is_nested_too_deep_is_refused() -> None:
    with running_api(lambda _: Reply([])) as api:
        api.faults = [Reply(b"[" * 100_000 + b"]" * 100_000)]
        client = HttpClient(HttpOptions(url=api.url), "d")
        with pytest.raises(ExtractError, match="nested too deep"):
            client.get("/", {})
        client.close()


def test_header_of_the_environment_is_sent_whatever_netrc_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login anna password other-word")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("API_TOKEN", "Bearer our-word")
    with running_api(lambda _: Reply([])) as api:
        for headers_env in ({"Authorization": "API_TOKEN"}, {}):
            client = HttpClient(HttpOptions(url=api.url, headers_env=headers_env), "d")
            client.get("/", {})
            client.close()
    assert [request.headers.get("Authorization") for request in api.asked] == ["Bearer our-word", None]


@pytest.mark.parametrize("secret", ["hunter2\n", " hunter2", "hunter2…"], ids=["line break", "blank", "letter"])
def test_header_that_cannot_be_sent_fails_for_good_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("API_TOKEN", secret)
    client = HttpClient(HttpOptions(url="http://127.0.0.1:9", headers_env={"Authorization": "API_TOKEN"}), "d")
    with pytest.raises(ExtractError, match="check `headers_env`") as caught:
        client.get("/", {})
    assert "hunter2" not in str(caught.value)


def test_link_that_is_next_and_last_is_followed() -> None:
    with running_api(
        lambda _: Reply([1], headers={"Link": '</?page=2>; rel="Next last", </?page=1>; rel=prev'})
    ) as api:
        client = HttpClient(HttpOptions(url=api.url), "d")
        assert client.get("/", {}).next_link == f"{api.url}/?page=2"
        client.close()


def test_links_of_the_same_server_are_known_with_and_without_its_port() -> None:
    client = HttpClient(HttpOptions(url="http://127.0.0.1"), "d")
    with pytest.raises(ExtractError, match=r"leads to another host, https://127\.0\.0\.1:443"):
        client.get("https://127.0.0.1/list", {})
    with pytest.raises(ExtractError, match="leads to another host, http://evil:80"):
        client.get("http://evil\\@127.0.0.1/list", {})
    options = HttpOptions(url="https://127.0.0.1:443", retries=0, timeout_s=0.1)
    with pytest.raises(TransientError):  # a request is sent, although no server answers
        HttpClient(options, "d").get("https://127.0.0.1/list", {})


def test_answer_without_content_is_one_without_anything() -> None:
    with running_api(lambda _: Reply(b"", 204)) as api:
        client = HttpClient(HttpOptions(url=api.url), "d")
        assert client.get("/", {}).body is None
        client.close()
