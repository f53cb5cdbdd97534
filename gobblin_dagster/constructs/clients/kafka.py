"""Connect to Kafka: settings of the client library (an optional package), and its errors as ours."""

from __future__ import annotations

import logging
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import EnvironmentFaultError, ExtractError, TransientError
from gobblin_dagster.core.secrets import hidden, is_secret_name
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.spec.job import SpecModel

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # without it, errors go to the terminal if logging is not configured
QUIET_S = 60.0
"""Seconds for which a line that the client library has logged is not logged again."""


class OnceAMinute(logging.Filter):
    """Pass a line once a minute, whatever numbers are in it.

    While brokers are away the library logs each of its tries to connect: 20 lines a second and client.

    Args:
        clock: returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is to be logged."""
        now, line = self._clock(), _NUMBER.sub("0", record.getMessage())
        if now - self._told_at.get(line, -QUIET_S) < QUIET_S:
            return False
        # Copied, as several threads log; and old lines are forgotten.
        self._told_at = {one: at for one, at in self._told_at.copy().items() if now - at < QUIET_S} | {line: now}
        return True


_ADDRESS = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[0-9a-f:.%a-z]+\]|[^\s,:/\[\]]+)(:(?P<port>\d+))?", re.IGNORECASE
)
_NUMBER = re.compile(r"\d+")
_LOG.addFilter(OnceAMinute())
_CALLABLES = {"default.topic.config", "logger", "on_commit", "on_delivery"}
"""Settings that hold Python objects, beside those that end in `_cb`."""


class KafkaConnection(SpecModel):
    """How to reach the brokers; part of the options of the source `kafka`."""

    brokers: str = Field(min_length=1)
    """`host:port`, several separated by commas. Source: `kafka.brokers`."""
    config: dict[str, str | int | bool] = Field(default_factory=dict)
    """Settings of librdkafka, e.g. `security.protocol: SASL_SSL`. Settings that would be overridden, as
    `isolation.level` or `transactional.id`, are refused. Files (`ssl.ca.location`) need absolute paths, the same on
    every worker."""
    config_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables by name of the setting, e.g. `sasl.password: KAFKA_PASSWORD`. They are read in the process
    that connects, and never written to plans, logs or state."""
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """Seconds without an answer or a message after which reading fails as transient."""

    overridden: ClassVar[Mapping[str, str]] = {}
    """Settings that the construct sets itself, each with what a user can do instead."""

    @field_validator("brokers")
    @classmethod
    def _are_addresses(cls, brokers: str) -> str:
        # The client library takes a port modulo 65,536, and a name for port 0.
        for one in [part for part in map(str.strip, brokers.split(",")) if part] or [brokers]:
            found = _ADDRESS.fullmatch(one)
            if found is None or not 0 < int(found["port"] or 9092) < 65_536:
                raise ValueError(f"{one!r} is no address of a broker; write host:port, with a port up to 65535")
        return brokers

    @field_validator("config")
    @classmethod
    def _no_secrets(cls, config: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        secret = sorted(name for name in config if is_secret_name(name))
        if secret:
            raise ValueError(f"{', '.join(secret)} must not be in a job file; name its variable in `config_env`")
        return config

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Self:
        for name in sorted({*self.config, *self.config_env}):
            if name in _CALLABLES or name.endswith("_cb"):
                raise ValueError(f"`{name}` is no text or number, but a Python object; leave it out")
            if name in self.overridden:
                raise ValueError(f"`{name}` in `config` would have no effect: {self.overridden[name]}")
        return self


def client_settings(
    connection: KafkaConnection, own: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of one client: `own` overrides the user's settings, and these override `defaults`.

    Raises:
        EnvironmentFaultError: the client library or a named environment variable is missing.
    """
    with optional_package("confluent_kafka"):
        import confluent_kafka  # noqa: F401, PLC0415  # optional package
    secret = from_environment(connection.config_env, "Kafka setting")
    # A broker that comes back is found within one second instead of ten.
    settings: dict[str, Any] = {"reconnect.backoff.max.ms": 1000, **(defaults or {}), **connection.config, **secret}
    # Logged through Python: librdkafka would write each lost connection to the terminal. The errors say the same.
    return {**settings, "bootstrap.servers": connection.brokers, "logger": _LOG, **own}


