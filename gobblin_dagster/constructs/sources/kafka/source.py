"""KafkaSource: read topics of a Kafka cluster in ranges of offsets.

One dataset per topic, or one for a group of topics.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from gobblin_dagster.constructs.clients.kafka import (
    KafkaConnection,
    is_absent,
    is_forbidden,
    is_passing,
    is_refusal,
    new_client,
    telling,
    topic_ids,
    topic_place,
)
from gobblin_dagster.constructs.options.regexes import Regex
from gobblin_dagster.constructs.sources.kafka.extractor import KafkaExtractor, KafkaReading, declared_schema
from gobblin_dagster.constructs.sources.kafka.marks import find_cuts
from gobblin_dagster.constructs.sources.kafka.offsets import (
    Bootstrap,
    OffsetRules,
    OutOfRange,
    PartitionOffsets,
    component,
    mark_to_compare,
    plan_offsets,
    rewritten_problem,
    topics_of,
    vanished,
)
from gobblin_dagster.constructs.sources.work_units import state_problem
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SourceError, StartpointError
from gobblin_dagster.core.same_place import is_same_place
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.watermark import CompositeWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

_NAME = r"[a-zA-Z0-9._-]+"
"""Names of topics that brokers accept."""
_LONGEST_S = 300
"""Longest time that the library waits for one answer; it refuses a longer one."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEADER_WAIT_S = 5.0
"""Seconds to keep asking for partitions without a leader: a cluster needs moments to elect one after a restart."""
_ASK_AGAIN_S = 0.2
_LOGIN_WAIT_S = 2.0
"""Seconds after which to check whether a login failed; the library alone retries until its timeout."""


