"""Requests of all kinds: no answer is a 5xx or without a reason, and none takes more steps than its length allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobblin_dagster.service.api.body import MAX_BODY
from gobblin_dagster.service.api.messages import MOST_LEVELS
from gobblin_dagster.service.model import FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.spec.project import ServiceSpec
from tests.services.asgi import AsgiAnswer, Steps, answer
from tests.services.postgres import PostgresServer

TEMPLATE = """
template: t
parameters:
  a: {type: text, default: x}
job:
  source: {type: "gobblin_dagster.testing.rows_source:RowsSource", datasets: {}}
  extract: {namespace: test, table: "${a}"}
  output: {path: lake}
"""
NEVER = "0 0 0 ? 1 1 2050"


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoreServices]:
    """A service with a few flows and executions; its loops do not run."""
    root = tmp_path_factory.mktemp("fuzz")
    (root / "templates").mkdir()
    (root / "templates" / "t.template").write_text(TEMPLATE)
    store = "sqlite:///service.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = server.url(server.new_database())
    made = CoreServices(root, ServiceSpec(port=0, store=store, anonymous=True), ["false"])
    for name in ("n", "m"):
        config = FlowConfig(FlowId("g", name), "FS:///t.template", {"a": "b"}, Schedule(NEVER, True))
        with made.store.write() as transaction:
            made.manager.create(transaction, config, "tester")
    yield made
    made.store.close()


def check(told: AsgiAnswer, method: str = "") -> AsgiAnswer:
    assert told.status < 500, told
    has_body = method != "HEAD" and (told.status != 409 or told.body)  # a 409 of the first resource has none
    if told.status >= 400 and has_body:
        document = json.loads(told.body)
        assert document["status"] == told.status
        assert document["message"]
        assert len(told.body) < 20_000, "a reason is short, whatever was sent"
    return told


_FLOWS = ["flowconfigs", "flowconfigsV2", "flowexecutions", "flowstatuses", "flowdatasets", "flowtemplates"]
_RESOURCES = [*_FLOWS, "topology"]
_ROUTES = [*_RESOURCES, "health", "", "flowX"]
_ODD = ["(", ")", ",", ":", "'", "''", "%", "%00", "%ff", "%ED%A0%80", "%2", "List(", "=", "&", "/", "\xff", "$params"]
_PIECES = [*_ODD, "flowGroup", "flowName", "flowExecutionId", ":g", ":n", "1", "-1", "9" * 20, "%F0%9F%98%80", "+", "~"]
_keys = st.one_of(
    st.just("(flowGroup:g,flowName:n)"),
    st.just("flowGroup=g&flowName=n"),
    st.builds(lambda number: f"(flowExecutionId:{number},flowGroup:g,flowName:n)", st.integers()),
    st.builds(lambda text: f"(flowGroup:g,flowName:{quote(text, safe='')})", st.text(max_size=8)),
    st.lists(st.sampled_from(_PIECES), max_size=10).map("".join),
)
_names = st.sampled_from(
    [
        "q",
        "start",
        "count",
        "fields",
        "flowId",
        "flowGroup",
        "flowName",
        "flowId.flowGroup",
        "flowId.flowName",
        "templateUri",
        "schedule",
        "isRunImmediately",
        "propertyFilter",
        "userToProxy",
        "owningGroup",
        "search",
        "tag",
        "executionStatus",
        "includeIssues",
        "countPerFlow",
        "flowExecutionId",
        "after",
        "action",
        "ids",
        "x",
    ]
)
_values = st.one_of(
    st.sampled_from(
        [
            "filterFlows",
            "history",
            "latestFlowExecution",
            "latestFlowGroupExecutions",
            "latestFlowStatus",
            "events",
            "runImmediately",
            "pause",
            "unpause",
            "rollback",
            "resume",
            "(flowGroup:g,flowName:n)",
            "g",
            "n",
            "1",
            "List(1)",
            "true",
            "a=b",
            "a=%25,b",
            "id:(flowName)",
            "id:(",
            "COMPLETE",
        ]
    ),
    st.integers().map(str),
    st.text(max_size=8).map(lambda text: quote(text, safe="")),
    st.lists(st.sampled_from(_ODD), max_size=5).map("".join),
)
_queries = st.lists(st.tuples(_names, _values).map("=".join), max_size=4).map("&".join)
_headers = st.lists(
    st.sampled_from(
        [
            (b"x-restli-protocol-version", b"1.0.0"),
            (b"x-restli-protocol-version", b"2.0.0"),
            (b"x-restli-protocol-version", b"\xff"),
            (b"x-restli-method", b"create"),
            (b"x-restli-method", b"partial_update"),
            (b"x-restli-method", b"action"),
            (b"x-restli-method", b"\xe9"),
            (b"if-match", b'"1"'),
            (b"if-match", b'"\xb2"'),
            (b"if-match", b"9" * 30),
            (b"idempotency-key", b"k"),
            (b"idempotency-key", b"\xff" * 50),
            (b"idempotency-key", b""),
            (b"x-gobblin-managed-by", b"\xff"),
            (b"x-http-method-override", b"GET"),
            (b"content-type", b"application/x-www-form-urlencoded"),
            (b"content-type", b"\xff/;charset=utf-16"),
            (b"content-length", b"-1"),
            (b"content-length", b"\xb2"),
            (b"accept", b"text/html"),
            (b"authorization", b"Bearer \xff"),
            (b"authorization", b""),
        ]
    ),
    max_size=4,
)
_texts = st.one_of(
    st.text(max_size=6), st.sampled_from(["g", "n", "", "\0", "\ud800", "FS:///t.template", NEVER, "x" * 200, "FS://["])
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$set", "$delete", "a", "flow.timeZone", "job.maxAttempts"]), inner)
    ),
    max_leaves=6,
)
_flow = st.fixed_dictionaries(
    {},
    optional={
        "id": st.fixed_dictionaries({}, optional={"flowGroup": _texts, "flowName": _texts}) | _json,
        "templateUris": st.just("FS:///t.template") | _texts | _json,
        "properties": st.dictionaries(
            st.sampled_from(["a", "flow.timeZone", "flow.catchUp", "job.maxAttempts", "flow.unschedule", "\0", "x"]),
            st.sampled_from(["a", "true", "Europe/Berlin", "5", "\0", "\ud83d", "."]) | _json,
            max_size=3,
        )
        | _json,
        "schedule": st.fixed_dictionaries(
            {},
            optional={
                "cronSchedule": st.lists(
                    st.sampled_from(["0", "*", "?", "L", "1#5", "31", "2", "1/0", "9" * 5000, "٣"]), max_size=8
                ).map(" ".join)
                | _json,
                "runImmediately": _json,
            },
        )
        | _json,
        "explain": _json,
        "owningGroup": _json,
        "flowName": _texts,
        "flowGroup": _texts,
        "templateName": _texts,
        "patch": _json,
        "version": _json,
        "x": _json,
    },
)
_bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=20),
    _json.map(lambda value: json.dumps(value).encode()),
    _flow.map(lambda value: json.dumps(value).encode()),
    _flow.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")),
    _flow.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    _queries.map(lambda text: text.encode("latin-1", "replace")),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "QUERY"]),
    route=st.sampled_from(_ROUTES),
    key=st.none() | _keys,
    query=st.none() | _queries,
    headers=_headers,
    body=_bodies,
)
def test_no_request_is_answered_with_5xx(
    core: CoreServices,
    method: str,
    route: str,
    key: str | None,
    query: str | None,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    target = f"/{route}" + ("" if key is None else f"/{key}") + ("" if query is None else f"?{query}")
    # A server hands on what stands on the wire; bytes outside of ASCII reach it as they are.
    check(answer(core.app, method, target.encode("latin-1", "replace"), headers, [body[:7], body[7:]]), method)


KEY = "/flowconfigsV2/(flowGroup:g,flowName:n)"


def _get(target: str) -> Callable[[CoreServices], AsgiAnswer]:
    return lambda core: answer(core.app, "GET", target.encode())


def _tunnelled(query: str) -> Callable[[CoreServices], AsgiAnswer]:
    """A query can be as long as a body."""
    headers = [(b"x-http-method-override", b"GET"), (b"content-type", b"application/x-www-form-urlencoded")]
    return lambda core: answer(core.app, "POST", b"/flowconfigsV2", headers, [query.encode()])


def _posted(text: str, target: str = "/flowconfigsV2") -> Callable[[CoreServices], AsgiAnswer]:
    return lambda core: answer(core.app, "POST", target.encode(), (), [text.encode()])


def _flow_text(**changes: Any) -> str:
    whole = {"id": {"flowGroup": "g", "flowName": "new"}, "templateUris": "FS:///t.template", "properties": {}}
    return json.dumps({**whole, "explain": True, **changes})


def _cron(text: str) -> Callable[[CoreServices], AsgiAnswer]:
    return _posted(_flow_text(schedule={"cronSchedule": text}))


LONG: dict[str, Callable[[int], Callable[[CoreServices], AsgiAnswer]]] = {
    "key of lists": lambda n: _get("/flowconfigsV2/" + "List(" * n),
    "key of records": lambda n: _get("/flowconfigsV2/" + "(a:" * n),
    "key of many fields": lambda n: _get("/flowconfigsV2/(" + ",".join(f"a{i}:b" for i in range(n)) + ")"),
    "key of percents": lambda n: _get("/flowconfigsV2/(flowGroup:" + "%C3" * n + ",flowName:n)"),
    "key of protocol 1": lambda n: _get("/flowconfigsV2/" + "a=b&" * n),
    "path of slashes": lambda n: _get("/flowconfigsV2" + "/a" * n),
    "query of parameters": lambda n: _tunnelled("&".join(f"a{i}=b" for i in range(n))),
    "query of separators": lambda n: _tunnelled("&" * n + "=" * n),
    "query of nested lists": lambda n: _tunnelled("q=filterFlows&flowName=" + "List(" * n),
    "projection that is deep": lambda n: _tunnelled("fields=" + "a:(" * n),
    "projection that is wide": lambda n: _tunnelled("fields=" + "a," * n + "b"),
    "filter of properties": lambda n: _tunnelled("q=filterFlows&propertyFilter=" + "a=b," * n),
    "search of a long text": lambda n: _tunnelled("q=filterFlows&search=" + "%25_" * 20 * n),
    "filter of a long text": lambda n: _tunnelled("q=filterFlows&propertyFilter=a=" + "x" * 20 * n),
    "body of brackets": lambda n: _posted("[" * n),
    "body of records": lambda n: _posted('{"a":' * n),
    "body of digits": lambda n: _posted('{"id":' + "9" * n + "}"),
    "many properties": lambda n: _posted(_flow_text(properties={f"p{i}": "v" for i in range(n)})),
    "many wrong properties": lambda n: _posted(_flow_text(properties={f"p{i}": i for i in range(n)})),
    "many templates": lambda n: _posted(_flow_text(templateUris=",".join(["FS:///t.template"] * n))),
    "many missing templates": lambda n: _posted(_flow_text(templateUris=",".join(f"FS:///no{i}" for i in range(n)))),
    "long name": lambda n: _posted(_flow_text(id={"flowGroup": "g" * n, "flowName": "n"})),
    "cron of many numbers": lambda n: _cron("0 0 0 ? * " + ",".join(["1"] * n)),
    "cron of many steps": lambda n: _cron(",".join(["*/7"] * n) + " 0 0 ? * *"),
    "cron of one number": lambda n: _cron("0 0 0 ? * " + "1" * 3 * n),
    "cron of many fields": lambda n: _cron("0 " * n),
    "patch that is deep": lambda n: _posted('{"patch":' + '{"a":' * n + "{}" + "}" * (n + 1), KEY),
    "patch of many deletions": lambda n: _posted('{"patch":{"$delete":[' + '"a",' * n + '"b"]}}', KEY),
}


@pytest.mark.parametrize("name", LONG)
def test_work_grows_no_faster_than_the_request(core: CoreServices, name: str) -> None:
    """A request of twice the length takes at most about twice the steps, and it is refused, or answered, briefly."""
    check(LONG[name](10)(core))  # what is loaded once is loaded
    counts = []
    for length in (2_000, 4_000):
        with Steps() as steps:
            check(LONG[name](length)(core))
        counts.append(steps.count)
    assert counts[1] <= 2.5 * counts[0] + 2_000, counts
    assert counts[1] <= 400_000, counts


@pytest.mark.parametrize(
    "changes",
    [
        {"explain": "\ud800"},
        {"owningGroup": "\ud800", "explain": False},
        {"owningGroup": "a\0", "explain": False},
        {"more": "\ud800\0", "explain": False},
        {"more\ud800\0": 1, "explain": False},
        {"properties": {"a\ud800": "1"}, "explain": False},
        {"properties": {"flow.x": "\0"}, "explain": False},
        {"id": {"flowGroup": "g", "flowName": "\ud800"}, "explain": False},
        {"id": {"flowGroup": "g", "flowName": "new", "more\0": "\ud800"}, "explain": False},
        {"schedule": {"cronSchedule": NEVER, "more\0": "\ud800"}, "explain": False},
    ],
)
def test_halves_of_characters_and_nul_are_stored_or_refused(core: CoreServices, changes: dict[str, Any]) -> None:
    told = check(_posted(_flow_text(**changes))(core))
    assert told.status in (201, 422)
    if told.status == 201:
        key = b"/flowconfigsV2/(flowGroup:g,flowName:new)"
        assert check(answer(core.app, "GET", key)).status == 200
        assert check(answer(core.app, "DELETE", key)).status == 200


@pytest.mark.parametrize(
    "target",
    [
        "/flowconfigsV2/(flowGroup:%00,flowName:n)",
        "/flowconfigsV2?q=filterFlows&search=%00",
        "/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:g,flowName:%00)",
        "/flowconfigsV2?flow%00=1",
    ],
)
def test_nul_in_a_target_is_refused(core: CoreServices, target: str) -> None:
    told = check(answer(core.app, "GET", target.encode(), [(b"x-restli-protocol-version", b"2.0.0")]))
    assert (told.status, b"holds a NUL" in told.body) == (400, True)


def test_limits_of_bodies(core: CoreServices) -> None:
    whole = _flow_text(properties={"a": "x" * (MAX_BODY - 200)}).encode()
    assert check(answer(core.app, "POST", b"/flowconfigsV2", (), [whole])).status in (200, 400)
    over = [b" " * MAX_BODY, b" "]
    assert check(answer(core.app, "POST", b"/flowconfigsV2", (), over)).status == 413
    told = answer(core.app, "POST", b"/flowconfigsV2", [(b"content-length", str(MAX_BODY + 1).encode())], [b""])
    assert check(told).status == 413
    deep = "/flowconfigsV2/" + "List(" * 10_000
    told = check(answer(core.app, "GET", deep.encode(), [(b"x-restli-protocol-version", b"2.0.0")]))
    assert (told.status, b"levels of lists" in told.body) == (400, True)


@pytest.mark.parametrize(("levels", "status"), [(MOST_LEVELS, 201), (MOST_LEVELS + 1, 400), (220, 400), (300, 400)])
def test_body_that_is_taken_is_read_again(core: CoreServices, levels: int, status: int) -> None:
    value: Any = {}
    for _ in range(levels - 2):
        value = [value]
    posted = _posted(_flow_text(explain=False, more=value))(core)
    assert (check(posted).status, b"nested too deeply" in posted.body) == (status, status == 400)
    if status == 201:
        shown = check(answer(core.app, "GET", b"/flowconfigsV2/(flowGroup:g,flowName:new)"))
        assert (shown.status, json.loads(shown.body)["more"]) == (200, value)


def test_slow_body_is_given_up_and_holds_up_nobody(core: CoreServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_dagster.service.api.body.BODY_WAIT_S", 0.2)
    scope = {"type": "http", "method": "POST", "raw_path": b"/flowconfigsV2", "query_string": b"", "headers": []}

    async def trickle(sent: list[Any]) -> None:
        async def receive() -> Any:
            await asyncio.sleep(0.01)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        await core.app(scope, receive, send)

    async def many() -> list[list[Any]]:
        answers: list[list[Any]] = [[] for _ in range(200)]
        slow = [asyncio.create_task(trickle(sent)) for sent in answers]
        await asyncio.sleep(0)
        # More slow clients than the service has threads: the next request is answered all the same.
        assert (await asyncio.to_thread(answer, core.app, "GET", b"/flowtemplates")).status == 200
        await asyncio.gather(*slow)
        return answers

    for start, end in asyncio.run(many()):
        assert start["status"] == 400
        assert "did not come whole" in json.loads(end["body"])["message"]
