"""Connections to Kafka: settings of the client library, which is an optional package, and its errors in our words."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import Field, field_validator

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import ExtractError, TransientError
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.spec.job import SpecModel

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # else a broker that is away fills the terminal of who set no logging up
_SECRET = ("password", "passphrase", "secret", ".pem", "oauthbearer.config")


class KafkaConnection(SpecModel):
    """How to reach the brokers; part of the options of the source `kafka`."""

    brokers: str = Field(min_length=1)
    """`host:port`, several separated by commas. Source: `kafka.brokers`."""
    config: dict[str, str | int | bool] = Field(default_factory=dict)
    """Settings of librdkafka, e.g. `security.protocol: SASL_SSL`. What this source needs for itself cannot be set. Files
    (`ssl.ca.location`) are named by absolute paths, the same on every worker."""
    config_env: dict[str, str] = Field(default_factory=dict)
    """Settings taken from environment variables by name, e.g. `sasl.password: KAFKA_PASSWORD`: read where they are used,
    never written to plans, logs or state."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Seconds without an answer or a message after which the broker counts as away."""

    @field_validator("config")
    @classmethod
    def _no_secrets(cls, config: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        secret = sorted(name for name in config if name.endswith(_SECRET))
        if secret:
            raise ValueError(f"{', '.join(secret)} must not stand in a job file; name its variable in `config_env`")
        return config


def client_settings(
    connection: KafkaConnection, own: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings of one client: `own` wins over what the user set, and that over `defaults`.

    Raises:
        EnvironmentFaultError: the client library or a named environment variable is missing.
    """
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        import confluent_kafka  # noqa: F401, PLC0415  # asked for where a job uses it
    secret = from_environment(connection.config_env, "Kafka setting")
    # A broker that comes back is found within a second, not ten.
    settings: dict[str, Any] = {"reconnect.backoff.max.ms": 1000, **(defaults or {}), **connection.config, **secret}
    # Logged through Python: librdkafka itself would write to the terminal at each lost connection. Errors say the same.
    return {**settings, "bootstrap.servers": connection.brokers, "logger": _LOG, **own}


def topic_ids(
    connection: KafkaConnection, topics: Iterable[str], admin: Any = None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Ask for the ids of topics, all at once; a topic that was made anew has another one.

    Args:
        connection: how to reach the brokers.
        topics: their names.
        admin: client to ask with; default: one of its own.

    Returns:
        Ids by topic, empty ones where the brokers know none (before Kafka 2.8), and the errors of those that have none.
    """
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaError, KafkaException, TopicCollection  # noqa: PLC0415  # optional package
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # optional package

    admin = admin or AdminClient(client_settings(connection, {}))
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
    """Return a topic's id as Kafka's tools show it; empty for the id of zeros, which stands for none."""
    halves = identity.get_most_significant_bits(), identity.get_least_significant_bits()
    octets = b"".join((half % 2**64).to_bytes(8, "big") for half in halves)
    return urlsafe_b64encode(octets).decode().rstrip("=") if any(octets) else ""


def is_absent(error: Any) -> bool:
    """Tell whether a KafkaError says that there is no such topic or partition."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    return error.code() in {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }


@contextmanager
def translated_kafka_errors(dataset_urn: str, partition: str) -> Iterator[None]:
    """Raise what the client library says as TransientError or ExtractError, by its own word on whether to retry."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

    try:
        yield
    except KafkaException as error:
        raise kafka_error(dataset_urn, partition, error.args[0]) from error


def is_passing(error: Any) -> bool:
    """Tell whether a KafkaError is one of a partition whose leader changes, or has just come back; it ends by itself."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
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
    """Tell whether a KafkaError says that the brokers do not take our login, or we not their certificate."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    refusals = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
    # A broker that does not take our certificate says so as an alert, which the library takes for a broken connection.
    return error.code() in refusals or "SSL alert" in error.str()


def telling(errors: Sequence[Any]) -> str:
    """Return what says most of the KafkaErrors that a client met: the last refusal, else the last fault; empty where none."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    said = [one for one in errors if one.code() != KafkaError._ALL_BROKERS_DOWN]
    last = [*said[-1:], *[one for one in said if is_refusal(one)][-1:]]
    return last[-1].str().partition(" (after ")[0] if last else ""


def kafka_error(dataset_urn: str, partition: str, error: Any) -> ExtractError | TransientError:
    """Return our error for a KafkaError of the library."""
    with optional_package("confluent-kafka", "Kafka", extra="kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    gone = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
    final = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
    if error.code() in gone or is_absent(error):
        problem = (
            f"its offsets or the partition are gone since the plan was made: {error.str()}. Run again to plan anew."
        )
        return ExtractError(dataset_urn=dataset_urn, file=partition, problem=problem)
    if error.fatal() or error.code() in final:
        return ExtractError(dataset_urn=dataset_urn, file=partition, problem=error.str())
    return TransientError(problem=f"Dataset {dataset_urn!r}, partition {partition}: {error.str()}.")
