"""The executor `kafka`: orders go through one topic, reports come back through another.

The service produces an order with `acks=all` and the flow as its key, and drops it from the outbox once the brokers
have it. A worker commits an offset once what it read is in its own store, and marks a report once the brokers have it.
So each message comes at least once, and stores remove duplicates. A message that cannot be read is set aside, and
stops no other.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gobblin_dagster.constructs.clients.kafka import new_client
from gobblin_dagster.core.errors import GobblinDagsterError, TransientError, UsageError
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.service.executors.announcements import is_announcement, read_announcement, write_announcement
from gobblin_dagster.service.executors.gobblin_messages import (
    HEADER,
    read_job_spec,
    read_tracking_event,
    write_job_spec,
)
from gobblin_dagster.service.executors.messages import RunOrder, StopOrder, from_line, to_line
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.executors.turns import Turns
from gobblin_dagster.service.model import JobKey, JobReport
from gobblin_dagster.service.store.node_rows import NODE_TTL, Node
from gobblin_dagster.service.store.worker_rows import read_report, write_report
from gobblin_dagster.service.topology.model import CapabilitySpec, KafkaTopics

log = logging.getLogger(__name__)

REFUSED = ".gobblin/refused-orders-{executor}.jsonl"
"""File of a worker's project with messages that were no orders, each with the reason."""
_POLL_S = 0.2
SESSION_S = 15
"""Seconds without a sign of life after which the partitions of a worker that was killed go to the others."""
PARTITIONS_S = 30.0
"""How often partitions that were added to the topic of reports are looked for."""
ANNOUNCE_S = 5.0
"""How often a worker announces itself in the topic of reports."""
_STORE = "gobblin-store-"
"""What the names of workers in their group begin with; the store's name follows."""
_SHOWN_BYTES = 1 << 20


class KafkaClients:
    """Makes the clients of one process; tests have their own.

    Args:
        topics: how to reach the brokers.
    """

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics

    def producer(self) -> Any:
        """Return a producer whose messages are on all replicas once they are delivered, in order, once."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import Producer  # noqa: PLC0415  # optional package

        milliseconds = int(self._topics.timeout_s * 1000)
        own = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": milliseconds, "linger.ms": 5}
        return new_client(Producer, self._topics, own)

    def consumer(self, group: str, name: str = "") -> Any:
        """Return a consumer that commits only what it is told to; other members of the group can read its name."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import Consumer  # noqa: PLC0415  # optional package

        own: dict[str, Any] = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        own |= {"client.id": name} if name else {}
        return new_client(Consumer, self._topics, own, {"session.timeout.ms": SESSION_S * 1000})

    def members(self, group: str) -> set[str]:
        """Return the names of a group's members."""
        with optional_package("confluent_kafka"):
            from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # optional package

        admin = new_client(AdminClient, self._topics, {})
        [found] = admin.describe_consumer_groups([group], request_timeout=self._topics.timeout_s).values()
        return {member.client_id for member in found.result().members}


