"""KafkaTopicPublisher: send the rows of a publication as messages, in one transaction with a note of the commit."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import quote, unquote

import pyarrow as pa
from pydantic import Field, model_validator

from gobblin_dagster.constructs.clients.environment import to_store
from gobblin_dagster.constructs.clients.kafka import (
    KafkaConnection,
    is_absent,
    is_forbidden,
    new_client,
    topic_ids,
    topic_place,
)
from gobblin_dagster.constructs.publishers.kafka_notes import (
    ENDING_S,
    TOPIC_ID,
    CommitNote,
    commit_notes,
    new_producer,
)
from gobblin_dagster.constructs.publishers.tables import (
    TableCommit,
    TablePublisher,
    abandoned_error,
    batches_of,
    say_not_noted,
)
from gobblin_dagster.constructs.types.arrow import decoded, exact_cast, value_type
from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.constructs import ConstructContext, NotedCommit, PublishView
from gobblin_dagster.core.errors import ConvertError, EnvironmentFaultError, StepRefusedError, StorageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import ALL_WIDENINGS
from gobblin_dagster.core.utils.optional_packages import optional_package

BATCH_ROWS = 10_000

TopicName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$", max_length=200)]
"""Topic names that brokers accept; case matters."""


class KafkaTopicOptions(KafkaConnection):
    """Options of the publisher `kafka_topic`."""

    topic: TopicName
    """Topic for the rows; if it does not exist, the broker creates it by its own rules."""
    key: str | None = None
    """Column whose value, as text (bytes are kept), is the message's key; default: no keys, messages are spread over
    the partitions."""
    commits_topic: TopicName = "gobblin-commits"
    """Compacted topic. It has a message per job, dataset and branch: the id of its last commit. It is created, with one
    partition, if it does not exist."""

    overridden: ClassVar[Mapping[str, str]] = {
        "bootstrap.servers": "set `brokers`",
        "metadata.broker.list": "set `brokers`",
        **dict.fromkeys(
            ("transactional.id", "transaction.timeout.ms", "enable.auto.commit", "auto.commit.enable"),
            "the publisher sets it, so that rows are sent exactly once",
        ),
        "isolation.level": "the commits are read as `read_committed`; readers of the rows set their own",
        "group.id": "it is `gobblin-commits-reader`, and no offset is committed to it",
        "enable.partition.eof": "the publisher needs it",
    }

    @model_validator(mode="after")
    def _topics_differ(self) -> Self:
        # Brokers refuse two topics whose names differ only in `.` and `_`: their metrics would have the same names.
        if self.topic.replace(".", "_") == self.commits_topic.replace(".", "_"):
            raise ValueError(
                f"`topic` {self.topic!r} and `commits_topic` {self.commits_topic!r} are one for Kafka, which compares "
                "`.` and `_` as equal; rows and notes of commits need a topic each"
            )
        return self


class KafkaTopicPublisher(TablePublisher[KafkaTopicOptions]):
    """Send the branch's rows to a topic as JSON objects, exactly once for readers of committed messages.

    The rows and the note in the commits topic are one Kafka transaction. A run that continues after another took over
    is refused by Kafka, because both use the transactional id of the dataset. The branch's files are not published.

    Source: gobblin-kafka `KafkaWriter`. Differs: exactly once; Gobblin sends at least once.
    """

    packages = ("confluent_kafka",)
    Options = KafkaTopicOptions
    published_elsewhere = "a Kafka topic"
    publishes_files = False
    widens = ALL_WIDENINGS

    def __init__(self, options: KafkaTopicOptions, context: ConstructContext) -> None:
        super().__init__(options, context)
        self.ledger = f"Kafka topic {options.commits_topic}, beside topic {options.topic},"
        self.keeps_rows_in = topic_place(options.brokers, options.topic)
        self.places = tuple(topic_place(options.brokers, one) for one in (options.topic, options.commits_topic))

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        options = self._options
        with _errors(options.topic, options.commits_topic):
            found = [_topic_id(options, one) for one in (options.topic, options.commits_topic)]
        return {urn: [one for one in found if one] for urn in datasets}

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return that there is no column for the messages' keys, or one without a text; empty if there is."""
        key = self._options.key
        if key is None:
            return ""
        if key not in schema.names:
            return f"there is no key column {key!r}; found: {', '.join(schema.names)}"
        kind = value_type(schema.field(key).type)
        is_nested = pa.types.is_nested(kind)
        return f"key column {key!r} is {kind}, which is no key; make it text with `to_json`" if is_nested else ""

    def key_columns(self, extract: Extract) -> Sequence[str]:
        """Return no column: messages may be without a key."""
        return ()

    def newest_commits(self, datasets: Mapping[str, str]) -> Mapping[str, Collection[NotedCommit]]:
        options = self._options
        new_producer(options, "gobblin")  # a setting that it refuses is told before anything is read
        found: dict[str, dict[str, NotedCommit]] = {}

        def names_of(key: str) -> tuple[str, str] | None:
            # Names of branches and topics contain no slash; the urn is quoted.
            place, *names = key.split("/")
            if place != "gobblin" or len(names) != 4 or names[::3] != [self._context.job, options.topic]:
                return None
            return unquote(names[1]), names[2]

        def is_asked(key: str) -> bool:
            names = names_of(key)
            return names is not None and names[0] in datasets

        with _errors(options.topic, options.commits_topic):
            notes = commit_notes(options, options.commits_topic, is_asked)
            topic_id = _topic_id(options, options.topic) if notes else None
            for key, note in notes.items():
                if (names := names_of(key)) is not None and note.is_of(topic_id):
                    found.setdefault(names[0], {})[names[1]] = note.commit
        return {urn: set(found[urn].values()) for urn in datasets if urn in found}

    def _step(self, view: PublishView) -> SendToKafkaStep:
        options = self._options
        # A step keeps its settings: with wrong ones it could never be done, whatever is corrected in the job file.
        new_producer(options, "gobblin")
        return SendToKafkaStep(commit=TableCommit.of(view, staged=True), key=options.key, **self._place())

    def aimed(self, step: CommitStep, folder: str) -> CommitStep | None:
        return replace(step, **self._place()) if isinstance(step, SendToKafkaStep) else None

    def _place(self) -> dict[str, Any]:
        """Return the fields of a step that say which topic it sends to."""
        options = self._options
        plain, variables = to_store(options.config, options.config_env)
        settings = options.model_dump(include=set(KafkaConnection.model_fields))
        return {
            "topic": options.topic,
            "commits_topic": options.commits_topic,
            "connection": KafkaConnection.model_validate(settings | {"config": plain, "config_env": variables}),
        }


