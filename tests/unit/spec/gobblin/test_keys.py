"""Each key that is carried, in a job of its kind, and the value that its field has then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.spec.gobblin.keys import KEYS
from tests.unit.spec.gobblin.files import KAFKA, faults, load
from tests.unit.spec.gobblin.test_job import QUERY

FILES = """\
job.name=orders
source.class=org.apache.gobblin.source.DatePartitionedAvroFileSource
extract.namespace=shop
source.filebased.data.directory=/in
data.publisher.final.dir=/lake
"""
TEXT = FILES.replace("DatePartitionedAvroFileSource", "extractor.filebased.TextFileBasedSource")
RECORD = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
SCHEMA = '[{"columnName":"ID","dataType":{"type":"long"}}]'
CSV = "converter.classes=CsvToJsonConverter\nsource.schema=" + SCHEMA + "\nconverter.csv.to.json.delimiter=;\n"
TASK = "qualitychecker.task.policies={}\nqualitychecker.task.policy.types=OPTIONAL\n"
TIMED = "writer.partitioner.class=TimeBasedAvroWriterPartitioner\nwriter.partition.columns=at\n"
FORK2 = "fork.branches=2\n"
LEVEL = {"column": "at", "granularity": "hour", "timezone": "America/Los_Angeles"}
LIMIT = "extract.limit.enabled=true\nextract.limit.type={}\n"

# (key, job, further lines, place, value)
SAMPLES: list[tuple[str, str, str, str, Any]] = [
    ("job.name", KAFKA, "", "job", "orders"),
    ("job.description", KAFKA, "job.description=x y", "description", "x y"),
    ("job.commit.policy", KAFKA, "job.commit.policy=SUCCESSFUL", "commit.policy", "successful"),
    (
        "job.commit.partial.fail.task.fails.job.commit",
        KAFKA,
        "job.commit.partial.fail.task.fails.job.commit=true",
        "commit.failed_units_fail_run",
        True,
    ),
    ("job.commit.parallelize", KAFKA, "job.commit.parallelize=false", "commit.parallelism", 1),
    ("job.commit.parallelCommits", KAFKA, "job.commit.parallelCommits=20", "commit.parallelism", 20),
    ("task.maxretries", KAFKA, "task.maxretries=0", "execution.retries.count", 0),
    ("task.retry.intervalinsec", KAFKA, "task.retry.intervalinsec=300", "execution.retries.backoff_s", 300.0),
    ("workunit.retry.enabled", KAFKA, "workunit.retry.enabled=false", "execution.retry_failed", "never"),
    ("workunit.retry.policy", KAFKA, "workunit.retry.policy=ONFULL", "execution.retry_failed", "onfull"),
    (
        "extract.limit.enabled",
        KAFKA,
        "extract.limit.enabled=false\nextract.limit.type=count",
        "execution.limit.rows",
        None,
    ),
    ("extract.limit.type", KAFKA, LIMIT.format("COUNT") + "extract.limit.count.limit=9", "execution.limit.rows", 9),
    (
        "extract.limit.count.limit",
        KAFKA,
        LIMIT.format("count") + "extract.limit.count.limit=9",
        "execution.limit.rows",
        9,
    ),
    (
        "extract.limit.timeLimit",
        KAFKA,
        LIMIT.format("time") + "extract.limit.timeLimit=9",
        "execution.limit.seconds",
        9.0,
    ),
    (
        "extract.limit.timeLimitTimeunit",
        KAFKA,
        LIMIT.format("time") + "extract.limit.timeLimit=2\nextract.limit.timeLimitTimeunit=MINUTES",
        "execution.limit.seconds",
        120.0,
    ),
    (
        "extract.limit.rateLimit",
        KAFKA,
        LIMIT.format("rate") + "extract.limit.rateLimit=50",
        "execution.limit.rows_per_second",
        50.0,
    ),
    (
        "extract.limit.rateLimitTimeunit",
        KAFKA,
        LIMIT.format("rate") + "extract.limit.rateLimit=120\nextract.limit.rateLimitTimeunit=MINUTES",
        "execution.limit.rows_per_second",
        2.0,
    ),
    ("dataset.urn", KAFKA, "dataset.urn=shop/all", "source.group", "shop/all"),
    (
        "task.skip.error.records",
        KAFKA,
        "converter.classes=TextToStringConverter\ntask.skip.error.records=5",
        "converters.0.max_errors",
        5,
    ),
    ("fs.uri", KAFKA, "fs.uri=hdfs://nn:9000/", "output.path", "hdfs://nn:9000/lake"),
    (
        "gobblin.runtime.delivery.semantics",
        KAFKA,
        "gobblin.runtime.delivery.semantics=AT_LEAST_ONCE",
        "commit.delivery",
        "at_least_once",
    ),
    ("source.class", QUERY, "", "source.type", "query"),
    ("writer.file.path", KAFKA, "writer.file.path=raw/events", "fork.branches.0.path", "raw/events/{dataset}"),
    ("writer.file.pathType", KAFKA, "writer.file.pathType=tablename", "fork.branches.0.path", "{table}/{dataset}"),
    ("writer.file.path.type", KAFKA, "writer.file.path.type=tablename", "fork.branches.0.path", "{table}/{dataset}"),
    ("source.entity", QUERY, "", "source.tables", ["public.orders"]),
    ("source.entity", TEXT, "source.entity=orders", "extract.table", "orders"),
    ("source.entities", QUERY.replace("source.entity", "source.entities"), "", "source.tables", ["public.orders"]),
    (
        "entity.whitelist",
        QUERY,
        "source.entities=a,b\nentity.whitelist=a, p.*",
        "source.tables",
        ["a"],
    ),
    ("entity.blacklist", QUERY, "source.entities=a,b\nentity.blacklist=p.*", "source.tables", ["a", "b"]),
    ("extract.namespace", QUERY, "", "extract.namespace", "shop"),
    ("extract.table.name", QUERY, "extract.table.name=sales", "extract.table", "sales"),
    ("extract.table.type", QUERY, "", "extract.type", "snapshot_append"),
    ("extract.delta.fields", QUERY, "", "source.watermark.column", "changed_at"),
    ("extract.delta.fields", QUERY, "", "extract.delta_fields", ["changed_at"]),
    ("extract.primary.key.fields", QUERY, "", "source.primary_key", ["id"]),
    ("extract.primary.key.fields", QUERY, "", "extract.primary_keys", ["id"]),
    ("extract.is.full", QUERY, "extract.is.full=true", "extract.is_full", True),
    (
        "source.querybased.watermark.type",
        QUERY.replace("watermark.type=timestamp", "watermark.type=simple"),
        "",
        "source.watermark.type",
        "long",
    ),
    (
        "source.querybased.extract.type",
        QUERY,
        "source.querybased.extract.type=APPEND_DAILY",
        "source.partition_interval",
        "1d",
    ),
    (
        "source.querybased.partition.interval",
        QUERY,
        "source.querybased.partition.interval=3",
        "source.partition_interval",
        "3h",
    ),
    ("source.max.number.of.partitions", QUERY, "source.max.number.of.partitions=7", "source.max_partitions", 7),
    (
        "source.querybased.start.value",
        QUERY,
        "source.querybased.start.value=20130101000000",
        "source.start",
        "2013-01-01T00:00:00",
    ),
    (
        "source.querybased.end.value",
        QUERY,
        "source.querybased.end.value=20130101000000\nextract.is.full=true\nsource.querybased.extract.type=APPEND_DAILY",
        "source.end",
        "2013-01-01T00:00:01",
    ),
    (
        "source.querybased.append.max.watermark.limit",
        QUERY,
        "source.querybased.append.max.watermark.limit=CURRENTHOUR-2\nsource.querybased.extract.type=APPEND_HOURLY",
        "source.max_watermark",
        "CURRENTHOUR-2",
    ),
    (
        "source.querybased.low.watermark.backup.secs",
        QUERY,
        "source.querybased.low.watermark.backup.secs=60",
        "source.overlap",
        "60s",
    ),
    ("source.querybased.skip.count.calc", QUERY, "source.querybased.skip.count.calc=true", "source.count_rows", False),
    (
        "source.querybased.query",
        QUERY.replace("source.entity=public.orders\n", ""),
        "source.querybased.query=select * from t",
        "source.query",
        "select * from t",
    ),
    (
        "source.querybased.excluded.columns",
        QUERY,
        "source.querybased.excluded.columns=a,b",
        "source.exclude_columns",
        ["a", "b"],
    ),
    ("source.querybased.fetch.size", QUERY, "source.querybased.fetch.size=500", "source.fetch_rows", 500),
    (
        "source.querybased.jdbc.resultset.fetch.size",
        QUERY,
        "source.querybased.jdbc.resultset.fetch.size=500",
        "source.fetch_rows",
        500,
    ),
    ("source.timezone", QUERY, "source.timezone=Europe/Berlin", "source.timezone", "Europe/Berlin"),
    ("source.timezone", FILES, "source.timezone=Europe/Berlin", "source.timezone", "Europe/Berlin"),
    *[
        (f"source.{name}", QUERY, "", "source.url", "postgresql://reader:word@db.shop:5432/shop")
        for name in ("conn.host", "conn.port", "conn.username", "conn.password", "querybased.schema")
    ],
    ("kafka.brokers", KAFKA, "", "source.brokers", "localhost:9092"),
    ("kafka.deserializer.type", KAFKA, "kafka.deserializer.type=STRING", "source.value", {"type": "string"}),
    (
        "kafka.schema.registry.url",
        KAFKA,
        "kafka.deserializer.type=CONFLUENT_AVRO\nkafka.schema.registry.url=http://localhost:8081",
        "source.value",
        {"type": "avro", "registry": "http://localhost:8081"},
    ),
    ("topic.whitelist", KAFKA, "topic.whitelist=a,b.*", "source.topics", ["a", "b.*"]),
    ("topic.blacklist", KAFKA, "topic.blacklist=a", "source.exclude", ["a"]),
    ("bootstrap.with.offset", KAFKA, "bootstrap.with.offset=EARLIEST", "source.bootstrap", "earliest"),
    (
        "kafka.offset.lookback",
        KAFKA,
        "bootstrap.with.offset=offset_lookback\nkafka.offset.lookback=9",
        "source.lookback",
        9,
    ),
    ("reset.on.offset.out.of.range", KAFKA, "reset.on.offset.out.of.range=skip", "source.on_out_of_range", "skip"),
    (
        "gobblin.kafka.shouldEnableDatasetStateStore",
        KAFKA,
        "gobblin.kafka.shouldEnableDatasetStateStore=false",
        "source.group",
        "orders",
    ),
    ("mr.job.max.mappers", KAFKA, "mr.job.max.mappers=4", "execution.packs", 4),
    ("kafka.workunit.packer.type", KAFKA, "kafka.workunit.packer.type=BI_LEVEL", "execution.packing", "bi_level"),
    ("source.filebased.data.directory", TEXT, "", "source.path", "/in/**/*"),
    (
        "source.filebased.fs.uri",
        TEXT,
        "source.filebased.fs.uri=hdfs://nn:9000/",
        "source.path",
        "hdfs://nn:9000/in/**/*",
    ),
    (
        "date.partitioned.source.partition.pattern",
        FILES,
        "date.partitioned.source.partition.pattern=yyyy-MM-dd",
        "source.path",
        "/in/{date:%Y-%m-%d}/*.avro",
    ),
    (
        "date.partitioned.source.partition.prefix",
        FILES,
        "date.partitioned.source.partition.prefix=hourly",
        "source.path",
        "/in/hourly/{date:%Y/%m/%d/%H}/*.avro",
    ),
    (
        "date.partitioned.source.partition.suffix",
        FILES,
        "date.partitioned.source.partition.suffix=done",
        "source.path",
        "/in/{date:%Y/%m/%d/%H}/done/*.avro",
    ),
    (
        "date.partitioned.source.partition.granularity",
        FILES,
        "date.partitioned.source.partition.granularity=DAY",
        "source.path",
        "/in/{date:%Y/%m/%d}/*.avro",
    ),
    (
        "date.partitioned.source.partition.lead_time.size",
        FILES,
        "date.partitioned.source.partition.lead_time.size=2",
        "source.lead_time",
        "2h",
    ),
    (
        "date.partitioned.source.partition.lead_time.granularity",
        FILES,
        "date.partitioned.source.partition.lead_time.size=2\ndate.partitioned.source.partition.lead_time.granularity=DAY",
        "source.lead_time",
        "2d",
    ),
    (
        "date.partitioned.source.min.watermark.value",
        FILES,
        "date.partitioned.source.min.watermark.value=2013/01/04/23",
        "source.start",
        "2013-01-05",
    ),
    (
        "date.partitioned.source.max.files.per.job",
        FILES,
        "date.partitioned.source.max.files.per.job=9",
        "source.max_files_per_run",
        9,
    ),
    (
        "date.partitioned.source.max.workunits.per.job",
        FILES,
        "date.partitioned.source.max.workunits.per.job=9",
        "execution.max_work_units",
        9,
    ),
    ("source.filebased.maxFilesPerRun", TEXT, "source.filebased.maxFilesPerRun=9", "source.max_files_per_run", 9),
    ("source.schema", TEXT, CSV, "converters.0.columns", ["ID"]),
    (
        "source.schema",
        TEXT,
        f"converter.classes=JsonIntermediateToAvroConverter\nsource.schema={SCHEMA}",
        "converters.0.columns",
        {"ID": "int64"},
    ),
    (
        "source.schema",
        TEXT,
        f"converter.classes=JsonStringToJsonIntermediateConverter\nsource.schema={SCHEMA}",
        "converters.0.columns",
        {"ID": "int64"},
    ),
    (
        "gobblin.converter.schemaInjector.schema",
        TEXT,
        CSV.replace("source.schema", "gobblin.converter.schemaInjector.schema").replace(
            "=Csv", "=StringSchemaInjector,Csv"
        ),
        "converters.0.columns",
        ["ID"],
    ),
    (
        "source.filebased.files.to.pull",
        TEXT.replace("source.filebased.data.directory", "source.filebased.files.to.pull"),
        "",
        "source.path",
        "/in",
    ),
    ("converter.classes", TEXT, CSV, "converters.0.column", "line"),
    ("converter.csv.to.json.delimiter", TEXT, CSV, "converters.0.delimiter", ";"),
    (
        "converter.csv.to.json.enclosedchar",
        TEXT,
        CSV + 'converter.csv.to.json.enclosedchar="',
        "converters.0.quote",
        '"',
    ),
    (
        "converter.sample.ratio",
        KAFKA,
        "converter.classes=SamplingConverter\nconverter.sample.ratio=0.1",
        "converters.0.ratio",
        0.1,
    ),
    *[
        (
            "converter.avro.extractor.field.path",
            KAFKA,
            "converter.classes=AvroFieldRetrieverConverter\nconverter.avro.extractor.field.path=a.b",
            f"converters.0.{option}",
            value,
        )
        for option, value in (("select", '"a"."b" AS "b"'), ("where", '"a"."b" IS NOT NULL'))
    ],
    (
        "<table>.remove.fields",
        KAFKA,
        "extract.table.name=sales\nconverter.classes=AvroProjectionConverter\nsales.remove.fields=a, b",
        "converters.0.columns",
        ["a", "b"],
    ),
    (
        "FlattenNestedKeyConverter.fieldsToFlatten",
        KAFKA,
        "converter.classes=FlattenNestedKeyConverter\nFlattenNestedKeyConverter.fieldsToFlatten=a,a.b",
        "converters.0.select",
        '*, "a"."b" AS "aB"',
    ),
    (
        "gobblin.converter.schemaInjector.schema",
        KAFKA,
        "converter.classes=StringSchemaInjector,BytesToAvroConverter\n"
        f"gobblin.converter.schemaInjector.schema={RECORD}",
        "converters.0.avro_schema",
        {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]},
    ),
    *[
        (
            key,
            KAFKA,
            "converter.classes=AvroFilterConverter\nconverter.filter.field=kind\nconverter.filter.value=x",
            f"converters.0.{option}",
            value,
        )
        for key, option, value in (
            ("converter.filter.field", "column", "kind"),
            ("converter.filter.value", "equals", "x"),
        )
    ],
    (
        "converter.string.filter.pattern",
        KAFKA,
        "converter.classes=StringFilterConverter\nconverter.string.filter.pattern=a.*",
        "converters.0.matches",
        "a.*",
    ),
    (
        "converter.string.splitter.delimiter",
        KAFKA,
        "converter.classes=StringSplitterConverter\nconverter.string.splitter.delimiter=|",
        "converters.0.delimiter",
        "|",
    ),
    (
        "converter.avro.fields",
        KAFKA,
        "converter.classes=AvroFieldsPickConverter\nconverter.avro.fields=a,b.c",
        "converters.0.columns",
        ["a", "b.c"],
    ),
    (
        "converter.avro.jdbc.entry_fields_pairs",
        KAFKA,
        'converter.classes=AvroToJdbcEntryConverter\nconverter.avro.jdbc.entry_fields_pairs={"aB":"a_b"}',
        "converters.0.columns",
        {"aB": "a_b"},
    ),
    ("fork.operator.class", KAFKA, "fork.operator.class=IdentityForkOperator", "fork.operator.type", "identity"),
    ("fork.branches", KAFKA, FORK2, "fork.branches.1.name", "fork_1"),
    ("fork.branch.name", KAFKA, FORK2 + "fork.branch.name.1=b", "fork.branches.1.name", "b"),
    ("fork.record.queue.capacity", KAFKA, "fork.record.queue.capacity=10001", "fork.queue_capacity", 3),
    ("fork.record.queue.timeout", KAFKA, "fork.record.queue.timeout=500", "fork.queue_timeout_s", 0.5),
    (
        "fork.record.queue.timeout.unit",
        KAFKA,
        "fork.record.queue.timeout=2\nfork.record.queue.timeout.unit=SECONDS",
        "fork.queue_timeout_s",
        2.0,
    ),
    ("qualitychecker.task.policies", KAFKA, TASK.format("RowCountPolicy"), "task_policies.0.type", "row_count"),
    ("qualitychecker.task.policy.types", KAFKA, TASK.format("RowCountPolicy"), "task_policies.0.enforce", False),
    *[
        (
            key,
            KAFKA,
            f"{TIMED}qualitychecker.row.policies=AvroRecordTimestampLowerBoundPolicy\n"
            "qualitychecker.row.policy.types=OPTIONAL\nrecord.max.allowed.time.ago=1d2h",
            place,
            value,
        )
        for key, place, value in (
            ("writer.partition.columns", "row_policies.0.column", "at"),
            ("qualitychecker.row.policies", "row_policies.0.type", "not_older"),
            ("qualitychecker.row.policy.types", "row_policies.0.on_violation", "drop"),
            ("record.max.allowed.time.ago", "row_policies.0.max_age", "1d2h"),
        )
    ],
    (
        "qualitychecker.row.count.range",
        KAFKA,
        TASK.format("RowCountRangePolicy") + "qualitychecker.row.count.range=0.05",
        "task_policies.0.tolerance",
        0.05,
    ),
    (
        "data.quality.enforce.failure",
        KAFKA,
        TASK.format("RowCountPolicy").replace("OPTIONAL", "FAIL") + "data.quality.enforce.failure=false",
        "task_policies.0.enforce",
        False,
    ),
    (
        "writer.builder.class",
        KAFKA,
        "writer.builder.class=gobblin.writer.ParquetDataWriterBuilder",
        "writer.type",
        "parquet",
    ),
    ("writer.destination.type", KAFKA, "writer.destination.type=HDFS", "writer.type", "avro"),
    ("writer.output.format", KAFKA, "writer.output.format=TXT", "writer.type", "text"),
    ("writer.fs.uri", KAFKA, "writer.fs.uri=hdfs://nn:9000/", "output.path", "hdfs://nn:9000/lake"),
    ("writer.file.name", KAFKA, "writer.file.name=part.avro", "writer.file_name", "part-{unique}"),
    (
        "writer.include.record.count.in.file.names",
        KAFKA,
        "writer.include.record.count.in.file.names=true",
        "writer.file_name",
        "{unique}-{rows}",
    ),
    ("writer.codec.type", KAFKA, "writer.codec.type=SNAPPY", "writer.compression", "snappy"),
    (
        "writer.codec.type",
        KAFKA,
        "writer.output.format=PARQUET\nwriter.codec.type=null",
        "writer.compression",
        "none",
    ),
    ("writer.file.permissions", KAFKA, "writer.file.permissions=640", "output.file_mode", "640"),
    ("writer.dir.permissions", KAFKA, "writer.dir.permissions=0750", "output.dir_mode", "0750"),
    ("writer.group.name", KAFKA, "writer.group.name=staff", "output.group", "staff"),
    ("writer.partitioner.class", KAFKA, TIMED, "writer.partition_by", [LEVEL]),
    (
        "writer.partitioner.class",
        KAFKA,
        "writer.partitioner.class=mine:ByRegion\nwriter.partition.prefix=region",
        "writer.partition_by",
        [{"partitioner": "mine:ByRegion", "name": "region"}],
    ),
    ("writer.partition.columns", KAFKA, TIMED, "writer.partition_by", [LEVEL]),
    *[
        (
            f"writer.partition.{name}",
            KAFKA,
            f"{TIMED}writer.partition.{name}={text}",
            "writer.partition_by",
            [LEVEL | more],
        )
        for name, text, more in (
            ("granularity", "MONTH", {"granularity": "month"}),
            ("timezone", "UTC", {"timezone": "UTC"}),
            ("prefix", "daily/", {"name": "daily"}),
            ("pattern", "yyyy/MM/dd", {"granularity": "day"}),
        )
    ],
    *[
        (f"data.publisher.{name}", KAFKA, f"data.publisher.{name}={text}", "publisher.type", value)
        for name, text, value in (
            ("type", "org.apache.gobblin.publisher.NoopPublisher", "noop"),
            ("job.type", "org.apache.gobblin.publisher.TimestampDataPublisher", "timestamped"),
            ("replace.final.dir", "true", "replace"),
        )
    ],
    ("data.publisher.final.dir", KAFKA, "", "output.path", "/lake"),
    ("data.publisher.fs.uri", KAFKA, "data.publisher.fs.uri=hdfs://nn:9000/", "output.path", "hdfs://nn:9000/lake"),
    ("data.publisher.permissions", KAFKA, "data.publisher.permissions=750", "output.dir_mode", "750"),
    ("data.publisher.output.dir.group", KAFKA, "data.publisher.output.dir.group=staff", "output.group", "staff"),
]


def at(node: Any, place: str) -> Any:
    for part in place.split("."):
        node = node[int(part)] if part.isdigit() else node[part]
    return node


@pytest.mark.parametrize(
    ("key", "job", "lines", "place", "value"), SAMPLES, ids=[f"{one[0]}-{one[3]}" for one in SAMPLES]
)
def test_key_becomes_its_field(tmp_path: Path, key: str, job: str, lines: str, place: str, value: object) -> None:
    assert key.replace("<table>", "sales") in f"{job}\n{lines}".replace(".1=", "=")
    loaded = load(tmp_path, f"{job}{lines}\n", DB_PASSWORD="word")
    assert at(loaded.spec.model_dump(mode="json"), place) == value
    assert [one for one in loaded.warnings if "is not used" in one.problem] == []


def test_every_key_that_is_carried_has_a_sample() -> None:
    assert sorted({key.name for key in KEYS if key.field} - {one[0] for one in SAMPLES}) == [
        "converter.fieldsToEncrypt"
    ]


def test_fields_to_encrypt_need_a_key_that_gobblins_file_does_not_hold(tmp_path: Path) -> None:
    text = KAFKA + "converter.classes=StringFieldEncryptorConverter\nconverter.fieldsToEncrypt=ssn\n"
    assert faults(tmp_path, text) == ["5 converter.classes (converters[0].key_env): is missing"]


def test_families_and_names_are_told_apart() -> None:
    assert all("*" not in key.name.removesuffix("*") for key in KEYS)
    assert all(key.note for key in KEYS if not key.field)