class KafkaOptions(KafkaConnection, KafkaReading):
    """Options of the source `kafka`."""

    topics: tuple[Regex, ...] = Field(default=(".*",), min_length=1)
    """Regular expressions; a topic is read if one matches its whole name. Kafka's own topics (`__...`) are never read.
    Source: `topic.whitelist`."""
    exclude: tuple[Regex, ...] = ()
    """Regular expressions of topics that are not read, even if `topics` matches them. Source: `topic.blacklist`."""
    group: str | None = Field(default=None, min_length=1)
    """The urn of a single dataset with all topics; default: one dataset per topic, with the topic's name.
    Source: `gobblin.kafka.shouldEnableDatasetStateStore`, which chooses between these two."""
    bootstrap: Bootstrap = "latest"
    """Where to begin in a topic without a watermark: `latest`, `earliest`, `lookback`, or `skip` (do not read it). A
    new partition of a known topic is read from its beginning. Source: `bootstrap.with.offset`."""
    lookback: int | None = Field(default=None, ge=1)
    """Number of offsets before the end at which `bootstrap: lookback` begins. Source: `kafka.offset.lookback`."""
    on_out_of_range: OutOfRange = "nearest"
    """Where to continue if the broker no longer has the next offset: `nearest`, `earliest`, `latest`, or `skip` (read
    nothing). If the log was cut and written again, `nearest` is where it was cut; a partition of which nobody knows
    that is not read. Source: `reset.on.offset.out.of.range`."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """`read_committed`: leave out messages of aborted transactions, and stop before open ones; `read_uncommitted`: read
    all."""
    offsets_per_work_unit: int = Field(default=5_000_000, ge=1)
    """Most offsets of one work unit."""

    overridden: ClassVar[Mapping[str, str]] = {
        "bootstrap.servers": "set `brokers`",
        "metadata.broker.list": "set `brokers`",
        "isolation.level": "set `isolation`",
        "auto.offset.reset": "set `bootstrap` and `on_out_of_range`",
        "socket.timeout.ms": "set `timeout_s`",
        **dict.fromkeys(
            ("enable.auto.commit", "auto.commit.enable"), "the state store holds the progress, not a consumer group"
        ),
        "group.id": "it is `gobblin-<job>`, and no offset is committed to it",
        "enable.partition.eof": "the source needs it",
        "fetch.wait.max.ms": "it is 100",
    }

    @model_validator(mode="after")
    def _lookback_where_needed(self) -> Self:
        if (self.bootstrap == "lookback") != (self.lookback is not None):
            raise ValueError("`bootstrap: lookback` and `lookback: <offsets>` belong together")
        return self

    def takes(self, topic: str) -> bool:
        """Return True if the topic is read."""
        if topic.startswith("__") or any(re.fullmatch(pattern, topic) for pattern in self.exclude):
            return False
        return any(re.fullmatch(pattern, topic) for pattern in self.topics)

    def named(self, found: Collection[str]) -> set[str]:
        """Return the entries of `topics` that are names of topics, as far as one can tell, and match none of these."""
        return {
            one
            for one in self.topics
            if re.fullmatch(_NAME, one) and self.takes(one) and not any(re.fullmatch(one, topic) for topic in found)
        }


class KafkaSource:
    """Find topics, and plan the offsets of their partitions that are not committed.

    The watermark is composite: one offset per partition. The end of each partition is queried once, when planning, and
    bounds the reading. The audit does not count rows again, because retention and compaction remove messages from the
    log.

    Source: gobblin-kafka-common `KafkaSource`. Differs: ranges of failed work units are read again alone; the plan
    reports what retention or a policy removed.
    """

    packages = ("confluent_kafka",)
    identity = ("brokers",)
    Options = KafkaOptions

    def __init__(self, options: KafkaOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._told: list[Any] = []
        self._rules = OffsetRules(
            options.bootstrap, options.lookback or 0, options.on_out_of_range, options.offsets_per_work_unit
        )

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

        try:
            admin = self._admin()
            datasets, problems, absent = self._topics(admin, context)
            offsets = self._bounds(admin, [one for partitions in datasets.values() for one in partitions])
            offsets = self._compared(datasets, offsets, context.states)
        except KafkaException as error:
            raise self._unreachable(error) from error
        known = {urn for urn in context.states if context.is_selected(urn)}
        for urn in sorted({*datasets, *problems, *absent, *known}):
            faults = problems.get(urn, []) + [str(o) for p in datasets.get(urn, ()) if isinstance(o := offsets[p], str)]
            state = context.states.get(urn)
            problem = " ".join(dict.fromkeys(faults)) or state_problem(state, CompositeWatermark, "kafka")
            if problem:
                yield DatasetOffer(urn, None, None, problem=problem)
            else:
                partitions = [o for p in datasets.get(urn, ()) if not isinstance(o := offsets[p], str)]
                yield self._offer(urn, partitions, state, absent.get(urn, ()))

    def would_read(self, path: str) -> bool:
        topic = path.rpartition("/")[2]
        return is_same_place(topic_place(self._options.brokers, topic), path) and self._options.takes(topic)

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

        try:
            admin = self._admin()
            topics = {*datasets} if self._options.group is None else {*filter(self._options.takes, self._listed(admin))}
            ids, _ = topic_ids(self._options, topics, admin)
        except KafkaException as error:
            raise self._unreachable(error) from error
        found = [topic for topic in sorted(topics) if ids.get(topic)]
        return {urn: [ids[topic] for topic in found if self._urn(topic) == urn] for urn in datasets}

    def named_datasets(self) -> Sequence[str]:
        return ()

    def declared_schema(self) -> pa.Schema | None:
        """Return the columns of all messages; None if only a schema registry knows them."""
        return declared_schema(self._options, self._context)

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark:
        found, there, times = self._there(dataset_urn, position, context)
        state = context.states.get(dataset_urn)
        try:
            offsets = _offsets_of(position, there, times)
            _require_all_named(offsets, there, state)
            return CompositeWatermark(vanished(found, state) | offsets)
        except ValueError as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error

    def resolve_partition_startpoint(
        self,
        dataset_urn: str,
        partition: str,
        position: Watermark | Timestamp | Oldest | Upcoming,
        context: SourceContext,
    ) -> Watermark | None:
        found, there, times = self._there(dataset_urn, position, context)
        mine = {name: one for name, one in there.items() if one.name == partition}
        if not mine:
            return None
        if isinstance(position, Watermark):
            (offset,) = position.components().values()
            position = CompositeWatermark(dict.fromkeys(mine, int(str(offset))))
        state = context.states.get(dataset_urn)
        try:
            offsets = _offsets_of(position, mine, times)
            _require_all_named(offsets, there, state, vanished(found, state))
            return CompositeWatermark(offsets)
        except ValueError as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error

    def _there(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> tuple[list[PartitionOffsets], dict[str, PartitionOffsets], dict[tuple[str, int], int]]:
        """Return the partitions of a dataset, also by component, and their offsets at the instant of a position.

        Raises:
            StartpointError: the dataset has no topic now, or a partition cannot be asked.
        """
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

        alone = replace(context, is_selected=lambda urn: urn == dataset_urn)
        try:
            admin = self._admin()
            datasets, problems, _ = self._topics(admin, alone)
            wanted = datasets.get(dataset_urn, [])
            bounds = self._bounds(admin, wanted)
            times = self._offsets_at(admin, wanted, position.instant) if isinstance(position, Timestamp) else {}
        except KafkaException as error:
            raise self._unreachable(error) from error
        faults = [*problems.get(dataset_urn, ()), *(one for one in bounds.values() if isinstance(one, str))]
        state = context.states.get(dataset_urn)
        found = [one for one in bounds.values() if not isinstance(one, str)]
        there = {component(one, state): one for one in found}
        if faults or not there:
            problem = " ".join(dict.fromkeys(faults)).rstrip(".") or "the cluster has no such topic"
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=problem)
        return found, there, times

    def _offsets_at(
        self, admin: Any, partitions: Sequence[tuple[str, int]], instant: datetime
    ) -> dict[tuple[str, int], int]:
        """Return the first offsets at or after an instant; -1 if a partition has none."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import TopicPartition  # noqa: PLC0415  # optional package
            from confluent_kafka import admin as library  # noqa: PLC0415  # optional package

        asked = {one: TopicPartition(*one) for one in partitions}
        spec: Any = library.OffsetSpec  # type: ignore[attr-defined]  # public, though not in its `__all__`
        # Messages have whole milliseconds. Brokers take -1 for the end, and other negative numbers for other places.
        at = spec.for_timestamp(max(-((_EPOCH - instant) // timedelta(milliseconds=1)), 0))
        answer = admin.list_offsets(dict.fromkeys(asked.values(), at), request_timeout=self._options.timeout_s)
        return {one: answer[key].result().offset for one, key in asked.items()}

    def extractor(self, unit: WorkUnit) -> Extractor:
        return KafkaExtractor(unit, self._options, self._options, self._options.isolation, self._context)

    def tells_positions(self) -> bool:
        """Return True: messages of a partition come in order of their offsets."""
        return True

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> None:
        """Return None: retention and compaction remove messages."""

    def _offer(
        self, urn: str, partitions: Sequence[PartitionOffsets], state: DatasetState | None, absent: Sequence[str]
    ) -> DatasetOffer:
        plan = plan_offsets(urn, partitions, state, self._rules)
        low = CompositeWatermark(plan.low) if plan.low else state.watermark if state is not None else None
        notes = plan.notes
        if partitions or state is None:
            notes += [f"`topics` names {topic}, and the cluster has no such topic now." for topic in absent]
        if not partitions and state is not None:
            notes.append(
                f"all of its topics are gone, or the job no longer reads them; it is committed up to {state.watermark}."
            )
        if not plan.work_units:
            return DatasetOffer(urn, low, low, notes=notes, origin=plan.origin, is_absent=not partitions)
        return DatasetOffer(urn, low, CompositeWatermark(plan.high), plan.work_units, notes=notes, origin=plan.origin)

    def _admin(self) -> Any:
        answer_s = min(max(self._options.timeout_s, 0.01), _LONGEST_S)
        own = {"socket.timeout.ms": int(answer_s * 1000), "error_cb": self._told.append}
        with optional_package("confluent_kafka"):
            from confluent_kafka.admin import AdminClient  # noqa: PLC0415  # optional package

        return new_client(AdminClient, self._options, own)

    def _topics(
        self, admin: Any, context: SourceContext
    ) -> tuple[dict[str, list[tuple[str, int]]], dict[str, list[str]], dict[str, list[str]]]:
        """Return the partitions of selected datasets, the problems of topics, and named topics that are not there.

        All of them by urn.
        """
        listed = self._listed(admin)
        datasets: dict[str, list[tuple[str, int]]] = {}
        problems: dict[str, list[str]] = {}
        found = sorted(name for name in listed if self._options.takes(name))
        for name in found:
            urn = self._urn(name)
            if not context.is_selected(urn):
                continue
            if listed[name].error is not None:
                problems.setdefault(urn, []).append(_topic_fault(name, listed[name].error))
            else:
                datasets.setdefault(urn, []).extend((name, number) for number in sorted(listed[name].partitions))
        absent: dict[str, list[str]] = {}
        named = self._options.named(found)
        for topic, error in self._unseen(admin, found, named, context).items():
            if not is_absent(error):
                problems.setdefault(self._urn(topic), []).append(_topic_fault(topic, error))
            elif topic in named:
                absent.setdefault(self._urn(topic), []).append(topic)
        if not found and not context.states and not problems:
            names = sorted(name for name in listed if not name.startswith("__"))
            there = f"{len(names)} other topic(s), e.g. {', '.join(names[:5])}" if names else "no topic"
            raise self._error(
                f"no topic matches {', '.join(self._options.topics)}; {self._options.brokers} shows {there}.",
                "Brokers show only topics that the login has the permission to describe.",
            )
        return datasets, problems, absent

    def _urn(self, topic: str) -> str:
        return topic if self._options.group is None else self._options.group

    def _unseen(
        self, admin: Any, found: Collection[str], named: Collection[str], context: SourceContext
    ) -> dict[str, Any]:
        """Return, by topic, the brokers' errors for topics that they do not list: the job names them, or has read them.

        Brokers leave topics out of their list that the login may not describe; asked by name, they say so.
        """
        known = (topic for state in context.states.values() for topic in topics_of(state))
        wanted = {*named, *filter(self._options.takes, known)}.difference(found)
        _, faults = topic_ids(self._options, [one for one in wanted if context.is_selected(self._urn(one))], admin)
        return faults

    def _listed(self, admin: Any) -> Any:
        """Return all topics by name; raises KafkaException, without retries if the brokers refuse our login."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import KafkaException  # noqa: PLC0415  # optional package

        first = min(_LOGIN_WAIT_S, self._options.timeout_s)
        try:
            return admin.list_topics(timeout=first).topics
        except KafkaException:
            admin.poll(0)
            if first == self._options.timeout_s or any(map(is_refusal, self._told)):
                raise
        try:
            return admin.list_topics(timeout=self._options.timeout_s - first).topics
        finally:
            admin.poll(0)

    def _bounds(
        self, admin: Any, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], PartitionOffsets | str]:
        """Return the offsets of partitions, with the ids of their topics; for a partition without them, the problem."""
        if not partitions:
            return {}
        # Ids first: if a topic is created again in between, the offsets must not be stored under the new id.
        ids, faults = topic_ids(self._options, [topic for topic, _ in partitions], admin)
        known = [one for one in partitions if one[0] in ids]
        found = self._offsets(admin, known) if known else {}
        return {one: _topic_fault(one[0], faults[one[0]]) for one in partitions if one[0] in faults} | {
            one: offsets if isinstance(offsets, str) else replace(offsets, topic_id=ids[one[0]])
            for one, offsets in found.items()
        }

    def _offsets(
        self, admin: Any, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], PartitionOffsets | str]:
        """Return the offsets of partitions; for one that has no leader after `_LEADER_WAIT_S`, the problem."""
        deadline = time.monotonic() + min(self._options.timeout_s, _LEADER_WAIT_S)
        found = self._asked(admin, partitions)
        while waiting := [
            one for one, fault in found.items() if not isinstance(fault, PartitionOffsets) and is_passing(fault)
        ]:
            if time.monotonic() > deadline:
                break
            time.sleep(_ASK_AGAIN_S)
            found |= self._asked(admin, waiting)
        return {
            one: offsets if isinstance(offsets, PartitionOffsets) else f"partition {one[0]}-{one[1]}: {offsets.str()}."
            for one, offsets in found.items()
        }

    def _compared(
        self,
        datasets: Mapping[str, Sequence[tuple[str, int]]],
        offsets: Mapping[tuple[str, int], PartitionOffsets | str],
        states: Mapping[str, DatasetState],
    ) -> dict[tuple[str, int], PartitionOffsets | str]:
        """Return the offsets with the logs told that were cut below what was read; a problem for those not to be read.

        The last message read is read again, of partitions that have new ones.
        """
        urns = {one: urn for urn, partitions in datasets.items() for one in partitions}
        marks = {
            one: mark
            for one, bounds in offsets.items()
            if not isinstance(bounds, str) and (mark := mark_to_compare(bounds, states.get(urns[one]))) is not None
        }
        cuts, faults = find_cuts(self._options, self._context.job, marks)
        found = dict(offsets)
        for one, bounds in offsets.items():
            if isinstance(bounds, str) or (cut := cuts.get(one)) is None:
                continue
            if not bounds.topic_id:
                # The topic may be another one: then the offset is only the end of its first epoch, and no message below
                # it was read.
                cut = replace(cut, offset=None)
            if self._rules.out_of_range == "nearest" and cut.offset is None:
                found[one] = rewritten_problem(urns[one], bounds, states[urns[one]], cut.how)
            else:
                found[one] = replace(bounds, cut=cut)
        for one, why in faults.items():
            found[one] = (
                f"partition {one[0]}-{one[1]}: the last message read of it, offset {marks[one].position}, could not be "
                f"compared: {why}."
            )
        return found

    def _asked(
        self, admin: Any, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], PartitionOffsets | Any]:
        """Ask once for the offsets of partitions; for one without an answer, return the library's error."""
        with optional_package("confluent_kafka"):
            from confluent_kafka import IsolationLevel, KafkaException, TopicPartition  # noqa: PLC0415  # optional
            from confluent_kafka import admin as library  # noqa: PLC0415  # optional package

        asked = {one: TopicPartition(*one) for one in partitions}

        def ask(spec: Any, isolation: str) -> Any:
            level = IsolationLevel[isolation.upper()]
            request = dict.fromkeys(asked.values(), spec)
            return admin.list_offsets(request, isolation_level=level, request_timeout=self._options.timeout_s)

        spec: Any = library.OffsetSpec  # type: ignore[attr-defined]  # public, though not in its `__all__`
        earliest = ask(spec.earliest(), "read_uncommitted")
        log_ends = ask(spec.latest(), "read_uncommitted")
        wait(log_ends.values())
        # Asked last: an end before the end of the log is then due to an open transaction, not to newer messages.
        ends = ask(spec.latest(), self._options.isolation)
        found: dict[tuple[str, int], PartitionOffsets | Any] = {}
        for one, key in asked.items():
            try:
                first, end, log_end = (answer[key].result().offset for answer in (earliest, ends, log_ends))
                found[one] = PartitionOffsets(*one, first, end, max(end, log_end))
            except KafkaException as error:
                found[one] = error.args[0]
        return found

    def _unreachable(self, error: Any) -> SourceError:
        said = [one.rstrip(".") for one in (error.args[0].str(), telling(self._told)) if one]
        problem = f"the brokers {self._options.brokers} cannot be asked: {'; '.join(said)}."
        asks = "is a login or encryption asked for: `security.protocol`?"
        return self._error(problem, f"Check `brokers`, `config` ({asks}) and whether the cluster runs.")

    def _error(self, problem: str, hint: str = "") -> SourceError:
        return SourceError(job=self._context.job, problem=problem, hint=hint)


def _topic_fault(topic: str, error: Any) -> str:
    """Return why a topic cannot be asked for its partitions; the library's error is a KafkaError."""
    right = (
        ": the login needs the permissions to describe and to read it. Brokers say so of topics that are not there, "
        "too; leave out of `topics`, or `exclude`, what is not to be read"
    )
    return f"topic {topic}: {error.str().rstrip('.')}{right if is_forbidden(error) else ''}."


def _offsets_of(
    position: Watermark | Timestamp | Oldest | Upcoming,
    there: Mapping[str, PartitionOffsets],
    times: Mapping[tuple[str, int], int],
) -> dict[str, int]:
    """Return offsets by component; raises ValueError if a partition has no such offset."""
    match position:
        case Oldest():
            return {name: one.earliest for name, one in there.items()}
        case Upcoming():
            return {name: one.end for name, one in there.items()}
        case Timestamp():
            found = {name: times[one.topic, one.partition] for name, one in there.items()}
            return {name: offset if offset >= 0 else there[name].end for name, offset in found.items()}
        case _:
            return {name: _checked(name, int(str(value)), there) for name, value in position.components().items()}


def _require_all_named(
    named: Collection[str],
    there: Mapping[str, PartitionOffsets],
    state: DatasetState | None,
    gone: Collection[str] = (),
) -> None:
    """Raise ValueError if a startpoint leaves out partitions of a topic that was created again since the last commit.

    The ids of topics are forgotten under a startpoint, so these would be read from their offsets in the former topic.
    """
    anew = {
        name
        for name, one in there.items()
        if state is not None and state.is_other(one.topic, one.topic_id) and "@" in name
    }
    if left := sorted({*anew, *gone} - {*named}):
        raise ValueError(
            f"a topic was created again since the last commit, and {', '.join(left)} would go on at offsets of the "
            "former one: name all its partitions in one position, without a partition of its own"
        )


def _checked(name: str, offset: int, there: Mapping[str, PartitionOffsets]) -> int:
    if name not in there:
        raise ValueError(f"there is no partition {name!r}, only {', '.join(sorted(there))}")
    one = there[name]
    if not one.earliest <= offset <= one.log_end:
        raise ValueError(f"{name} has the offsets {one.earliest} to {one.log_end}, and {offset} is not among them")
    return offset
