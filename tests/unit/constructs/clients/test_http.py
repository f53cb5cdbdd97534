from __future__ import annotations

import gzip
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.clients.http import Answer, HttpClient, HttpOptions
from gobblin_dagster.constructs.sources.rest.paging import CursorPaging, LinkPaging, PageNumberPaging, read_pages
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.secrets import remember
from tests.services.json_api import Asked, Reply, running_api


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


WHOLE = json.dumps([{"id": 1, "name": "Zo\u00eb", "is_new": True, "price": -1.5e3}] * 40, ensure_ascii=False).encode()


@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
def test_answer_that_is_cut_is_asked_for_again(packed: bool) -> None:
    head = {"Content-Encoding": "gzip"} if packed else {}
    whole = gzip.compress(WHOLE) if packed else WHOLE
    cuts = [len(whole) * part // 20 for part in range(10, 20)] if packed else range(len(WHOLE) - 60, len(WHOLE))
    with running_api(lambda _: Reply(whole, headers=head)) as api:
        client = HttpClient(HttpOptions(url=api.url), "d", sleep=lambda _: None)
        for cut in cuts:
            api.faults = [Reply(whole[:cut], headers=head)]
            assert len(client.get("/", {}).body) == 40, whole[:cut]
            assert not api.faults
        api.faults = [Reply(whole[: len(whole) // 2], headers=head)] * 6
        with pytest.raises(TransientError, match="its answer ends in the middle of the JSON"):
            client.get("/", {})
        client.close()


def test_empty_answer_is_asked_for_again() -> None:
    with running_api(lambda _: Reply(b"[]")) as api:
        client = HttpClient(HttpOptions(url=api.url), "d", sleep=lambda _: None)
        api.faults = [Reply(b"")] * 5
        assert client.get("/", {}).body == []
        api.faults = [Reply(b" \n")] * 6
        with pytest.raises(TransientError, match="its answer is empty"):
            client.get("/", {})
        client.close()


@pytest.mark.parametrize("body", [b"<html>", b"[1,]", b"[1 2]", b'{"a": nope}', b"nope"])
def test_answer_that_is_whole_and_no_json_is_refused_at_once(body: bytes) -> None:
    with running_api(lambda _: Reply([])) as api:
        api.faults = [Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"})]
        client = HttpClient(HttpOptions(url=api.url), "d")
        with pytest.raises(ExtractError, match="answers no JSON"):
            client.get("/", {})
        client.close()


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


@pytest.mark.parametrize("name", ["authorization", "PRIVATE-TOKEN", "X-Auth-Token", "Cookie"])
def test_secret_header_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} must not be in a job file; name its variable") as caught:
        HttpOptions(url="http://127.0.0.1:9", headers={"Accept": "text/csv", name: "hunter2"})
    assert "hunter2" not in caught.value.errors()[0]["msg"]


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


@pytest.mark.parametrize(
    "link",
    [
        '</list;v=1?page=2>; rel="next"',
        "</list;id=A;b=c?page=2>;rel=next",
        '</list?page=2>; title="a=b, <c>; rel=prev"; rel="next"',
        r'</list?page=2>; title="a \" ; b"; REL = "Next"',
        '</list?page=2>; crossorigin; rel="next"; rel="last"',
        ',</list?page=9>; rel="last"; results="1, 2" , </list?page=2>; rel="next";,',
        "</list?ids=1,2&after=a==&page=2> ; rel=next",
    ],
)
def test_link_to_the_next_page_is_found_however_it_is_written(link: str) -> None:
    found = Answer([], 0, link, "https://api.example.org/list").next_link
    assert found is not None
    assert found.endswith("page=2")


@pytest.mark.parametrize("link", ["", '<?page=1>; rel="prev"', '<?page=1>; title="next"', "<?page=1>"])
def test_header_without_a_link_to_the_next_page_ends_the_list(link: str) -> None:
    assert Answer([], 0, link, "https://api.example.org/list").next_link is None


@pytest.mark.parametrize("link", ['/?page=2; rel="next"', '<?page=2; rel="next"', '<http://[x>; rel="next"'])
def test_link_that_cannot_be_read_is_no_last_page(link: str) -> None:
    with running_api(lambda _: Reply([1], headers={"Link": link})) as api:
        client = HttpClient(HttpOptions(url=api.url), "d")
        pages = read_pages(client, "issues", "/list", {}, LinkPaging(type="link"), "", may_lack=False)
        with pytest.raises(ExtractError, match="header `Link` that cannot be read"):
            list(pages)
        client.close()


@pytest.mark.parametrize("type_", ["page", "cursor"])
def test_answer_without_content_is_an_empty_page(type_: str) -> None:
    replies = [Reply({"data": {"items": [1]}, "next": 2}), Reply(b"", 204)]
    paging = PageNumberPaging(type="page") if type_ == "page" else CursorPaging(type="cursor", next="next")
    with running_api(lambda _: replies.pop(0)) as api:
        client = HttpClient(HttpOptions(url=api.url), "d")
        pages = read_pages(client, "issues", "/list", {}, paging, "data.items", may_lack=False)
        assert [records for records, _ in pages] == [[1]]
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


@contextmanager
def raw_server(head: bytes, again: bytes, pause_s: float = 0.0) -> Iterator[tuple[str, list[int]]]:
    """Answer each request by `head`, and then by `again` without end; yields the URL and a list with one item each."""
    asked: list[int] = []

    class Endless(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(1)
            with suppress(OSError):
                self.wfile.write(head)
                while not is_over.wait(pause_s):
                    self.wfile.write(again)

    is_over = threading.Event()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        is_over.set()
        server.shutdown()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("head", [OK, OK + b"\r\n[", OK + b"Transfer-Encoding: chunked\r\n\r\n"])
def test_answer_that_comes_byte_by_byte_without_end_is_given_up(head: bytes) -> None:
    with raw_server(head, b"1", pause_s=0.05) as (url, asked):
        client = HttpClient(HttpOptions(url=url, answer_timeout_s=0.5), "d", sleep=lambda _: None)
        with pytest.raises(TransientError, match=r"not whole after 0\.5 s \(`answer_timeout_s`\)"):
            client.get("/", {})
        client.close()
    assert len(asked) == 1  # the time is over; others wait


@pytest.mark.parametrize("status", [b"200 OK", b"503 Busy"])
def test_answer_that_is_longer_than_it_may_be_is_refused_before_it_is_whole(status: bytes) -> None:
    with raw_server(b"HTTP/1.1 " + status + b"\r\n\r\n[", b"1," * 5_000) as (url, _):
        client = HttpClient(HttpOptions(url=url, max_answer_mib=1), "d")
        with pytest.raises(ExtractError, match=r"answers more than 1 MiB \(`max_answer_mib`\)"):
            client.get("/", {})
        client.close()


def test_length_of_an_answer_is_that_of_its_text_unpacked() -> None:
    def reply(spaces: int) -> Reply:
        return Reply(gzip.compress(b"[]" + b" " * spaces), headers={"Content-Encoding": "gzip"})

    with running_api(lambda asked: reply((2 << 20) if "long" in asked.path else (1 << 20) - 2)) as api:
        client = HttpClient(HttpOptions(url=api.url, max_answer_mib=1), "d")
        assert client.get("/short", {}).body == []
        with pytest.raises(ExtractError, match="more than 1 MiB"):
            client.get("/long", {})
        client.close()


@pytest.mark.parametrize("option", ["timeout_s", "answer_timeout_s"])
def test_time_that_no_clock_counts_is_refused(option: str) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 86400"):
        HttpOptions.model_validate({"url": "http://127.0.0.1", option: 1e10})


def test_answer_without_content_is_one_without_anything() -> None:
    with running_api(lambda _: Reply(b"", 204)) as api:
        client = HttpClient(HttpOptions(url=api.url), "d")
        assert client.get("/", {}).body is None
        client.close()


def test_post_sends_body_and_parameters_as_json() -> None:
    with running_api(lambda _: Reply([])) as api:
        options = HttpOptions(url=api.url, method="POST", body={"filter": {"open": True}}, params={"v": "2"})
        client = HttpClient(options, "issues")
        client.get("/search", {"page": 3})
        client.close()

    assert json.loads(api.asked[0].body) == {"filter": {"open": True}, "page": 3}
    assert api.asked[0].params == {"v": "2"}


OAUTH = {"client_id_env": "THE_ID", "client_secret_env": "THE_SECRET", "scope": "read"}


def test_token_of_client_credentials_is_sent_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_ID", "me")
    monkeypatch.setenv("THE_SECRET", "s3cret")
    tokens = iter(["first", "second"])

    def reply(request: Asked) -> Reply:
        if request.path == "/token":
            return Reply({"access_token": next(tokens)})
        is_over = request.headers["Authorization"] == "Bearer first" and len(api.asked) > 2
        return Reply(status=401) if is_over else Reply([1])

    with running_api(reply) as api:
        options = HttpOptions.model_validate({"url": api.url, "oauth": {"token_url": f"{api.url}/token", **OAUTH}})
        client = HttpClient(options, "issues")
        assert [client.get("/list", {}).body for _ in range(2)] == [[1], [1]]
        client.close()

    assert [one.path for one in api.asked] == ["/token", "/list", "/list", "/token", "/list"]
    asked = dict(parse_qsl(api.asked[0].body.decode()))
    assert asked == {"grant_type": "client_credentials", "client_id": "me", "client_secret": "s3cret", "scope": "read"}
    assert api.asked[-1].headers["Authorization"] == "Bearer second"


def test_refused_token_fails_for_good_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_ID", "me")
    monkeypatch.setenv("THE_SECRET", "s3cret")
    with running_api(lambda _: Reply({"error": "s3cret is wrong"}, 400)) as api:
        options = HttpOptions.model_validate({"url": api.url, "oauth": {"token_url": f"{api.url}/token", **OAUTH}})
        with pytest.raises(ExtractError, match=r"gives no token \(it answers 400\); check `oauth`") as caught:
            HttpClient(options, "issues").get("/list", {})
    assert "s3cret" not in str(caught.value)


def test_server_of_tokens_that_is_busy_is_named_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_ID", "me")
    monkeypatch.setenv("THE_SECRET", "s3cret")
    with running_api(lambda _: Reply("", 503)) as api:
        options = HttpOptions.model_validate({"url": api.url, "oauth": {"token_url": f"{api.url}/token", **OAUTH}})
        with pytest.raises(TransientError, match=r"/list: no token from 127\.0\.0\.1:\d+, which answers 503\."):
            HttpClient(options, "issues", sleep=lambda _: None).get("/list", {})


def test_secrets_in_headers_do_not_go_to_a_server_of_tokens_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    remember({"s3cret-word": "${WORD}"})  # as a job file with `headers: {X-Word: my ${WORD}}`
    for name in ("THE_ID", "THE_SECRET", "THE_KEY"):
        monkeypatch.setenv(name, name.lower())
    with running_api(lambda _: Reply({"access_token": "t"})) as tokens, running_api(lambda _: Reply([])) as api:
        oauth = {"token_url": f"{tokens.url}/token", **OAUTH}
        headers = {"headers_env": {"X-Key": "THE_KEY"}, "headers": {"X-Word": "my s3cret-word", "X-Plain": "plain"}}
        client = HttpClient(HttpOptions.model_validate({"url": api.url, **headers, "oauth": oauth}), "issues")
        client.get("/list", {})
        client.close()
    assert {"X-Key", "X-Word"}.isdisjoint(tokens.asked[0].headers)
    assert tokens.asked[0].headers["X-Plain"] == "plain"
    assert (api.asked[0].headers["X-Key"], api.asked[0].headers["X-Word"]) == ("the_key", "my s3cret-word")


def test_parameters_in_the_body_of_a_post_go_with_the_links_of_its_pages() -> None:
    def reply(request: Asked) -> Reply:
        return Reply([2]) if "page" in request.params else Reply([1], headers={"Link": '</list?page=2>; rel="next"'})

    with running_api(reply) as api:
        client = HttpClient(HttpOptions(url=api.url, method="POST", body={"open": True}), "issues")
        pages = read_pages(client, "issues", "/list", {"since": "7"}, LinkPaging(type="link"), "", may_lack=False)
        assert [records for records, _ in pages] == [[1], [2]]
        client.close()
    assert [json.loads(one.body) for one in api.asked] == [{"open": True, "since": "7"}] * 2


@pytest.mark.parametrize(
    ("link", "whole"),
    [
        ("http://api.example.org/v2/users?page=2", "https://api.example.org/v2/users?page=2"),
        ("http://api.example.org:80/v2", "https://api.example.org/v2"),
        ("users?page=2", "https://api.example.org/v2/users?page=2"),
        ("?page=2", "https://api.example.org/v2/issues?page=2"),
        ("http://other.example.org/v2", "http://other.example.org/v2"),
        ("http://api.example.org:8080/v2", "http://api.example.org:8080/v2"),
    ],
)
def test_link_of_a_server_behind_a_proxy_keeps_https(link: str, whole: str) -> None:
    assert Answer(None, 0, "", "https://api.example.org/v2/issues").absolute(link) == whole