def new_client(
    kind: Callable[[dict[str, Any]], Any],
    connection: KafkaConnection,
    own: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Return a new client of the library with `client_settings`.

    Args:
        kind: class of the client.
        connection: how to reach the brokers.
        own: settings that override the user's.
        defaults: settings that the user's override.

    Raises:
        EnvironmentFaultError: the client library or a named environment variable is missing, or the library refuses a
            setting, which no retry changes. Values of variables are hidden in its cause too.
        KafkaException: the machine has no room for another client.
    """
    settings = client_settings(connection, own, defaults)
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # optional package

    try:
        return kind(settings)
    except KafkaException as error:
        said = error.args[0]
        error.args = (KafkaError(said.code(), hidden(said.str())),)
        if said.code() == KafkaError._CRIT_SYS_RESOURCE:
            raise
        raise EnvironmentFaultError(
            problem=f"Kafka's client library refuses a setting: {said.str()}.",
            hint="Correct `config`, or the variable that `config_env` names for it.",
        ) from error


def topic_ids(
    connection: KafkaConnection, topics: Iterable[str], admin: Any = None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Query the ids of topics, all at once; a topic that was created again has another id.

    Args:
        connection: how to reach the brokers.
        topics: names of the topics.
        admin: client to ask with; default: a new one.

    Returns:
        Ids by topic, empty if the brokers have none (before Kafka 2.8); and the errors of topics without an answer.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException, TopicCollection  # noqa: PLC0415  # optional package
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # optional package

    admin = admin or new_client(AdminClient, connection, {})
    names = sorted(set(topics))
    asked = admin.describe_topics(TopicCollection(names), request_timeout=connection.timeout_s) if names else {}
    without_ids = {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE}
    ids, faults = {}, {}
    for topic in names:
        try:
            ids[topic] = _id_text(asked[topic].result().topic_id)
        except KafkaException as error:
            if error.args[0].code() in without_ids:
                ids[topic] = ""
            else:
                faults[topic] = error.args[0]
    return ids, faults


def _id_text(identity: Any) -> str:
    """Return a topic's id as Kafka's tools show it; empty for zeros, which mean no id."""
    halves = identity.get_most_significant_bits(), identity.get_least_significant_bits()
    octets = b"".join((half % 2**64).to_bytes(8, "big") for half in halves)
    return urlsafe_b64encode(octets).decode().rstrip("=") if any(octets) else ""


def is_absent(error: Any) -> bool:
    """Return True if a KafkaError says that the topic or partition does not exist."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    return error.code() in {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }


@contextmanager
def translated_kafka_errors(dataset_urn: str, partition: str) -> Iterator[None]:
    """Raise the client library's errors as TransientError or ExtractError; the library says which may be retried."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

    try:
        yield
    except KafkaException as error:
        raise kafka_error(dataset_urn, partition, error.args[0]) from error


def is_passing(error: Any) -> bool:
    """Return True for a KafkaError of a partition whose leader changes; it ends without our help."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    return error.code() in {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }


def is_refusal(error: Any) -> bool:
    """Return True if a KafkaError says that the brokers refuse our login or certificate, or that we refuse theirs."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    refusals = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
    # A broker that refuses our certificate sends an alert, which the library reports as a broken connection.
    return error.code() in refusals or "SSL alert" in error.str()


def is_forbidden(error: Any) -> bool:
    """Return True if a KafkaError says that the login lacks a permission."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    return error.code() in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }


def is_of_group(error: Any) -> bool:
    """Return True if a KafkaError is about the consumer group.

    The library looks for each consumer's group, which we do not use: a login needs no permission to read it.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def telling(errors: Sequence[Any]) -> str:
    """Return the text of the most helpful KafkaError: the last refusal, else the last error; empty if there is none."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    said = [one for one in errors if one.code() != KafkaError._ALL_BROKERS_DOWN]
    last = [*said[-1:], *[one for one in said if is_refusal(one)][-1:]]
    return last[-1].str().partition(" (after ")[0] if last else ""


def kafka_error(dataset_urn: str, partition: str, error: Any) -> ExtractError | TransientError:
    """Return our error for a KafkaError."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    gone = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
    final = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}
    if error.code() in gone or is_absent(error):
        problem = f"its offsets or the partition are gone since it was planned: {error.str()}. Run again to plan again."
        return ExtractError(dataset_urn=dataset_urn, file=partition, problem=problem)
    if is_forbidden(error):
        problem = f"{error.str().rstrip('.')}: the login needs the permissions to describe and to read the topic."
        return ExtractError(dataset_urn=dataset_urn, file=partition, problem=problem)
    if error.fatal() or error.code() in final:
        return ExtractError(dataset_urn=dataset_urn, file=partition, problem=error.str())
    return TransientError(problem=f"Dataset {dataset_urn!r}, partition {partition}: {error.str()}.")


def topic_place(brokers: str, topic: str) -> str:
    """Return a topic as a URL, to be compared with others by `is_same_place`."""
    return f"kafka://{brokers}/{topic}"
