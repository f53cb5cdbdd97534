"""Connections to Kafka: messages if a broker is unreachable, refused settings, ids as text."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, Uuid
from pydantic import ValidationError

from gobblin_dagster.constructs.clients.kafka import (
    QUIET_S,
    KafkaConnection,
    OnceAMinute,
    _id_text,
    is_absent,
    is_of_group,
    kafka_error,
    new_client,
    telling,
    topic_ids,
    translated_kafka_errors,
)
from gobblin_dagster.constructs.publishers.kafka_topic import KafkaTopicOptions, SendToKafkaStep
from gobblin_dagster.constructs.publishers.tables import TableCommit
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.kafka.marks import find_cuts
from gobblin_dagster.constructs.sources.kafka.source import KafkaOptions
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.constructs import ConstructContext, Source, SourceContext
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.service.executors.kafka import KafkaClients
from gobblin_dagster.service.topology.model import KafkaTopics
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage

SCRIPT = """
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from gobblin_dagster.constructs.clients.kafka import KafkaConnection, client_settings

admin = AdminClient(client_settings(KafkaConnection(brokers="127.0.0.1:1"), {}))
admin.poll(2)  # hands out what the library logged
try:
    admin.list_topics(timeout=1)
except KafkaException:
    print("away")
"""


def test_broker_that_is_away_is_told_by_the_error_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("away\n", "")


def test_tries_to_connect_are_logged_once_a_minute_and_each_broker_for_itself() -> None:
    now = [100.0]
    quiet = OnceAMinute(lambda: now[0])

    def is_logged(text: str) -> bool:
        return bool(quiet.filter(logging.LogRecord("kafka", logging.ERROR, "", 1, "FAIL %s", (text,), None)))

    assert is_logged("broker a failed: Connection refused (after 0ms in state CONNECT)")
    now[0] += 0.05
    assert not is_logged("broker a failed: Connection refused (after 1ms in state CONNECT)")
    assert is_logged("broker b failed: Connection refused (after 1ms in state CONNECT)")
    now[0] += QUIET_S
    assert is_logged("broker a failed: Connection refused (after 0ms in state CONNECT)")


@pytest.mark.parametrize(
    ("halves", "text"),
    [((0, 0), ""), ((-1, -1), "_____________________w"), ((5, -7), "AAAAAAAAAAX_________-Q")],
    ids=["none", "all bits", "some"],
)
def test_id_of_a_topic_is_written_as_kafka_writes_it(halves: tuple[int, int], text: str) -> None:
    assert _id_text(Uuid(*halves)) == text


class Admin:
    """Answers for topics: an id, or an error by its code."""

    def __init__(self, answers: dict[str, Uuid | int]) -> None:
        self._answers = answers
        self.asked = 0

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        self.asked += 1
        return {name: self._answer(self._answers[name]) for name in topics.topic_names}

    def _answer(self, what: Uuid | int) -> Future[Any]:
        answer: Future[Any] = Future()
        if isinstance(what, int):
            answer.set_exception(KafkaException(KafkaError(what)))
        else:
            answer.set_result(SimpleNamespace(topic_id=what))
        return answer


def test_ids_of_all_topics_are_asked_for_at_once_and_old_brokers_have_none() -> None:
    gone, old = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNSUPPORTED_VERSION
    admin = Admin({"a": Uuid(5, -7), "b": Uuid(0, 0), "c": old, "d": gone})
    ids, faults = topic_ids(KafkaConnection(brokers="b:1"), ["d", "b", "c", "a", "a"], admin)
    assert ids == {"a": "AAAAAAAAAAX_________-Q", "b": "", "c": ""}
    assert [(topic, is_absent(error)) for topic, error in faults.items()] == [("d", True)]
    assert admin.asked == 1
    assert topic_ids(KafkaConnection(brokers="b:1"), [], admin) == ({}, {})
    assert admin.asked == 1, "the library refuses to ask for nothing"


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase"])
def test_secret_is_refused_in_a_job_file(name: str) -> None:
    with pytest.raises(ValidationError, match="config_env"):
        KafkaConnection(brokers="b:1", config={name: "x"})


def test_what_says_most_is_the_last_refusal_then_the_last_fault() -> None:
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    away = KafkaError(KafkaError._TRANSPORT, "b:1: Connection refused (after 0ms in state CONNECT)")
    alert = KafkaError(KafkaError._TRANSPORT, "b:1: alert bad certificate: SSL alert number 42 (after 3ms)")
    login = KafkaError(KafkaError._AUTHENTICATION, "b:1: Invalid username or password")
    assert telling([]) == telling([down]) == ""
    assert telling([away, down]) == "b:1: Connection refused"
    assert telling([alert, away, down]) == "b:1: alert bad certificate: SSL alert number 42"
    assert telling([login, away]) == "b:1: Invalid username or password"


@pytest.mark.parametrize(
    ("options", "setting", "instead"),
    [
        (KafkaOptions.model_validate, "isolation.level", "would have no effect: set `isolation`"),
        (KafkaOptions.model_validate, "stats_cb", "a Python object"),
        (KafkaTopicOptions.model_validate, "transactional.id", "would have no effect: the publisher sets it"),
    ],
    ids=["source", "callback", "publisher"],
)
def test_setting_without_effect_is_refused(options: Callable[..., object], setting: str, instead: str) -> None:
    topic = {"topic": "t"} if options == KafkaTopicOptions.model_validate else {}
    for where in ("config", "config_env"):
        with pytest.raises(ValidationError, match=instead):
            options({"brokers": "b:1", where: {setting: "x"}} | topic)
    KafkaConnection(brokers="b:1", config={"isolation.level": "read_committed"})  # stored commit steps are still read


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"brokers": "a:9092,b:65536"}, "'b:65536' is no address of a broker"),
        ({"brokers": "a:9092,b:0"}, "'b:0' is no address of a broker"),
        ({"brokers": "a:broker"}, "'a:broker' is no address of a broker"),
        ({"brokers": "http://a:9092"}, "'http://a:9092' is no address of a broker"),
        ({"brokers": ","}, "',' is no address of a broker"),
        ({"timeout_s": 3601}, "less than or equal to 3600"),
    ],
    ids=str,
)
def test_what_the_library_cannot_take_is_refused_unless_a_stored_step_has_it(
    option: dict[str, Any], problem: str
) -> None:
    for good in ("kafka", "a:1, b:65535,", "[::1]:9092", "SASL_SSL://a:9093"):
        KafkaConnection(brokers=good)
    with pytest.raises(ValidationError, match=problem):
        KafkaConnection(**{"brokers": "a:1", **option})
    commit = TableCommit("id", "j", "run", "u", "main", "0", "1", ())
    step = SendToKafkaStep(commit, "t", None, "commits", KafkaConnection(brokers="a:1"))
    fields = step.to_json()
    fields["connection"] |= option
    assert SendToKafkaStep.from_json(fields).to_json() == fields


def test_missing_permission_is_named_and_one_for_groups_is_not_needed() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert "needs the permissions to describe and to read the topic" in str(kafka_error("a", "t-0", error))
    assert is_of_group(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert not is_of_group(error)


SECRET = "s3cr3t-Word!9"
REFUSED = {"brokers": "127.0.0.1:1", "config_env": {"security.protocol": "KAFKA_WORD"}}
"""A connection whose settings are mixed up: the library shows the value that it refuses."""
CONNECTION = KafkaConnection.model_validate(REFUSED)
CLIENTS = KafkaClients(KafkaTopics.model_validate(REFUSED | {"orders": "a", "reports": "b"}))


def plan() -> None:
    spec = ConstructSpec.model_validate(REFUSED | {"type": "kafka", "topics": ["t"], "value": {"type": "bytes"}})
    source: Source = registry.create(ConstructKind.SOURCE, spec, ConstructContext(job="j", base_dir="/"))
    list(source.plan(SourceContext(Extract("x", "t"), {}, lambda _: True, SystemClock())))


def publish() -> None:
    commit = TableCommit("c", "job", "run", "a", "all", "0", "1", ())
    SendToKafkaStep(commit, "rows", None, "commits", CONNECTION).verify(LocalStorage())


def extract() -> None:
    with translated_kafka_errors("a", "t-0"):
        new_client(Consumer, CONNECTION, {"group.id": "g"})


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(plan, id="source"),
        pytest.param(extract, id="extractor"),
        pytest.param(publish, id="publisher"),
        pytest.param(lambda: find_cuts(CONNECTION, "j", {("t", 0): RowMark(7, "a")}), id="marks"),
        pytest.param(lambda: topic_ids(CONNECTION, ["t"]), id="ids"),
        pytest.param(CLIENTS.producer, id="producer of an executor"),
        pytest.param(lambda: CLIENTS.consumer("g"), id="consumer of an executor"),
        pytest.param(lambda: CLIENTS.members("g"), id="members of a group"),
    ],
)
def test_refused_setting_is_shown_without_its_value_also_in_the_errors_that_led_to_ours(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_WORD", SECRET)
    with pytest.raises(EnvironmentFaultError) as caught:  # no retry helps, and recovery waits for a person
        use()
    shown = "".join(traceback.format_exception(caught.value))
    assert 'Invalid value "${KAFKA_WORD}" for configuration property "security.protocol"' in shown
    assert SECRET not in shown
