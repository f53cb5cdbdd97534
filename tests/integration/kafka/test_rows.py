"""Messages on a real broker become rows: keys, metadata, decoding, topics and groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError, InvalidSpecError, SourceError
from gobblin_dagster.core.run_record import DatasetOutcome
from tests.integration.kafka.conftest import KafkaJob
from tests.services.json_api import Asked, Reply, running_api
from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.kafka
NewJob = Callable[..., KafkaJob]


def test_all_parts_of_a_message_become_columns(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(
        topic_config={"retention.ms": "-1"},  # the timestamps below are old
        key={"type": "string"},
        value={"type": "string"},
        metadata=["topic", "partition", "offset", "timestamp", "headers", "raw"],
    )
    producer = broker.producer()
    producer.produce(job.topic, b"v", b"k", timestamp=1767225600123, headers=[("a", b"1"), ("a", None)])
    producer.produce(job.topic, None, None, timestamp=1767225600124)
    producer.flush()
    job.run()
    at = datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    full, empty = job.table().to_pylist()
    place = {"topic": job.topic, "partition": 0}
    assert full == {"key": "k", "value": "v", **place, "offset": 0, "timestamp": at, "headers": headers, "raw": b"v"}
    at = at.replace(microsecond=124000)
    assert empty == {"key": None, "value": None, **place, "offset": 1, "timestamp": at, "headers": [], "raw": None}


def test_json_fields_are_columns_and_a_clash_of_names_is_told(new_job: NewJob, broker: KafkaBroker) -> None:
    value = {"type": "json", "columns": {"id": "int64", "offset": "string"}}
    job = new_job(value=value, key=None)
    producer = broker.producer()
    producer.produce(job.topic, b'{"id": 1, "offset": "mine"}')
    producer.flush()
    (failed,) = job.run().datasets
    assert "column(s) offset would exist twice" in failed.failures[0].message
    job.options["metadata_prefix"] = "kafka_"
    job.run()
    assert job.table().column_names == ["id", "offset", "kafka_partition", "kafka_offset", "kafka_timestamp"]


def test_fields_that_no_column_is_declared_for_are_named_once(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(value={"type": "json", "columns": {"id": "int64"}}, on_undecodable="null")
    producer = broker.producer()
    for value in (b"no JSON", None, b'{"id": 1, "name": "x"}', b'{"id": 2, "name": "y", "at": 3}'):
        producer.produce(job.topic, value)
    producer.flush()
    (dataset,) = job.run().datasets
    assert dataset.notes == ("field(s) of the value that `columns` does not declare were left out: 'at', 'name'.",)


@pytest.mark.parametrize("null", ["null", None])  # as YAML reads it with quotes, and without
def test_undecodable_message_fails_with_its_offset_or_passes_as_an_empty_row(
    new_job: NewJob, broker: KafkaBroker, null: str | None
) -> None:
    job = new_job()
    job.send(range(5))
    producer = broker.producer()
    producer.produce(job.topic, b"no json")
    producer.flush()
    job.send(range(6, 9))
    (failed,) = job.run().datasets
    assert failed.outcome is DatasetOutcome.FAILED
    assert f"{job.topic}-0, row 5: the value is no JSON object" in failed.failures[0].message
    job.options["on_undecodable"] = null
    job.parts = {"row_policies": [{"name": "decoded", "type": "not_null", "columns": ["id"]}]}
    (passed,) = job.run().datasets
    assert passed.outcome is DatasetOutcome.COMMITTED
    assert passed.rows_quarantined == 1
    assert sorted(passed.rows_by_branch.items()) == [("main", 8)]


def test_topics_are_chosen_by_whole_name_and_excluding_wins(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job()
    for name in ("choose.a", "choose.ab", "choose.b", "xchoose.a"):
        broker.new_topic(name)
        job.send(range(2), topic=name)
    job.options |= {"topics": ["choose\\..*"], "exclude": [".*b"]}
    assert [dataset.dataset_urn for dataset in job.run().datasets] == ["choose.a"]
    job.options |= {"exclude": ["choose\\.b"]}
    assert [dataset.dataset_urn for dataset in job.run().datasets] == ["choose.a", "choose.ab"]
    assert [dataset.outcome for dataset in job.run().datasets] == [DatasetOutcome.IDLE] * 2


def test_group_makes_one_dataset_of_many_topics(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(metadata=["topic"])
    for name in ("group.a", "group.b"):
        broker.new_topic(name, 2)
        job.send(range(2), topic=name, partition=1)
    job.options |= {"topics": ["group\\..*"], "group": "all of it"}
    (dataset,) = job.run().datasets
    assert dataset.dataset_urn == "all of it"
    assert sorted(zip(*job.table("all of it").select(["topic", "id"]).to_pydict().values(), strict=True)) == [
        ("group.a", 0),
        ("group.a", 1),
        ("group.b", 0),
        ("group.b", 1),
    ]


def test_large_messages_are_taken_few_at_a_time(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(value={"type": "bytes"}, key=None)
    job.parts = {"execution": {"block_bytes": 1 << 17}}
    producer = broker.producer()
    for _ in range(600):
        producer.produce(job.topic, b"x" * 20_000)
    producer.flush()
    (dataset,) = job.run().datasets
    assert dataset.rows_read == 600
    assert {len(value) for value in job.table()["value"].to_pylist()} == {20_000}


def test_avro_messages_follow_their_schemas_in_the_registry(new_job: NewJob, broker: KafkaBroker) -> None:
    old = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
    new: dict[str, Any] = {**old, "fields": [*old["fields"], {"name": "name", "type": "string", "default": "nobody"}]}
    with schema_registry({1: old, 2: new}) as (url, asked):
        job = new_job(value={"type": "avro", "registry": url})
        asked["newest"] = f"{job.topic}-value"
        producer = broker.producer()
        for number, (schema_id, schema) in enumerate([(1, old), (2, new), (1, old)]):
            text = BytesIO()
            fastavro.schemaless_writer(text, fastavro.parse_schema(schema), {"id": number, "name": "ann"})
            producer.produce(job.topic, b"\x00" + schema_id.to_bytes(4, "big") + text.getvalue())
        producer.flush()
        job.run()
    rows = job.table().select(["id", "name"]).to_pylist()
    assert rows == [{"id": 0, "name": "nobody"}, {"id": 1, "name": "ann"}, {"id": 2, "name": "nobody"}]
    assert asked["paths"].count("/schemas/ids/1") == 1


def test_message_of_a_schema_that_the_registry_does_not_know_is_one_that_does_not_decode(
    new_job: NewJob, broker: KafkaBroker, tmp_path: Path
) -> None:
    schema = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "user.avsc").write_text(json.dumps(schema))
    with schema_registry({1: schema}) as (url, asked):
        job = new_job(value={"type": "avro", "registry": url, "schema_file": "user.avsc"})
        producer = broker.producer()
        for number, schema_id in enumerate([1, 77, 1, 77]):
            text = BytesIO()
            fastavro.schemaless_writer(text, fastavro.parse_schema(schema), {"id": number})
            producer.produce(job.topic, b"\x00" + schema_id.to_bytes(4, "big") + text.getvalue())
        producer.flush()
        (failed,) = job.run().datasets
        assert f"{job.topic}-0, row 1: the value " in failed.failures[0].message
        assert "the registry has no schema 77, which it names" in failed.failures[0].message
        job.options["on_undecodable"] = "null"
        asked["is_registry"] = False  # a 404 of somebody else
        (failed,) = job.run().datasets
        assert "/schemas/ids/77 answers 404" in failed.failures[0].message
        asked |= {"is_registry": True, "paths": []}
        job.run()
    assert job.table()["id"].to_pylist() == [0, None, 2, None]
    assert asked["paths"].count("/schemas/ids/77") == 1


def test_message_without_a_time_has_none(new_job: NewJob, broker: KafkaBroker) -> None:
    job = new_job(topic_config={"retention.ms": "-1"}, value={"type": "string"}, key=None, metadata=["timestamp"])
    producer = broker.producer()
    for at in (-1, 1767225600123):
        producer.produce(job.topic, b"x", timestamp=at)
    producer.flush()
    job.run()
    times = job.table()["timestamp"].to_pylist()
    assert times == [None, datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)]


def test_registry_that_fails_makes_the_work_unit_fail_as_transient(new_job: NewJob) -> None:
    with schema_registry({}) as (url, asked):
        asked["status"] = 503
        job = new_job(value={"type": "avro", "registry": url})
        job.send(range(1))
        (dataset,) = job.run().datasets
    assert [failure.transient for failure in dataset.failures] == [True]


def test_named_topic_that_is_not_there_is_told_beside_those_that_are(new_job: NewJob) -> None:
    job = new_job()
    job.options["topics"] = [job.topic, "not-yet.there"]
    notes = {one.dataset_urn: list(one.notes) for one in job.plans()}
    said = "`topics` names not-yet.there, and the cluster has no such topic now."
    assert notes == {job.topic: [], "not-yet.there": [said]}


def test_no_matching_topic_is_told_with_what_is_there(new_job: NewJob) -> None:
    job = new_job(topics=["no such topic"])
    with pytest.raises(SourceError, match=r"no topic matches no such topic; .* shows \d+ other topic"):
        job.run()


def test_broker_that_is_away_is_told(new_job: NewJob) -> None:
    job = new_job(brokers="127.0.0.1:9", timeout_s=0.5)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9 cannot be asked.*; .*Connection refused\. Check"):
        job.run()


def test_setting_that_the_library_does_not_know_is_told(new_job: NewJob) -> None:
    job = new_job(config={"no.such.setting": "x"})
    with pytest.raises(EnvironmentFaultError, match=r"no\.such\.setting"):
        job.run()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": ["("]}, "expected a regular expression, got '\\('"),
        ({"topics": []}, "topics"),
        ({"group": ""}, "group"),
        ({"bootstrap": "lookback"}, "belong together"),
        ({"bootstrap": "latest", "lookback": 3}, "belong together"),
        ({"value": {"type": "json"}}, "columns"),
        ({"value": {"type": "xml"}}, "xml"),
        ({"value": {"type": "avro"}}, "`schema_file` or `registry`"),
        ({"on_out_of_range": "somewhere"}, "nearest"),
        ({"config": {"sasl.password": "x"}}, "config_env"),
    ],
)
def test_wrong_options_are_told_before_anything_is_asked(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    job = KafkaJob(tmp_path, KafkaBroker.__new__(KafkaBroker), "t", {"brokers": "b:1", **options})
    job.broker._ports = {"PLAINTEXT": 1}
    with pytest.raises(InvalidSpecError, match=said):
        job.run()


def test_chunk_rows_are_offsets(new_job: NewJob) -> None:
    job = new_job()
    job.send(range(5))
    job.parts = {"row_policies": [{"name": "small", "type": "sql", "rule": "id < 3"}]}
    job.run()
    (bad,) = [file for file in job.files() if file.branch == "quarantine"]
    assert pq.read_table(bad.path)["source_row"].to_pylist() == [3, 4]


@contextmanager
def schema_registry(schemas: dict[int, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Serve schemas by id, the newest for one subject; `status` makes it fail, `paths` lists what was asked."""
    asked: dict[str, Any] = {"paths": [], "newest": "", "status": 200, "is_registry": True}

    def reply(request: Asked) -> Reply:
        asked["paths"].append(request.path)
        by_path = {f"/schemas/ids/{number}": schema for number, schema in schemas.items()}
        by_path[f"/subjects/{asked['newest']}/versions/latest"] = schemas.get(max(schemas, default=0))
        schema = by_path.get(request.path)
        status = asked["status"] if asked["status"] != 200 or schema else 404
        absent = {"error_code": 40403, "message": "Schema not found"} if asked["is_registry"] else {}
        return Reply({"schema": json.dumps(schema)} if schema else absent, status)

    with running_api(reply) as server:
        yield server.url, asked