class _Sender:
    """Produces messages and waits until the brokers have them."""

    def __init__(self, topics: KafkaTopics, clients: KafkaClients, topic: str) -> None:
        self._topics = topics
        self._clients = clients
        self._topic = topic
        self._producer: Any = None

    def send(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send messages, as key and value; raises TransientError, and UsageError for one that is too large."""
        if not messages:
            return
        self._producer = self._producer or self._clients.producer()
        errors: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error)

        for key, value in messages:
            with _translated(self._topics):
                self._producer.produce(self._topic, value=value, key=key.encode(), on_delivery=delivered)
        left = self._producer.flush(self._topics.timeout_s)
        if errors or left:
            self._producer = None  # after some errors a producer sends nothing any more
        if errors:
            raise _error(self._topics, errors[0])
        if left:
            problem = f"Kafka at {self._topics.brokers} did not take {left} message(s) in {self._topics.timeout_s} s."
            raise TransientError(problem=problem)


class KafkaExecutor:
    """Orders jobs from workers behind Kafka.

    Args:
        name: of the executor.
        topics: where orders and reports go.
        open_jobs: returns the jobs that the service gave it and that are not over.
        description: for people.
        capabilities: kinds of movement that it can do.
        clients: makes Kafka's clients.

    Source: gobblin-kafka `SimpleKafkaSpecExecutor`, `SimpleKafkaSpecProducer`. Differs: JSON, or Gobblin's Avro; an
        order is sent again until the brokers have it, and reports come back the same way.
    """

    def __init__(
        self,
        name: str,
        topics: KafkaTopics,
        open_jobs: Callable[[], Sequence[JobKey]],
        description: str = "",
        capabilities: Sequence[CapabilitySpec] = (),
        clients: KafkaClients | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.capabilities = tuple(capabilities)
        self._topics = topics
        self._open_jobs = open_jobs
        self._clients = clients or KafkaClients(topics)
        self._sender = _Sender(topics, self._clients, topics.orders)
        self._consumer: Any = None
        self._partitions: Sequence[int] = ()
        """Those of the topic of reports, as they were when they were looked at last."""
        self._look_at = 0.0
        self._unread: list[Any] = []
        """Messages that were read and not acknowledged."""
        self._announced: dict[str, Node] = {}

    @property
    def uri(self) -> str:
        """Brokers and topic of orders."""
        return f"kafka://{self._topics.brokers}/{self._topics.orders}"

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings."""
        topics = self._topics
        return {"brokers": topics.brokers, "orders": topics.orders, "reports": topics.reports}

    def health(self) -> str:
        """Return why orders would wait: the brokers do not answer, or a topic is not there."""
        try:
            self._require_topics()
        except GobblinDagsterError as error:
            return str(error)
        return ""

    def add(self, order: RunOrder) -> None:
        """Send an order."""
        self._sender.send([(_flow(order.key), self._written(order))])

    def update(self, order: RunOrder) -> None:
        """Do nothing: an order that was sent is in the topic for good, and its body goes with it."""

    def delete(self, key: JobKey) -> None:
        """Send the order to end a job; it comes after the order to run it, as both have one key."""
        self._sender.send([(_flow(key), self._written(StopOrder(key)))])

    def list(self) -> Sequence[JobKey]:
        """Return the jobs whose end was not reported yet."""
        return self._open_jobs()

    def take_reports(self, limit: int) -> Sequence[JobReport]:
        """Read reports behind the ones that were acknowledged."""
        if not self._unread:
            self._follow_partitions()
            consumer = self._assigned()
            try:
                with _translated(self._topics):
                    self._unread = _sound(self._topics, consumer.consume(limit, _POLL_S))
            except GobblinDagsterError:
                # After some errors, such as a coordinator of the group that was loading, it would never read again.
                self._leave()
                raise
        found = []
        for message in self._unread:
            try:
                report = self._read(message)
            except ValueError as error:
                where = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
                log.warning("executor %s: a message is left out, %s: %s", self.name, where, error)
            else:
                found += [report] if report is not None else []
        return found

    def acknowledge(self, reports: Sequence[JobReport]) -> None:
        """Commit the offsets of what was read."""
        if self._unread:
            with _translated(self._topics):
                self._consumer.commit(offsets=_behind(self._unread), asynchronous=False)
        self._unread = []

    def take_announcements(self) -> Sequence[Node]:
        """Return the workers whose announcements were among what was read."""
        found, self._announced = list(self._announced.values()), {}
        return found

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def _read(self, message: Any) -> JobReport | None:
        """Return the report in a message; None if it is another event of Gobblin's, or an announcement."""
        value = message.value() or b""
        if value.startswith(HEADER):
            return read_tracking_event(value)
        text = value.decode()
        if not is_announcement(text):
            return read_report(text)
        worker = read_announcement(text)
        if time.time() - message.timestamp()[1] / 1000 < NODE_TTL.total_seconds():  # older ones say nothing of today
            self._announced[worker.name] = worker
        return None

    def _written(self, order: RunOrder | StopOrder) -> bytes:
        return write_job_spec(order) if self._topics.format == "gobblin" else to_line(order).encode()

    def _assigned(self) -> Any:
        """Return the consumer of all partitions: nodes of the service need no group, as one of them works at a time."""
        if self._consumer is None:
            self._partitions = self._require_topics()
            self._look_at = time.monotonic() + PARTITIONS_S
            with optional_package("confluent_kafka"):
                from confluent_kafka import OFFSET_STORED, TopicPartition  # noqa: PLC0415  # optional package

            consumer = self._clients.consumer(f"gobblin-service-{self.name}")
            with _translated(self._topics):
                consumer.assign([TopicPartition(self._topics.reports, one, OFFSET_STORED) for one in self._partitions])
            self._consumer = consumer
        return self._consumer

    def _follow_partitions(self) -> None:
        """Let the next look begin with all partitions, if some were added since; all that was read is acknowledged."""
        if self._consumer is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + PARTITIONS_S
        if self._require_topics() != self._partitions:
            self._leave()

    def _leave(self) -> None:
        """Let the next look begin with a new consumer; nothing is unread."""
        self._consumer.close()
        self._consumer = None

    def _require_topics(self) -> Sequence[int]:
        """Return the partitions of the topic of reports."""
        asker = self._clients.consumer(f"gobblin-service-{self.name}")
        try:
            with _translated(self._topics):
                known = asker.list_topics(timeout=min(self._topics.timeout_s, 5)).topics
        finally:
            asker.close()
        for topic in (self._topics.orders, self._topics.reports):
            if topic not in known or not known[topic].partitions:
                raise TransientError(problem=f"Kafka at {self._topics.brokers} has no topic {topic!r}; make it.")
        return sorted(known[self._topics.reports].partitions)


class KafkaLink:
    """The worker's side: orders go from the topic into the worker's store, reports from there into their topic.

    Args:
        topics: where orders and reports are.
        inbox: the worker's store, as its executor.
        folder: of the worker's project; messages that are no orders are set aside in it.
        clients: makes Kafka's clients.
        worker: name of this process; it announces itself to the service. Empty: it does not.

    Workers of one executor share one store, since an order that comes again, or one to end a job, may come to another
    worker than the order to run it. One whose store is another than that of workers in its group takes no orders: the
    older store wins.

    Source: gobblin-kafka `KafkaJobMonitor`, `HighLevelConsumer`. Differs: offsets are committed after what was read is
        durable; Gobblin skips messages that it cannot read.
    """

    def __init__(
        self,
        topics: KafkaTopics,
        inbox: StoreExecutor,
        folder: Path,
        clients: KafkaClients | None = None,
        worker: str = "",
    ) -> None:
        self._topics = topics
        self._inbox = inbox
        self._refused = folder / REFUSED.format(executor=inbox.name)
        self._clients = clients or KafkaClients(topics)
        self._sender = _Sender(topics, self._clients, topics.reports)
        self._consumer: Any = None
        self._unread: list[Any] = []
        self._group = f"gobblin-worker-{inbox.name}"
        self._store = ""
        """Name of the store, once it was asked for."""
        self._has_new_share = False
        """Whether the group's members have other shares of the partitions than when they were looked at."""
        self._worker = worker
        self._announce_at = 0.0
        self._problem = ""
        """Why orders or reports wait, as it was told last."""
        self._turns = Turns("kafka", self._turn)

    def start(self) -> None:
        """Carry messages in a thread."""
        self._turns.start()

    def stop(self) -> None:
        """Take no more orders, send the reports that there are, and leave the group."""
        self._turns.end()
        self._turns.join()
        try:
            self.send_reports()
        except GobblinDagsterError as error:
            log.warning("reports wait for the next start: %s", error)
        if self._consumer is not None:
            self._consumer.close()

    def step(self) -> int:
        """Carry what there is; return how many orders and reports it was."""
        found = self.receive_orders() + self.send_reports()
        self._announce()
        return found

    def receive_orders(self, limit: int = 100) -> int:
        """Take orders into the store, and commit their offsets then."""
        if self._consumer is None:
            self._require_one_store()
            self._consumer = self._clients.consumer(self._group, _STORE + self._store)
            with _translated(self._topics):
                self._consumer.subscribe([self._topics.orders], on_assign=self._assigned)
        if not self._unread:
            with _translated(self._topics):
                self._unread = _sound(self._topics, self._consumer.consume(limit, _POLL_S))
        if self._has_new_share:
            self._require_one_store()
            self._has_new_share = False
        for message in self._unread:
            self._take_in(message)
        read, self._unread = self._unread, []
        if read:
            # If the partitions went to another worker meanwhile, it reads these messages again: they are known.
            with _translated(self._topics):
                self._consumer.commit(offsets=_behind(read), asynchronous=False)
        return len(read)

    def send_reports(self, limit: int = 100) -> int:
        """Send the reports that the service has not got, and note it then."""
        reports = self._inbox.take_reports(limit)
        self._sender.send([(_flow(report.key), write_report(report).encode()) for report in reports])
        self._inbox.acknowledge(reports)
        return len(reports)

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self._has_new_share = True

    def _require_one_store(self) -> None:
        """Leave the group, and raise TransientError, if workers in it have a store that is older than this one's."""
        with _translated(self._topics):
            names = self._clients.members(self._group)
        stores = {name.removeprefix(_STORE) for name in names if name.startswith(_STORE)}
        self._store = self._store or self._inbox.store_name()
        if min(stores | {self._store}) == self._store:
            return
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._unread = None, []
        raise TransientError(
            problem=f"Other workers of executor {self._inbox.name} keep their orders in another database, so this one "
            "takes none: set one `worker: {store: postgresql://...}` in the gobblin.yaml of all of them, or end the "
            "others."
        )

    def _take_in(self, message: Any) -> None:
        try:
            value = message.value() or b""
            order = read_job_spec(value) if value.startswith(HEADER) else from_line(value.decode())
            if not isinstance(order, RunOrder | StopOrder):
                raise ValueError(f"{type(order).__name__} is no order")
        except ValueError as error:
            self._set_aside(message, str(error))
            return
        if isinstance(order, StopOrder):
            self._inbox.delete(order.key)
        else:
            self._inbox.add(order)

    def _set_aside(self, message: Any, reason: str) -> None:
        value = message.value() or b""
        place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        document = {**place, "reason": reason[:500], "value_base64": base64.b64encode(value[:_SHOWN_BYTES]).decode()}
        self._refused.parent.mkdir(parents=True, exist_ok=True)
        with self._refused.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")
            file.flush()
            os.fsync(file.fileno())
        log.warning("a message of %s is no order; it is set aside in %s: %s", place, self._refused, reason)

    def _announce(self) -> None:
        """Tell the service what this worker can do, if it was not told for a while."""
        if not self._worker or time.monotonic() < self._announce_at:
            return
        own = [one for one in self._inbox.alive_workers() if one.name == self._worker]
        self._sender.send([(self._worker, write_announcement(one).encode()) for one in own])
        self._announce_at = time.monotonic() + ANNOUNCE_S

    def _turn(self) -> float:
        try:
            # Reports go on even if orders wait.
            self.send_reports()
            self.receive_orders()
            self._announce()
        except GobblinDagsterError as error:
            if str(error) != self._problem:
                log.warning("orders and reports wait: %s", error)
            self._problem = str(error)
            return 1
        except Exception:  # a fault with one message must not stop the worker for ever
            log.exception("orders and reports wait")
            return 5
        self._problem = ""
        return 0


@contextmanager
def _translated(topics: KafkaTopics) -> Iterator[None]:
    """Raise errors of the client library as ours."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

    try:
        yield
    except BufferError as error:
        raise TransientError(problem=f"Too many messages wait for Kafka at {topics.brokers}.") from error
    except KafkaException as error:
        raise _error(topics, error.args[0]) from error


def _error(topics: KafkaTopics, error: Any) -> GobblinDagsterError:
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError  # noqa: PLC0415  # optional package

    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        hint = "Raise `message.max.bytes` of the brokers and of the executor's `config`, or make the job smaller."
        return UsageError(problem=f"The message is too large for Kafka at {topics.brokers}: {error.str()}.", hint=hint)
    told = error.str().removesuffix(": ") or error.name()
    return TransientError(problem=f"Kafka at {topics.brokers}: {told} ({error.name()}).")


def _sound(topics: KafkaTopics, messages: Sequence[Any]) -> list[Any]:
    """Return the messages among what was consumed; if there are only errors, raise the first."""
    found = [message for message in messages if message.error() is None]
    if messages and not found:
        raise _error(topics, messages[0].error())
    return found


def _behind(messages: Sequence[Any]) -> list[Any]:
    """Return the offsets behind messages, by partition."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import TopicPartition  # noqa: PLC0415  # optional package

    newest = {(one.topic(), one.partition()): one.offset() for one in messages}
    return [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in newest.items()]


def _flow(key: JobKey) -> str:
    return f"{key.group}/{key.flow}"