@register_commit_step
@dataclass(frozen=True, slots=True)
class SendToKafkaStep:
    """Send the rows of staged files to a topic; done if the commits topic has the commit."""

    type_name: ClassVar[str] = "send_to_kafka"
    version: ClassVar[int] = 1

    commit: TableCommit
    topic: str
    key: str | None
    commits_topic: str
    connection: KafkaConnection

    @property
    def place(self) -> str:
        """The topic as a URL."""
        return topic_place(self.connection.brokers, self.topic)

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the staged files."""
        return self.commit.size_bytes

    def verify(self, storage: Storage) -> bool:
        with self._errors():
            return self._is_noted(self._notes())

    def is_lost(self) -> bool:
        """Return whether the topic lacks the rows of this commit, which was once done."""
        with self._errors():
            notes = self._notes()
            if not self._is_noted(notes):
                return True
            return not notes[self._name].is_of(_topic_id(self.connection, self.topic))

    def execute(self, storage: Storage) -> None:
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # as in `_errors`

        with self._errors():
            self._make_commits_topic()
            producer = new_producer(self.connection, self._name)
            # From here on, no other run can end a transaction of this dataset: check again whether one has.
            producer.init_transactions(self.connection.timeout_s)
            notes = self._notes()
            if self._is_noted(notes):
                return
            if self._abandoned_name in notes:
                raise abandoned_error(self, f"topic {self.commits_topic}")
            self._require_topic(producer)
            producer.begin_transaction()
            try:
                self._send(producer, storage)
                commit_all(producer, self.connection.timeout_s)
            except BaseException:
                # What cannot be aborted either is ended by the next `init_transactions`; the first error says why.
                with suppress(KafkaException):
                    producer.abort_transaction(self.connection.timeout_s)
                raise

    def forbid(self) -> None:
        """End the transaction of a run that may be sending, and note that the commit is abandoned.

        A run that wakes in its transaction is refused by Kafka; one that has not begun it finds the note.
        """
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # as in `_errors`

        try:
            self._make_commits_topic()
            producer = new_producer(self.connection, self._name)
            producer.init_transactions(max(self.connection.timeout_s, ENDING_S))
            producer.begin_transaction()
            _produce(producer, self.commits_topic, self._abandoned_name, "abandoned", [])
            commit_all(producer, self.connection.timeout_s)
        except (KafkaException, EnvironmentFaultError) as error:
            # The brokers may be away for ever: a person must be able to abandon what waits for them.
            said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            say_not_noted(f"Kafka topic {self.commits_topic}", self.commit, f"{said.rstrip('.')}.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"connection": self.connection.model_dump()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SendToKafkaStep:
        """Parse the result of `to_json`."""
        commit = TableCommit.from_json(fields["commit"])
        # Not checked again: a later version may refuse what an earlier one stored.
        connection = KafkaConnection.model_construct(**fields["connection"])
        return cls(**{**fields, "commit": commit, "connection": connection})

    def describe(self) -> str:
        return f"send {sum(file.rows for file in self.commit.files):,} message(s) to Kafka topic {self.topic}"

    @property
    def _name(self) -> str:
        """Name of the dataset's branch: key in the commits topic, and transactional id."""
        return f"gobblin/{self.commit.job}/{quote(self.commit.dataset_urn, safe='')}/{self.commit.branch}/{self.topic}"

    @property
    def _abandoned_name(self) -> str:
        """Key in the commits topic that is there once this commit was abandoned."""
        return f"{self._name}/{self.commit.commit_id}"

    def _send(self, producer: Any, storage: Storage) -> None:
        context = ConstructContext(self.commit.job, "", self.commit.dataset_urn, self.commit.branch)
        as_json = JsonRows("publisher 'kafka_topic'", context)
        headers = [("gobblin-commit-id", self.commit.commit_id.encode())]
        try:
            sent = 0
            for batch in batches_of(self.commit.paths, BATCH_ROWS):
                for key, value in zip(self._keys(batch), as_json.texts(batch).to_pylist(), strict=True):
                    if not _produce(producer, self.topic, key, value, headers):
                        raise self._too_large(sent, value)
                    sent += 1
        except FileNotFoundError as error:
            # Not undone automatically: whether readers saw an earlier attempt must be decided by a person.
            problem = f"staged file {error.filename} is gone, and topic {self.commits_topic} does not name the commit"
            raise StepRefusedError(step=self.describe(), problem=problem) from error
        except ConvertError as error:
            raise StepRefusedError(step=self.describe(), problem=error.problem) from error
        # The note comes last: what stands between it and its commit is hidden from all readers of the commits topic.
        _wait_until_sent(producer, self.connection.timeout_s)
        note = [(TOPIC_ID, (_topic_id(self.connection, self.topic) or "").encode())]
        _produce(producer, self.commits_topic, self._name, self.commit.commit_id, note)

    def _too_large(self, sent: int, value: str) -> StepRefusedError:
        """Return the error for the message after those that were sent; it would come again with each try."""
        return StepRefusedError(
            step=self.describe(),
            problem=f"message {sent + 1:,} has {len(value.encode()):,} bytes, more than the producer sends. Give the "
            "publisher `config: {message.max.bytes: ...}`, and the topic as much in its `max.message.bytes`; then "
            "abandon this commit, and its rows are read again",
        )

    def _keys(self, batch: pa.RecordBatch) -> list[str | bytes | None]:
        if self.key is None:
            return [None] * batch.num_rows
        if self.key not in batch.schema.names:
            problem = f"there is no key column {self.key!r}; found: {', '.join(batch.schema.names)}"
            raise StepRefusedError(step=self.describe(), problem=problem)
        column = decoded(batch[self.key])
        try:
            if column.type == pa.time64("ns"):  # Python's times have microseconds: two keys would become one
                column = exact_cast(column, pa.time64("us"))
            values = column.to_pylist()
        except (ValueError, OverflowError) as error:
            problem = f"key column {self.key!r} ({column.type}): {error}; convert it to text"
            raise StepRefusedError(step=self.describe(), problem=problem) from error
        # Bytes are used as keys unchanged.
        return [value if value is None or isinstance(value, bytes) else str(value) for value in values]

    def _notes(self) -> dict[str, CommitNote]:
        return commit_notes(self.connection, self.commits_topic, {self._name, self._abandoned_name}.__contains__)

    def _is_noted(self, notes: Mapping[str, CommitNote]) -> bool:
        """Return whether the last commit of the dataset's branch is this one."""
        return self._name in notes and notes[self._name].commit.commit_id == self.commit.commit_id

    def _require_topic(self, producer: Any) -> None:
        """Raise KafkaException if the topic is not there, also if the broker does not make it now that it is asked for.

        Messages to a topic that is not there wait for minutes, and what fails then is the transaction.
        """
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # as in `_errors`

        deadline = time.monotonic() + self.connection.timeout_s
        while (
            error := producer.list_topics(self.topic, self.connection.timeout_s).topics[self.topic].error
        ) is not None:
            if time.monotonic() > deadline:
                raise KafkaException(error)
            producer.poll(0.2)

    def _make_commits_topic(self) -> None:
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # as in `_errors`
            from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # as in `_errors`
            from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415  # as in `_errors`

        admin = new_client(AdminClient, self.connection, {})
        # List all topics: asked for a single one, a broker may create it without compaction.
        if self.commits_topic in admin.list_topics(timeout=self.connection.timeout_s).topics:
            return
        topic = NewTopic(self.commits_topic, 1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([topic])[self.commits_topic].result(self.connection.timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _errors(self) -> AbstractContextManager[None]:
        return _errors(self.topic, self.commits_topic, self.commit.dataset_urn)


@contextmanager
def _errors(topic: str, commits_topic: str, dataset_urn: str | None = None) -> Iterator[None]:
    """Raise the client's errors as StorageError."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # optional package

    try:
        yield
    except KafkaException as error:
        problem = error.args[0].str().rstrip(".")
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            problem += (
                ": the topic takes no message, and no batch of messages, above its `max.message.bytes`. Raise it, and "
                "the next run finishes the commit. If only batches are too large: give the publisher `config: "
                "{batch.size: ...}` below it and abandon this commit (`gobblin commit abandon`), so that its rows are "
                "read again"
            )
        if is_forbidden(error.args[0]):
            problem += (
                ": the login needs the permissions to describe and write the topic; to describe, read and write topic "
                f"{commits_topic}, and to create it if it is not there; and to describe and write transactional ids "
                "that begin with `gobblin/`"
            )
        raise StorageError(
            operation="publish to Kafka topic", path=topic, problem=problem, dataset_urn=dataset_urn
        ) from error


def _topic_id(connection: KafkaConnection, topic: str) -> str | None:
    """Return the id of a topic, empty if the brokers have none; None if it is not there. Raises KafkaException."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaException  # noqa: PLC0415  # as in `_errors`

    ids, faults = topic_ids(connection, [topic])
    if topic in faults and not is_absent(faults[topic]):
        raise KafkaException(faults[topic])
    return ids.get(topic)


def _produce(producer: Any, topic: str, key: str | bytes | None, value: str, headers: Any) -> bool:
    """Send a message; False if the producer does not send messages of its size."""
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # as in `_errors`

    while True:
        try:
            producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return False
            if error.args[0].code() == KafkaError._STATE:
                producer.commit_transaction()  # the transaction has failed, and this raises the reason
            raise
        else:
            return True


def _wait_until_sent(producer: Any, timeout_s: float) -> None:
    """Wait until all messages are with the brokers, or have failed, however long that takes.

    Raises:
        KafkaException: no message was delivered for so many seconds.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  # as in `_errors`

    waiting = len(producer)
    while left := producer.flush(timeout_s):
        if left >= waiting:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        waiting = left


def commit_all(producer: Any, timeout_s: float) -> None:
    """Commit the transaction when all its messages are with the brokers, however long that takes.

    Raises:
        KafkaException: no message was delivered for so many seconds, or the transaction cannot be committed.
    """
    with optional_package("confluent_kafka"):
        from confluent_kafka import KafkaException  # noqa: PLC0415  # as in `_errors`

    while True:
        waiting = len(producer)
        try:
            producer.commit_transaction(timeout_s)
        except KafkaException as error:
            if not error.args[0].retriable() or len(producer) >= waiting:
                raise
        else:
            return
