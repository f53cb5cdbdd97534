"""Gobblin's keys become branches, classes, policies, sources and output; other keys are refused or only reported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import InvalidSpecError
from gobblin_dagster.core.extract import ExtractType
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.spec.job import ConstructSpec, JobSpec, OnViolation
from gobblin_dagster.spec.load import GobblinFiles, load_job
from tests.unit.engine.jobs import run
from tests.unit.spec.gobblin.files import KAFKA, faults, faults_of, load, write

QUERY = """\
job.name=orders
source.class=org.apache.gobblin.source.extractor.extract.jdbc.PostgresqlSource
source.conn.host=db.shop
source.conn.port=5432
source.conn.username=reader
source.conn.password=${env:DB_PASSWORD}
source.querybased.schema=shop
source.entity=public.orders
extract.namespace=shop
extract.delta.fields=changed_at
source.querybased.watermark.type=timestamp
extract.table.type=SNAPSHOT_APPEND
extract.primary.key.fields=id
data.publisher.final.dir=/lake
"""


def typed(lines: str) -> str:
    """Return the job of a table with further lines, which may name another type of watermark."""
    kept = QUERY.replace("source.querybased.watermark.type=timestamp\n", "") if "watermark.type" in lines else QUERY
    return f"{kept}{lines}\n"


def warnings(folder: Path, text: str, /, classes: Any = None, **environ: str) -> list[str]:
    return [f"{one.line} {one.path}: {one.problem}" for one in load(folder, text, classes, **environ).warnings]


# Branches

BRANCHES = (
    KAFKA
    + """\
fork.branches=2
fork.branch.name.1=small
fork.record.queue.capacity=12000
fork.record.queue.timeout=2
fork.record.queue.timeout.unit=SECONDS
converter.classes=org.apache.gobblin.converter.SamplingConverter
converter.sample.ratio=0.5
converter.classes.1=gobblin.converter.string.ObjectToStringConverter, gobblin.converter.SamplingConverter
qualitychecker.row.policies.0=org.apache.gobblin.policies.avro.AvroHeaderGuidPolicy
qualitychecker.row.policy.types.0=ERR_FILE
qualitychecker.task.policies.1=org.apache.gobblin.policies.count.RowCountPolicy
qualitychecker.task.policy.types.1=FAILED
writer.output.format=PARQUET
writer.codec.type=snappy
writer.output.format.1=CSV
"""
)


def test_branch_keys_speak_of_their_branch_and_others_of_the_job(tmp_path: Path) -> None:
    job = load(tmp_path, BRANCHES, OWN).spec
    assert [branch.name for branch in job.fork.branches] == ["fork_0", "small"]
    assert (job.fork.queue_capacity, job.fork.queue_timeout_s) == (3, 2.0)
    first, second = job.fork.branches
    assert [converter.type for converter in job.converters] == ["sample"]
    assert [converter.type for converter in second.converters] == ["bytes_to_text", "sample"]
    assert second.converters[0].options == {"columns": ["value"]}
    assert [(policy.name, policy.on_violation) for policy in first.row_policies] == [
        ("avro_header_guid", OnViolation.QUARANTINE)
    ]
    assert second.task_policies is not None
    assert [(policy.type, policy.enforce) for policy in second.task_policies] == [("row_count", True)]
    assert job.writer.model_dump() == {"type": "parquet", "compression": "snappy"}
    assert first.writer is None
    assert second.writer is not None
    assert second.writer.type == "csv"


def test_one_branch_may_be_indexed_or_not(tmp_path: Path) -> None:
    job = load(tmp_path, KAFKA + "converter.classes.0=SamplingConverter\nconverter.sample.ratio=0.5\n").spec
    (branch,) = job.fork.branches
    assert branch.name == "main"
    assert [(one.type, one.options) for one in branch.converters] == [("sample", {"ratio": 0.5})]


def test_key_of_a_branch_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, KAFKA + "fork.branches=2\nwriter.output.format.2=AVRO\n") == [
        "6 writer.output.format.2: there is no branch 2: fork.branches is 2, the first is 0"
    ]
    (found,) = faults(tmp_path, KAFKA + "writer.output.format.1=AVRO\n")
    assert found == "5 writer.output.format.1: there is no branch 1: without fork.branches there is one; add it"
    for odd in ("many", "0", "\u00b2", "777777", "9" * 30):
        assert "expected a number of branches from 1 to 1,000" in faults(tmp_path, KAFKA + f"fork.branches={odd}\n")[0]


SEED = """\
job.name=customers
source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource
kafka.brokers=localhost:9092
fork.operator.class=org.apache.gobblin.example.fork.SensitiveDataAwareForkOperator

# Pre-fork or non-fork-specific configuration properties
converter.classes=org.apache.gobblin.converter.string.ObjectToStringConverter
qualitychecker.task.policies=org.apache.gobblin.policies.count.RowCountPolicy,org.apache.gobblin.policies.schema.SchemaCompatibilityPolicy
qualitychecker.task.policy.types=OPTIONAL,OPTIONAL
data.publisher.type=org.apache.gobblin.publisher.BaseDataPublisher

# Configuration properties for branch 0
converter.classes.0=org.apache.gobblin.example.converter.PurgingConverter
qualitychecker.task.policies.0=org.apache.gobblin.example.policies.MandatoryFieldExistencePolicy
qualitychecker.task.policy.types.0=FAILED
writer.fs.uri.0=hdfs://namenode:9000/
writer.destination.type.0=HDFS
writer.output.format.0=AVRO
writer.staging.dir.0=/gobblin/example/task-staging/purged
writer.output.dir.0=/gobblin/example/task-output/purged
data.publisher.final.dir.0=/gobblin/example/job-output/purged

# Configuration properties for branch 1
writer.fs.uri.1=hdfs://namenode:9000/
writer.destination.type.1=HDFS
writer.output.format.1=AVRO
writer.staging.dir.1=/gobblin/example/task-staging/normal
writer.output.dir.1=/gobblin/example/task-output/normal
data.publisher.final.dir.1=/gobblin/example/job-output/normal
"""
OWN = {
    "org.apache.gobblin.policies.avro.AvroHeaderGuidPolicy": {"type": "not_null", "columns": ["guid"]},
    "org.apache.gobblin.example.fork.SensitiveDataAwareForkOperator": {"type": "round_robin"},
    "org.apache.gobblin.example.converter.PurgingConverter": {"type": "drop", "columns": ["ssn"]},
    "org.apache.gobblin.example.policies.MandatoryFieldExistencePolicy": {
        "type": "required_columns",
        "columns": ["id"],
    },
}


def test_example_of_the_fork_operator_is_read_as_it_stands(tmp_path: Path) -> None:
    loaded = load(tmp_path, SEED, OWN)
    job = loaded.spec
    assert loaded.warnings == ()
    assert job.fork.operator.type == "round_robin"
    assert [(policy.type, policy.enforce) for policy in job.task_policies] == [
        ("row_count", False),
        ("schema_compatible", False),
    ]
    purged, normal = job.fork.branches
    assert [converter.type for converter in purged.converters] == ["drop"]
    assert purged.task_policies is not None
    assert [(policy.type, policy.name, policy.enforce) for policy in purged.task_policies] == [
        ("required_columns", "mandatory_field_existence", True)
    ]
    assert (normal.converters, normal.task_policies) == ((), None)
    assert [branch.writer.type for branch in job.fork.branches if branch.writer] == ["avro", "avro"]
    assert job.output.path == "hdfs://namenode:9000/gobblin/example/job-output"
    assert [job.dataset_folder(branch.name, "customers") for branch in job.fork.branches] == [
        "purged/KAFKA/customers/fork_0/customers",
        "normal/KAFKA/customers/fork_1/customers",
    ]


# Classes


def test_class_that_nothing_stands_for_is_a_fault_with_the_remedy(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, KAFKA + "converter.classes=org.apache.gobblin.converter.SamplngConverter\n")
    assert fault.startswith("5 converter.classes: no converter stands for the class")
    assert "did you mean 'SamplingConverter'?" in fault
    assert "in `classes` of gobblin.yaml" in fault
    (fault,) = faults(tmp_path, KAFKA + "converter.classes=org.apache.gobblin.example.WikipediaConverter\n")
    assert "no converter stands for the class 'org.apache.gobblin.example.WikipediaConverter'; known: " in fault
    text = KAFKA + "fork.operator.class=com.shop.MyFork\n"
    assert load(tmp_path, text, {"com.shop.MyFork": {"type": "hash", "by": ["key"]}}).spec.fork.operator.type == "hash"


def test_class_of_ones_own_may_be_named_directly(tmp_path: Path) -> None:
    name = "gobblin_dagster.constructs.quality.row_count:RowCountPolicy"
    text = f"{KAFKA}qualitychecker.task.policies={name}\nqualitychecker.task.policy.types=FAIL\n"
    (policy,) = load(tmp_path, text).spec.task_policies
    assert (policy.type, policy.name) == (name, "row_count")


def test_class_without_effect_is_left_out(tmp_path: Path) -> None:
    text = KAFKA + "qualitychecker.row.policies=gobblin.policies.schema.SchemaRowCheckPolicy\n"
    assert load(tmp_path, text + "qualitychecker.row.policy.types=OPTIONAL\n").spec.row_policies == ()


def test_option_that_a_class_needs_is_told_at_its_key(tmp_path: Path) -> None:
    assert faults(tmp_path, KAFKA + "converter.classes=AvroFieldsPickConverter\n") == [
        "5 converter.classes (converters[0].columns): is missing"
    ]


def test_policies_and_types_must_be_as_many(tmp_path: Path) -> None:
    text = KAFKA + "qualitychecker.task.policies=RowCountPolicy,FileSizePolicy\nqualitychecker.task.policy.types=FAIL\n"
    assert "expected as many types as there is of each task policy, got 1 for 2" in faults(tmp_path, text)[0]
    text = KAFKA + "qualitychecker.task.policies=RowCountPolicy\nqualitychecker.task.policy.types=STRICT\n"
    assert "expected one of FAIL, FAILED, OPTIONAL, got 'STRICT'" in faults(tmp_path, text)[0]


def test_quality_that_is_not_enforced_is_only_recorded(tmp_path: Path) -> None:
    text = KAFKA + "qualitychecker.task.policies=RowCountPolicy\nqualitychecker.task.policy.types=FAIL\n"
    assert load(tmp_path, text).spec.task_policies[0].enforce
    assert not load(tmp_path, text + "data.quality.enforce.failure=false\n").spec.task_policies[0].enforce


def test_conversion_errors_that_are_tolerated_skip_rows(tmp_path: Path) -> None:
    text = KAFKA + "converter.classes=TextToStringConverter,ObjectToStringConverter\ntask.skip.error.records=9\n"
    converters = load(tmp_path, text).spec.converters
    assert [(one.name, one.on_error.value, one.max_errors) for one in converters] == [
        ("bytes_to_text", "skip", 9),
        ("bytes_to_text_2", "skip", 9),
    ]


def test_text_messages_become_columns_of_a_schema(tmp_path: Path) -> None:
    text = KAFKA + (
        "converter.classes=gobblin.converter.csv.CsvToJsonConverter,"
        "gobblin.converter.avro.JsonIntermediateToAvroConverter\n"
        "converter.csv.to.json.delimiter=\\t\n"
        'source.schema=[{"columnName":"ID","dataType":{"type":"long"}},'
        '{"columnName":"NAME","dataType":{"type":"string"}}]\n'
    )
    csv, columns = load(tmp_path, text).spec.converters
    assert (csv.options["columns"], csv.options["delimiter"]) == (["ID", "NAME"], "\t")
    assert csv.options["short"]
    assert columns.options == {"columns": {"ID": "int64", "NAME": "string"}}
    found = faults(tmp_path, text.replace('"columnName":"ID",', ""))
    assert any("7 source.schema: expected a schema in JSON" in fault for fault in found)


def test_what_is_missing_because_of_a_fault_is_no_fault_of_its_own(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, KAFKA.replace("KafkaSimpleSource", "KafkaSimpleSorce") + "extract.namespace=a\n")
    assert fault.startswith("2 source.class: no source stands for the class")
    text = KAFKA + "writer.fs.uri=hdfs://a/\nfork.branches=2\nwriter.fs.uri.1=hdfs://b/\n"
    assert len(faults(tmp_path, text)) == 1


# Sources


def test_database_is_read_by_url_table_and_column(tmp_path: Path) -> None:
    job = load(tmp_path, QUERY, DB_PASSWORD="s3cr%40t").spec
    assert job.source.type == "query"
    options = job.source.options
    assert options["url"] == "postgresql://reader:s3cr%40t@db.shop:5432/shop"
    assert options["tables"] == ["public.orders"]
    assert options["watermark"] == {"column": "changed_at", "type": "timestamp"}
    assert options["primary_key"] == ["id"]
    assert (job.extract.namespace, job.extract.table, job.extract.type) == (
        "shop",
        "orders",
        ExtractType.SNAPSHOT_APPEND,
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("source.querybased.partition.interval=6", "6h"),
        ("source.querybased.partition.interval=2\nsource.querybased.watermark.type=date", "2d"),
        ("source.querybased.partition.interval=0\nsource.querybased.extract.type=APPEND_DAILY", "1d"),
        ("source.querybased.partition.interval=500\nsource.querybased.watermark.type=simple", 500),
    ],
    ids=["hours", "days", "daily", "numbers"],
)
def test_interval_has_the_unit_of_its_watermark(tmp_path: Path, lines: str, expected: object) -> None:
    job = load(tmp_path, typed(lines), DB_PASSWORD="x").spec
    assert job.source.options["partition_interval"] == expected


def test_bounds_and_switches_of_a_query(tmp_path: Path) -> None:
    text = QUERY + (
        "source.querybased.start.value=20130101000000\nsource.querybased.end.value=20130131235959\n"
        "source.querybased.skip.count.calc=true\nsource.max.number.of.partitions=0\n"
        "source.querybased.low.watermark.backup.secs=3600\nsource.querybased.append.max.watermark.limit=currentdate-1\n"
        "source.timezone=Europe/Berlin\nentity.blacklist=tmp.*\n"
    )
    options = load(tmp_path, text, DB_PASSWORD="x").spec.source.options
    assert (options["start"], options["timezone"]) == ("2013-01-01T00:00:00", "Europe/Berlin")
    assert (options["count_rows"], options["max_partitions"], options["overlap"]) == (False, 20, "3600s")
    assert options["tables"] == ["public.orders"]


END = "source.querybased.end.value=20130131235959\n"
LIMIT = "source.querybased.append.max.watermark.limit=currentdate-1\n"
FULL = "extract.is.full=true\n"


@pytest.mark.parametrize(
    ("lines", "bounds"),
    [
        (FULL + "source.querybased.extract.type=APPEND_DAILY", {"end": "2013-02-01T00:00:00"}),
        ("source.querybased.extract.type=append_hourly", {"max_watermark": "CURRENTDATE-1"}),
        ("source.querybased.extract.type=SNAPSHOT", {}),
        (FULL, {}),
    ],
    ids=["full", "append", "snapshot", "full snapshot"],
)
def test_upper_bound_counts_where_gobblin_takes_it_and_else_is_told_not_to(
    tmp_path: Path, lines: str, bounds: dict[str, str]
) -> None:
    loaded = load(tmp_path, f"{QUERY}{END}{LIMIT}{lines}\n", DB_PASSWORD="x")
    options = loaded.spec.source.options
    assert {name: options[name] for name in ("end", "max_watermark") if name in options} == bounds
    told = [one.path for one in loaded.warnings if "is not used: as in Gobblin" in one.problem]
    assert len(told) == 2 - len(bounds)


def test_bounds_of_a_simple_watermark_are_numbers_whatever_they_look_like(tmp_path: Path) -> None:
    text = typed(
        "source.querybased.watermark.type=simple\nsource.querybased.start.value=20130131\n"
        "source.querybased.end.value=20140131\nextract.is.full=true\nsource.querybased.extract.type=APPEND_BATCH\n"
    )
    options = load(tmp_path, text, DB_PASSWORD="x").spec.source.options
    assert (options["start"], options["end"]) == (20130131, 20140132)


def test_start_that_moves_is_refused(tmp_path: Path) -> None:
    text = QUERY + "source.querybased.start.value=CURRENTDAY-7\n"
    assert "a beginning that moves with the time is not carried" in faults(tmp_path, text, DB_PASSWORD="x")[0]


def test_one_dataset_for_all_topics_is_a_group(tmp_path: Path) -> None:
    text = KAFKA + "gobblin.kafka.shouldEnableDatasetStateStore="
    assert "group" not in load(tmp_path, text + "true\n").spec.source.options
    assert load(tmp_path, text + "false\n").spec.source.options["group"] == "orders"
    assert load(tmp_path, text + "false\ndataset.urn=shop/all\n").spec.source.options["group"] == "shop/all"


def test_key_of_another_source_is_told_and_not_used(tmp_path: Path) -> None:
    assert warnings(tmp_path, KAFKA + "source.entity=orders\n") == [
        "5 source.entity: is not used: it is for source(query).tables, which this job does not have"
    ]


# What would read or write other data


TEXT = """\
job.name=orders
source.class=TextFileBasedSource
extract.namespace=shop
source.filebased.data.directory=/in
data.publisher.final.dir=/lake
"""


@pytest.mark.parametrize(
    "line",
    [
        "job.disabled=true",
        "workunit.skip=true",
        'dataset.specific.props=[{"dataset": "a", "task.maxretries": 1}]',
        "gobblin.kafka.allowPeriodInTopicName=false",
        "state.store.enabled=false",
        "source.skip.first.record=true",
        "source.filebased.downloader.class=gobblin.source.extractor.filebased.CsvFileDownloader",
        "source.querybased.is.watermark.override=true",
        "simple.writer.prepend.size=true",
        "simple.writer.delimiter=|",
        "data.publisher.appendExtractToFinalDir=false",
        "writer.jdbc.batch.size=3",
        "partitioner.hasUserSpecifiedPartitions=true",
        "date.partitioned.source.lookback.time=2d",
        "source.conn.database=shop",
        "source.conn.sid=shop",
    ],
    ids=lambda line: line.partition("=")[0],
)
def test_key_that_would_read_or_write_other_data_is_a_fault_wherever_it_stands(tmp_path: Path, line: str) -> None:
    key = line.partition("=")[0]
    (fault,) = faults(tmp_path, f"{TEXT}{line}\n")
    assert fault.startswith(f"6 {key}: cannot be carried, and without it other data would be read or written: ")
    path = write(tmp_path, {"orders.pull": TEXT, "all.properties": f"{line}\n"})
    (fault,) = faults_of(path, tmp_path)
    assert fault.startswith(f"all.properties:1 {key}: cannot be carried")


@pytest.mark.parametrize(
    "line", ["job.disabled=false", "simple.writer.delimiter=\\n", "source.skip.first.record=FALSE"]
)
def test_key_that_asks_for_what_is_so_is_no_fault(tmp_path: Path, line: str) -> None:
    assert load(tmp_path, f"{TEXT}{line}\n").warnings == ()


@pytest.mark.parametrize(
    ("lines", "tables"),
    [
        ("entity.blacklist=Table1,BadTable.*", ["Table2", "Table3"]),
        ("entity.whitelist=Table[12],Table5", ["Table1", "Table2"]),
        ("entity.whitelist=Table.*\nentity.blacklist=Table1", ["Table2", "Table3"]),
        ("entity.blacklist=able1", ["Table1", "Table2", "BadTable1", "Table3"]),
    ],
    ids=["black", "white", "both", "whole"],
)
def test_lists_choose_from_the_tables_that_are_listed(tmp_path: Path, lines: str, tables: list[str]) -> None:
    text = QUERY.replace("source.entity=public.orders", "source.entities=Table1,Table2,BadTable1,Table3")
    options = load(tmp_path, f"{text}{lines}\n", DB_PASSWORD="x").spec.source.options
    assert options["tables"] == tables
    assert not options.keys() & {"include", "exclude"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("source.entities=a,b\nentity.blacklist=.*", "leave no table of source.entities"),
        ("source.entities=a\nentity.whitelist=(", "expected regular expressions, got '('"),
        ("source.entities=a,${env:TABLE}\nentity.whitelist=a", "a list with a variable cannot be compared"),
        ("entity.whitelist=a", "the tables that source.entities lists, which is missing"),
        (
            "source.entities=a,aaab\nentity.blacklist=a{1,3}b",
            "entity.blacklist: expected regular expressions, got 'a{1'",
        ),
        (
            "source.entities=ab\nentity.blacklist=[a-z&&[^b]]b",
            "entity.blacklist: expected regular expressions, got '[a-",
        ),
    ],
    ids=["none", "pattern", "variable", "unlisted", "comma", "java"],
)
def test_lists_that_cannot_be_applied_are_faults(tmp_path: Path, lines: str, problem: str) -> None:
    text = QUERY.replace("source.entity=public.orders\n", "")
    assert any(problem in fault for fault in faults(tmp_path, f"{text}{lines}\n", DB_PASSWORD="x", TABLE="t"))


@pytest.mark.parametrize(
    ("lines", "tables"),
    [
        ("source.entities=a,b\nsource.entity=c\nextract.table.name=d", ["a", "b"]),
        ("source.entity=c\nextract.table.name=d", ["c"]),
        ("extract.table.name=d", ["d"]),
        ("source.entity=c\nsource.querybased.query=select 1 as changed_at", []),
        ("source.entities=Ab,Äb\nentity.blacklist=\\\\wb{1}", ["Äb"]),
    ],
    ids=["entities", "entity", "extract", "query", "letters"],
)
def test_tables_are_those_that_gobblin_would_read(tmp_path: Path, lines: str, tables: list[str]) -> None:
    text = QUERY.replace("source.entity=public.orders\n", "")
    assert load(tmp_path, f"{text}{lines}\n", DB_PASSWORD="x").spec.source.options.get("tables", []) == tables


@pytest.mark.parametrize("key", ["topic.whitelist", "topic.blacklist"])
def test_pattern_of_topics_that_a_comma_cuts_is_a_fault(tmp_path: Path, key: str) -> None:
    (fault,) = faults(tmp_path, KAFKA + f"{key}=secret_\\\\d{{1,3}}\n")
    assert f"{key}: expected regular expressions, got 'secret_" in fault
    assert "aa?a?" in fault
    fine = "a[{],b\\\\{,c{2},${env:TOPICS}"
    assert len(load(tmp_path, KAFKA + f"{key}={fine}\n", TOPICS="x").spec.source.options) == 2


@pytest.mark.parametrize("given", ["secret_[a[bc]]", "secret_\\\\0101", "[^]s[]ecret", "(?u)secret"])
def test_pattern_that_java_reads_in_another_way_is_a_fault(tmp_path: Path, given: str) -> None:
    (found,) = faults(tmp_path, KAFKA + f"topic.blacklist={given}\n")
    assert "expected regular expressions, got " in found


@pytest.mark.parametrize("given", ["a\\\\[b[c]", "[a\\\\[b]", "[]a]", "a\\\\\\\\0", "(?i)secret", "[ab][cd]"])
def test_pattern_that_means_the_same_in_java_is_taken(tmp_path: Path, given: str) -> None:
    exclude = load(tmp_path, KAFKA + f"topic.blacklist={given}\n").spec.source.options["exclude"]
    assert exclude == [given.replace("\\\\", "\\")]


def test_table_without_a_watermark_is_read_whole_where_each_extract_replaces_the_last(tmp_path: Path) -> None:
    text = QUERY.replace("extract.delta.fields=changed_at\n", "").replace("SNAPSHOT_APPEND", "SNAPSHOT_ONLY")
    text += "converter.classes=JsonIntermediateToAvroConverter\n"
    job = load(tmp_path, text, DB_PASSWORD="x").spec
    assert job.source.options["without_watermark"] == "full"
    assert "watermark" not in job.source.options
    assert job.converters == ()  # the database gives the types


def test_table_without_a_watermark_is_read_whole_in_full_extracts(tmp_path: Path) -> None:
    text = QUERY.replace("extract.delta.fields=changed_at\n", "")
    job = load(tmp_path, text + "extract.is.full=true\n", DB_PASSWORD="x").spec
    assert (job.source.options["without_watermark"], job.extract.is_full) == ("full", True)
    for lines in ("", "extract.is.full=false\n"):
        (found,) = faults(tmp_path, text + lines, DB_PASSWORD="x")
        assert found.startswith("2 source.class: extract.delta.fields is missing: Gobblin would append whole tables")
        assert "write extract.is.full=true" in found
    own = {"MyTables": {"type": "query", "url": "sqlite:///x", "watermark": {"column": "at"}}}
    job = load(tmp_path, re.sub("source.class=.*", "source.class=MyTables", text), own, DB_PASSWORD="x").spec
    assert job.source.options["watermark"]["column"] == "at"


def test_column_without_a_type_is_no_watermark(tmp_path: Path) -> None:
    text = QUERY.replace("source.querybased.watermark.type=timestamp\n", "")
    (found,) = faults(tmp_path, text, DB_PASSWORD="x")
    assert found.startswith("10 extract.delta.fields: source.querybased.watermark.type is missing: Gobblin would")
    job = load(tmp_path, text + "extract.is.full=true\n", DB_PASSWORD="x")
    assert (job.spec.source.options["without_watermark"], job.spec.extract.is_full) == ("full", True)
    assert "watermark" not in job.spec.source.options
    assert any("the table is read whole in each run without" in str(one) for one in job.warnings)
    own = {"MyTables": {"type": "query", "url": "sqlite:///x"}}
    job = load(tmp_path, re.sub("source.class=.*", "source.class=MyTables", text), own, DB_PASSWORD="x")
    assert job.spec.source.options["watermark"] == {"column": "changed_at"}


@pytest.mark.parametrize("text", [QUERY.replace("extract.table.type=SNAPSHOT_APPEND\n", ""), KAFKA])
def test_table_called_a_snapshot_is_read_on_from_run_to_run(tmp_path: Path, text: str) -> None:
    text += "extract.table.type=SNAPSHOT_ONLY\n"
    job = load(tmp_path, text, DB_PASSWORD="x")
    assert job.spec.extract.type == "snapshot_append"
    assert any("is snapshot_append here: as in Gobblin, each run reads what is new" in str(one) for one in job.warnings)
    job = load(tmp_path, text + "extract.is.full=True\n", DB_PASSWORD="x")
    # Kafka's extract is called full, and read on.
    full = ("snapshot_append", None) if text.startswith(KAFKA) else ("snapshot_only", True)
    assert (job.spec.extract.type, job.spec.extract.is_full) == full
    assert any("is not carried: as in Gobblin" in str(one) for one in job.warnings) == (full[1] is None)


@pytest.mark.parametrize(
    ("lines", "overlap"),
    [
        ("source.querybased.extract.type=APPEND_DAILY", None),
        ("source.querybased.extract.type=SNAPSHOT", "60s"),
        ("source.querybased.extract.type=SNAPSHOT\nsource.querybased.watermark.type=simple", 60),
    ],
    ids=["append", "snapshot", "simple"],
)
def test_watermark_is_set_back_for_snapshots_alone(tmp_path: Path, lines: str, overlap: object) -> None:
    text = typed(f"source.querybased.low.watermark.backup.secs=60\n{lines}")
    assert load(tmp_path, text, DB_PASSWORD="x").spec.source.options.get("overlap") == overlap


def test_limit_of_rows_is_told_to_hold_up_to_a_position(tmp_path: Path) -> None:
    lines = "extract.limit.enabled={}\nextract.limit.type=count\nextract.limit.count.limit=10\n"
    (told,) = warnings(tmp_path, KAFKA + lines.format("true"))
    assert told.startswith("7 extract.limit.count.limit: a work unit ends at the first position behind so many rows")
    assert warnings(tmp_path, KAFKA + lines.format("false")) == []


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("enabled=true\nextract.limit.count.limit=10", "extract.limit.type is missing: count, time or rate"),
        ("enabled=true\nextract.limit.type=count\nextract.limit.count.limit=inf", "expected a whole number, got 'inf'"),
    ],
)
def test_limit_that_gobblin_refuses_is_refused(tmp_path: Path, lines: str, problem: str) -> None:
    (told,) = faults(tmp_path, f"{KAFKA}extract.limit.{lines}\n")
    assert problem in told


@pytest.mark.parametrize(
    "key",
    [
        "data.publisher.replace.final.dir",  # the publisher would replace what is published
        "extract.limit.enabled",
        "workunit.retry.enabled",
        "gobblin.kafka.shouldEnableDatasetStateStore",
        "job.commit.parallelize",
        "writer.include.record.count.in.file.names",
    ],
)
def test_word_that_decides_about_other_fields_is_no_variable(tmp_path: Path, key: str) -> None:
    (told,) = faults(tmp_path, f"{KAFKA}{key}=${{env:SWITCH}}\n", SWITCH="false")
    assert f"{key} takes no variable" in told


def test_folder_of_a_variable_is_not_left_by_two_dots(tmp_path: Path) -> None:
    text = KAFKA.replace("/lake", "${env:LAKE}/../other")
    assert "${env:LAKE}/../other" in text
    (told,) = faults(tmp_path, text, LAKE="/data/lake")
    assert "behind a variable takes no `..`" in told


@pytest.mark.parametrize("line", ["end.value=20130131", "append.max.watermark.limit=CURRENTDATE-1"])
def test_bound_does_not_count_by_a_variable(tmp_path: Path, line: str) -> None:
    lines = "extract.is.full=${env:FULL}\nsource.querybased.extract.type=APPEND_DAILY\nsource.querybased."
    (told,) = faults(tmp_path, f"{QUERY}{lines}{line}\n", DB_PASSWORD="x", FULL="true")
    assert "extract.is.full takes no variable" in told


def test_variables_of_words_keep_their_names(tmp_path: Path) -> None:
    text = f"{KAFKA}job.commit.policy=${{env:POLICY}}\nbootstrap.with.offset=${{env:Begin}}\n"
    spec = load(tmp_path, text, POLICY="partial", policy="successful", Begin="earliest", begin="skip").spec
    assert (spec.commit.policy, spec.source.options["bootstrap"]) == ("partial", "earliest")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("TextFileBasedSource", "none"), ("AvroFileSource", "none"), ("HadoopTextInputSource", "hadoop")],
)
def test_hidden_files_are_read_where_gobblin_reads_them(tmp_path: Path, name: str, hidden: str) -> None:
    assert load(tmp_path, TEXT.replace("TextFileBasedSource", name)).spec.source.options["hidden"] == hidden


def test_files_that_change_are_read_again_as_gobblins_snapshot_does(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT).spec.source.options["read_changed"] == "again"
    own = {"TextFileBasedSource": {"type": "files", "format": {"type": "text"}}}
    assert "read_changed" not in load(tmp_path, TEXT, own).spec.source.options
    avro = TEXT.replace("TextFileBasedSource", "AvroFileSource")  # its snapshot holds names alone
    assert "read_changed" not in load(tmp_path, avro).spec.source.options


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("source.filebased.data.directory=/other", "names other files; keep one of both"),
        ("source.filebased.fs.uri=hdfs://nn:8020", "write the files as whole URLs here"),
        ("source.filebased.fs.uri=file:///", ""),
    ],
    ids=["folder", "system", "local"],
)
def test_listed_files_and_another_place_are_a_fault(tmp_path: Path, line: str, problem: str) -> None:
    text = TEXT.replace("data.directory=/in", "files.to.pull=/in/a.txt") + f"{line}\n"
    if not problem:
        assert load(tmp_path, text).spec.source.options["path"] == "/in/a.txt"
        return
    (fault,) = faults(tmp_path, text)
    assert problem in fault


@pytest.mark.parametrize(
    ("pattern", "given", "first"),
    [
        ("yyyy/MM/dd/HH/mm", "2013/01/05/23/59", "2013-01-06"),
        ("yyyy/MM/dd/HH", "2013/01/05/23", "2013-01-06"),
        ("yyyy/MM/dd", "2012/02/28", "2012-02-29"),
        ("yyyy-MM", "2013-02", "2013-03-01"),
        ("yyyy", "2013", "2014-01-01"),
    ],
)
def test_first_folder_is_the_one_behind_the_given_date(tmp_path: Path, pattern: str, given: str, first: str) -> None:
    text = TEXT.replace("TextFileBasedSource", "DatePartitionedJsonFileSource")
    lines = (
        f"date.partitioned.source.partition.pattern={pattern}\ndate.partitioned.source.min.watermark.value={given}\n"
    )
    assert load(tmp_path, text + lines).spec.source.options["start"] == first


def test_first_folder_within_a_day_is_a_fault_instead_of_the_whole_day(tmp_path: Path) -> None:
    text = TEXT.replace("TextFileBasedSource", "DatePartitionedJsonFileSource")
    (fault,) = faults(tmp_path, f"{text}date.partitioned.source.min.watermark.value=2013/01/05/00\n")
    assert "expected the last folder of a day, got '2013/01/05/00': Gobblin begins behind it, at 01:00" in fault


def test_files_that_gobblin_reads_in_each_run_are_a_fault(tmp_path: Path) -> None:
    text = TEXT.replace("filebased.TextFileBasedSource", "hadoop.HadoopTextInputSource")
    (fault,) = faults(tmp_path, f"{text}source.hadoop.file.input.paths=/in\n")
    assert "without it other data would be read or written: each run of Gobblin's reads all of these files" in fault


CASE_STUDY = KAFKA + (
    "writer.builder.class=org.apache.gobblin.writer.SimpleDataWriterBuilder\nwriter.file.path.type=tablename\n"
    "writer.destination.type=HDFS\nwriter.output.format=txt\n"
)
PICKED = [("bytes_to_text", {"columns": ["value"]}), ("select", {"columns": ["value"]})]


@pytest.mark.parametrize(
    "lines", ["", "converter.classes=gobblin.converter.string.ObjectToStringConverter"], ids=["plain", "converted"]
)
def test_lines_hold_the_messages_value_alone(tmp_path: Path, lines: str) -> None:
    job = load(tmp_path, f"{CASE_STUDY}{lines}\n").spec
    (branch,) = job.fork.branches
    assert [(one.type, one.options) for one in (*job.converters, *branch.converters)] == PICKED
    assert branch.path == "{table}/{dataset}"


def test_columns_that_a_job_makes_itself_stay_as_they_are(tmp_path: Path) -> None:
    text = CASE_STUDY + "converter.classes=AvroFieldsPickConverter\nconverter.avro.fields=value\n"
    job = load(tmp_path, text).spec
    assert [one.type for one in (*job.converters, *job.fork.branches[0].converters)] == ["select"]


def test_branch_of_lines_beside_one_of_columns_picks_for_itself(tmp_path: Path) -> None:
    text = KAFKA + "fork.branches=2\nwriter.output.format.0=TXT\nwriter.output.format.1=PARQUET\n"
    lines, columns = load(tmp_path, text).spec.fork.branches
    assert [(one.type, one.options) for one in lines.converters] == PICKED
    assert columns.converters == ()


@pytest.mark.parametrize(
    ("dirs", "path", "folders"),
    [
        (("/out/a", "/out/b/c"), "/out", ["a/KAFKA/orders/fork_0", "b/c/KAFKA/orders/fork_1"]),
        (("/out", "/out"), "/out", ["KAFKA/orders/fork_0", "KAFKA/orders/fork_1"]),
        (("hdfs://n/out/a/", "hdfs://n/out/b"), "hdfs://n/out", ["a/KAFKA/orders/fork_0", "b/KAFKA/orders/fork_1"]),
    ],
    ids=["apart", "together", "url"],
)
def test_each_branch_lies_below_its_own_final_folder(
    tmp_path: Path, dirs: tuple[str, str], path: str, folders: list[str]
) -> None:
    text = KAFKA.replace("data.publisher.final.dir=/lake\n", "") + "fork.branches=2\n"
    text += "".join(f"data.publisher.final.dir.{number}={folder}\n" for number, folder in enumerate(dirs))
    job = load(tmp_path, text).spec
    assert job.output.path == path
    assert [job.dataset_folder(branch.name, "t") for branch in job.fork.branches] == [f"{one}/t" for one in folders]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("data.publisher.final.dir.0=/lake/a", "branch 1 has no final folder; add data.publisher.final.dir.1"),
        ("data.publisher.final.dir=/lake\nwriter.fs.uri.0=hdfs://nn", "one file system, got file:///, hdfs://nn"),
    ],
    ids=["folder", "system"],
)
def test_branch_without_a_place_of_its_own_goes_to_no_other(tmp_path: Path, lines: str, problem: str) -> None:
    text = KAFKA.replace("data.publisher.final.dir=/lake\n", "") + f"fork.branches=2\n{lines}\n"
    assert any(problem in fault for fault in faults(tmp_path, text))
    same = "data.publisher.final.dir=/lake\nwriter.fs.uri.0=file:///\n"  # Gobblin's default
    assert load(tmp_path, KAFKA.replace("data.publisher.final.dir=/lake\n", same)).spec.output.path == "/lake"


@pytest.mark.parametrize("key", ["data.publisher.permissions", "writer.file.permissions", "writer.group.name"])
def test_branches_with_permissions_of_their_own_are_a_fault(tmp_path: Path, key: str) -> None:
    text = KAFKA + f"fork.branches=2\n{key}.0=600\n"
    assert load(tmp_path, text + f"{key}.1=600\n").spec.output
    for lines in ("", f"{key}.1=644\n", f"{key}=644\n"):
        (found,) = faults(tmp_path, text + lines)
        assert f"{key}.0: all branches have the same permissions and group; write {key} once" in found


@pytest.mark.parametrize(
    ("final", "system", "path"),
    [
        ("file:/out/a%20b", "file:///", "/out/a%20b"),
        ("file:///out/a%20b", "file:/", "/out/a%20b"),
        ("/out", "hdfs://nn:8020/", "hdfs://nn:8020/out"),
    ],
)
def test_places_are_written_as_hadoop_writes_them(tmp_path: Path, final: str, system: str, path: str) -> None:
    text = (
        f"job.name=a\nsource.class=TextFileBasedSource\nextract.namespace=s\ndata.publisher.final.dir={final}\n"
        f"writer.fs.uri={system}\nsource.filebased.fs.uri={system}\nsource.filebased.data.directory={final}\n"
    )
    job = load(tmp_path, text).spec
    assert (job.output.path, job.source.options["path"]) == (path, f"{path}/**/*")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("writer.fs.uri=hdfs://nn/user/x", "expected a file system as hdfs://host:port, without a path"),
        ("data.publisher.fs.uri=nn:8020", "expected a file system as hdfs://host:port, without a path"),
        ("topic.blacklist=${env:LIST}", "${env:LIST} holds a list, but a variable is one item here"),
        ("data.publisher.replace.final.dir=true\ndata.publisher.type=TimestampDataPublisher", "does not go with Time"),
        (
            "data.quality.enforce.failure=no\nqualitychecker.task.policies=RowCountPolicy\n"
            "qualitychecker.task.policy.types=FAIL",
            "expected data.quality.enforce.failure to be true or false",
        ),
        ("fork.branches=2\nwriter.output.format.01=PARQUET", "writer.output.format.01: is no key that is known"),
    ],
)
def test_what_would_go_elsewhere_or_leave_out_less_is_a_fault(tmp_path: Path, lines: str, problem: str) -> None:
    assert any(problem in fault for fault in faults(tmp_path, f"{KAFKA}{lines}\n", LIST="secret,private"))


def test_publisher_that_publishes_nothing_replaces_nothing(tmp_path: Path) -> None:
    text = KAFKA + "data.publisher.replace.final.dir=true\ndata.publisher.type=NoopPublisher\n"
    publisher = load(tmp_path, text).spec.publisher
    assert publisher is not None
    assert publisher.type == "noop"
    own = {"com.shop.Own": {"type": "timestamped"}}
    text = text.replace("NoopPublisher", "com.shop.Own")
    assert any("is not for classes like com.shop.Own" in fault for fault in faults(tmp_path, text, own))


@pytest.mark.parametrize(
    ("lines", "types"),
    [
        ("replace.final.dir=true\ndata.publisher.replace.final.dir.0=false", ["append", "replace"]),
        ("replace.final.dir.0=true\ndata.publisher.replace.final.dir.1=false", ["replace", "append"]),
        ("type=NoopPublisher\ndata.publisher.replace.final.dir.0=true", ["noop", "noop"]),
        ("type=TimestampDataPublisher\ndata.publisher.replace.final.dir.0=false", ["timestamped", "timestamped"]),
    ],
)
def test_branch_that_replaces_nothing_says_so_against_the_job(tmp_path: Path, lines: str, types: list[str]) -> None:
    job = load(tmp_path, f"{KAFKA}fork.branches=2\ndata.publisher.{lines}\n").spec
    assert [job.publisher_of(branch).type for branch in job.fork.branches] == types


def test_url_with_one_slash_is_no_folder(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, KAFKA.replace("=/lake", "=hdfs:/lake"))
    assert "'hdfs:/lake' has one slash behind its scheme; write hdfs:///lake" in fault


def test_rows_land_in_the_final_folder_of_their_branch(tmp_path: Path) -> None:
    own = {
        "com.shop.Numbers": {"type": "gobblin_dagster.testing.rows_source:RowsSource", "datasets": {"a": {"rows": 3}}},
    }
    text = (
        "job.name=orders\nsource.class=com.shop.Numbers\nextract.namespace=shop\nfork.branches=2\n"
        f"data.publisher.final.dir.0={tmp_path}/job-output/purged\n"
        f"data.publisher.final.dir.1={tmp_path}/job-output/normal\n"
    )
    assert run(tmp_path, load(tmp_path, text, own).spec).status is RunStatus.SUCCEEDED
    for folder in ("purged", "normal"):
        assert len(list((tmp_path / "job-output" / folder).rglob("*.avro"))) == 1


def test_own_publisher_and_partitioner_are_found_in_classes(tmp_path: Path) -> None:
    own = {
        "com.shop.TablePublisher": {"type": "timestamped"},
        "com.shop.ByTitle": {"type": "shop.parts:ByTitle", "size": 3},
    }
    text = KAFKA + (
        "data.publisher.type=com.shop.TablePublisher\nwriter.partitioner.class=com.shop.ByTitle\n"
        "writer.partition.prefix=title\n"
    )
    path = write(tmp_path, {"orders.pull": text})
    files = GobblinFiles(path.parent, {name: ConstructSpec.model_validate(spec) for name, spec in own.items()})
    job = load_job(path, None, {}, files).spec
    assert job.publisher is not None
    assert job.publisher.type == "timestamped"
    assert job.writer.options["partition_by"] == [
        {"partitioner": "shop.parts:ByTitle", "options": {"size": 3}, "name": "title"}
    ]


def test_class_of_ones_own_takes_options_from_keys_of_the_job(tmp_path: Path) -> None:
    rows = "gobblin_dagster.testing.rows_source:RowsSource"
    own = {
        "com.shop.Numbers": {
            "type": rows,
            "datasets": {"a": {"rows": 3}},
            "keys": {"unit": "shop.unit", "gone": "shop.gone"},
        },
        "com.shop.Masker": {"type": "mask", "columns": ["a"], "keys": {"key": "shop.secret"}},
    }
    path = write(
        tmp_path,
        {
            "orders.pull": KAFKA.replace(
                "org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource", "com.shop.Numbers"
            ).replace("kafka.brokers=localhost:9092\n", "")
            + "extract.namespace=shop\nshop.unit=${size}\nsize=7\n"
        },
    )
    files = GobblinFiles(path.parent, {name: ConstructSpec.model_validate(spec) for name, spec in own.items()})
    job = load_job(path, None, {}, files)
    assert job.spec.source.options == {"datasets": {"a": {"rows": 3}}, "unit": "7"}
    assert job.warnings == ()
    path.write_text(path.read_text() + "shop.secret=hunter22\n")
    with pytest.raises(InvalidSpecError, match="a secret must not stand in a job file") as caught:
        load_job(path, None, {}, files)
    assert "hunter22" not in str(caught.value)
    assert warnings(tmp_path, KAFKA + "shop.unit=7\n", own) == [
        "5 shop.unit: is not used: it is for a class of `classes` that this job does not name"
    ]


# Secrets


def test_secret_in_the_file_is_refused_and_never_shown(tmp_path: Path) -> None:
    text = QUERY.replace("${env:DB_PASSWORD}", "hunter22")
    (fault,) = faults(tmp_path, text)
    assert fault.startswith("6 source.conn.password: a secret must not stand in a job file")
    assert "hunter22" not in fault
    (fault,) = faults(tmp_path, QUERY.replace("${env:DB_PASSWORD}", "ENC(hunter22)"))
    assert "values in ENC(...) are not read" in fault
    assert "hunter22" not in fault


@pytest.mark.parametrize(
    "line",
    [
        "source.conn.username=reader:hunter22",
        "source.conn.host=reader:hunter22@localhost",
        "source.querybased.schema=shop?sslmode=require&password=hunter22",
        "data.publisher.final.dir=s3://key:hunter22@bucket/lake",
        "data.publisher.final.dir=/lake\nfs.uri=s3://key:hunter22@bucket/",
    ],
)
def test_password_that_other_keys_bring_into_a_url_is_refused(tmp_path: Path, line: str) -> None:
    key = line.partition("=")[0]
    kept = [one for one in QUERY.splitlines() if not one.startswith((key, "source.conn.password"))]
    found = faults(tmp_path, "\n".join([*kept, line, ""]))
    assert any("must not hold a password; take it from the environment" in fault for fault in found)
    assert not any("hunter22" in fault for fault in found)


def test_password_that_classes_take_from_a_key_is_refused(tmp_path: Path) -> None:
    own = {
        "com.shop.Orders": {"type": "query", "tables": ["t"], "watermark": {"column": "id"}, "keys": {"url": "x.url"}}
    }
    text = KAFKA.replace("org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource", "com.shop.Orders")
    text = text.replace("kafka.brokers=localhost:9092\n", "extract.namespace=shop\n")
    (fault,) = faults(tmp_path, text + "x.url=postgresql://reader:hunter22@h/d\n", own)
    assert "must not hold a password" in fault


def test_secret_by_way_of_another_key_is_refused_too(tmp_path: Path) -> None:
    text = QUERY.replace("${env:DB_PASSWORD}", "${my.word}") + "my.word=hunter22\n"
    assert all("hunter22" not in fault for fault in faults(tmp_path, text))


def test_key_that_is_not_carried_is_told_without_its_value(tmp_path: Path) -> None:
    found = warnings(tmp_path, KAFKA + "encrypt.key.loc=/keys/hunter22\nemail.password=hunter22\n")
    assert found == ["5 encrypt.key.loc: is not carried: secrets come from the environment: ${env:NAME}"]


# Names, output, writers


CUSTOM = "gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization"


@pytest.mark.parametrize("lines", ["", f"{CUSTOM}=false\n"])
def test_namespace_of_kafka_is_its_own_unless_the_job_may_choose(tmp_path: Path, lines: str) -> None:
    text = f"{KAFKA}extract.namespace=shop\n{lines}"
    assert load(tmp_path, text).spec.extract.namespace == "KAFKA"
    told = "5 extract.namespace: is not used: as in Gobblin, the namespace is 'KAFKA' with this source"
    assert warnings(tmp_path, text) == [told]
    own = {"MyTopics": {"type": "kafka"}}
    text = re.sub("source.class=.*", "source.class=MyTopics", text)
    assert load(tmp_path, text, own).spec.extract.namespace == "shop"


def test_filter_of_a_branch_needs_a_pattern_of_the_branch(tmp_path: Path) -> None:
    key, classes = "converter.string.filter.pattern", "StringFilterConverter"
    text = f"{KAFKA}fork.branches=2\nconverter.classes.1=TextToStringConverter,{classes}\n{key}=a.*\n"
    (found,) = faults(tmp_path, text)
    assert f"7 {key}: a branch reads {key}.1 alone: without it, Gobblin leaves out all lines" in found
    job = load(tmp_path, f"{text}{key}.1=b.*\n").spec
    assert job.fork.branches[1].converters[1].options["matches"] == "b.*"
    job = load(tmp_path, f"{KAFKA}converter.classes=TextToStringConverter,{classes}\n{key}=a.*\n").spec
    assert job.converters[1].options["matches"] == "a.*"


def test_names_are_made_fit_and_told(tmp_path: Path) -> None:
    text = KAFKA.replace("orders", "shop-orders", 1) + f"extract.namespace=org.apache.shop\n{CUSTOM}=true\n"
    job = load(tmp_path, text).spec
    assert (job.job, job.extract.namespace, job.extract.table) == ("shop_orders", "org_apache_shop", "shop_orders")
    assert "1 job.name: is called 'shop_orders' here" in warnings(tmp_path, text)


def test_variables_in_names_are_faults(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, KAFKA + "extract.table.name=${env:TABLE}\n", TABLE="orders")
    assert "extract.table.name" in found
    assert "names take no variables; write the name" in found


def test_key_without_end_is_shortened(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, KAFKA + "k" * 100_000 + "=x\n")
    assert len(found) < 500


def test_what_is_missing_is_named_by_gobblins_key(tmp_path: Path) -> None:
    found = faults(tmp_path, "job.description=x\n")
    assert "None job.name (job): is missing" in found
    assert "None source.class (source): is missing" in found
    assert any(fault.endswith("data.publisher.final.dir (output): is missing") for fault in found)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("writer.output.format=PARQUET", "parquet"),
        ("writer.output.format=json", "jsonl"),
        ("writer.builder.class=org.apache.gobblin.writer.SimpleDataWriterBuilder", "text"),
        ("writer.builder.class=org.apache.gobblin.writer.SimpleDataWriterBuilder\nwriter.output.format=csv", "csv"),
        ("writer.builder.class=org.apache.gobblin.writer.ConsoleWriterBuilder\nwriter.output.format=AVRO", "console"),
        ("writer.builder.class=GobblinOrcWriterBuilder", "orc"),
        ("task.maxretries=1", "avro"),
    ],
    ids=str,
)
def test_writer_is_told_by_format_or_class(tmp_path: Path, lines: str, expected: str) -> None:
    assert load(tmp_path, f"{KAFKA}{lines}\n").spec.writer.type == expected


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "writer.builder.class=gobblin.writer.SimpleDataWriterBuilder\nwriter.output.format=parquet",
            "the format PARQUET is not what the builder's class writes: text",
        ),
        ("writer.output.format=PROTOBUF", "expected one of AVRO, PARQUET"),
        ("writer.destination.type=TERADATA", "there is no writer for the destination TERADATA"),
        (
            "writer.fs.uri=hdfs://a/\nfork.branches=2\nwriter.fs.uri.1=hdfs://b/",
            "published to one file system, got hdfs://a, hdfs://b",
        ),
        (
            "fork.branches=2\ndata.publisher.final.dir.0=/a\ndata.publisher.final.dir.1=/b",
            "share no folder but the root",
        ),
        (
            "fork.branches=2\ndata.publisher.final.dir.0=s3://b/x\ndata.publisher.final.dir.1=s3://b/y",
            "share no folder but the root",
        ),
        (
            "fork.branches=2\ndata.publisher.final.dir.0=s3://b/x\ndata.publisher.final.dir.1=/b/y",
            "write all final folders as URLs, or none",
        ),
        ("writer.file.path.type=daily", "expected default, namespace_table or tablename, got 'daily'"),
        ("writer.partitioner.class=com.shop.MyPartitioner", "expected a TimeBased... class"),
        ("writer.partitioner.class=gobblin.writer.partitioner.TimeBasedAvroWriterPartitioner", "columns is missing"),
        ("task.maxretries=some", "expected a whole number, got 'some'"),
        ("source.entities=a\njob.commit.parallelize=perhaps", "expected true or false, got 'perhaps'"),
    ],
    ids=[
        "contradiction",
        "format",
        "destination",
        "systems",
        "folders",
        "bucket",
        "schemes",
        "layout",
        "partitioner",
        "column",
        "number",
        "switch",
    ],
)
def test_what_cannot_be_is_a_fault(tmp_path: Path, lines: str, problem: str) -> None:
    assert any(problem in fault for fault in faults(tmp_path, f"{KAFKA}{lines}\n"))


def test_time_partitions_become_a_level_of_folders(tmp_path: Path) -> None:
    text = KAFKA + (
        "writer.partitioner.class=gobblin.writer.partitioner.TimeBasedAvroWriterPartitioner\n"
        "writer.partition.columns=change_dt\nwriter.partition.pattern=yyyy/MM/dd\nwriter.partition.prefix=daily\n"
        "writer.partition.timezone=Europe/Zurich\n"
    )
    level: dict[str, Any] = {
        "column": "change_dt",
        "granularity": "day",
        "name": "daily",
        "timezone": "Europe/Zurich",
    }
    assert load(tmp_path, text).spec.writer.options["partition_by"] == [level]


def test_zone_of_folders_and_sources_that_name_none_is_gobblins(tmp_path: Path) -> None:
    text = QUERY + "writer.partitioner.class=TimeBasedAvroWriterPartitioner\nwriter.partition.columns=at\n"
    job = load(tmp_path, text, DB_PASSWORD="x").spec
    (level,) = job.writer.options["partition_by"]
    assert (level["timezone"], job.source.options["timezone"]) == ("America/Los_Angeles", "America/Los_Angeles")


def test_zone_of_files_without_dates_is_not_set(tmp_path: Path) -> None:
    dated = "source.class=DatePartitionedJsonFileSource\nsource.filebased.data.directory=/in\n"
    plain = "source.class=TextFileBasedSource\nsource.filebased.data.directory=/in\n"
    rest = "job.name=x\nextract.namespace=n\nextract.table.name=t\n"
    rest += "writer.output.format=json\ndata.publisher.final.dir=/out\n"
    assert load(tmp_path, dated + rest).spec.source.options["timezone"] == "America/Los_Angeles"
    assert "timezone" not in load(tmp_path, plain + rest).spec.source.options


@pytest.mark.parametrize(
    ("folder", "system", "path"),
    [("/", "", "/"), ("file:///", "file:///", "/"), ("file:/in/", "", "/in/"), ("/", "hdfs://nn", "hdfs://nn/")],
)
def test_root_of_a_file_system_is_no_folder_of_the_project(tmp_path: Path, folder: str, system: str, path: str) -> None:
    text = "job.name=x\nextract.namespace=n\nextract.table.name=t\nwriter.output.format=json\nsource.class=%s\n"
    text += f"source.filebased.data.directory={folder}\nsource.filebased.fs.uri={system}\n"
    text += "data.publisher.final.dir=/out\ndate.partitioned.source.partition.pattern=yyyy/MM\n"
    dated = load(tmp_path, text % "DatePartitionedJsonFileSource").spec.source.options["path"]
    assert dated == f"{path}{{date:%Y/%m}}/*.json"
    plain = text.replace("date.partitioned.source.partition.pattern=yyyy/MM\n", "")
    assert load(tmp_path, plain % "TextFileBasedSource").spec.source.options["path"] == f"{path}**/*"


def test_pattern_of_a_time_partition_wins_and_is_of_years_to_hours(tmp_path: Path) -> None:
    text = KAFKA + "writer.partitioner.class=TimeBasedAvroWriterPartitioner\nwriter.partition.columns=at\n"
    text += "writer.partition.granularity=HOUR\nwriter.partition.pattern="
    for pattern, granularity in (("YYYY/MM", "month"), ("'day'=yyyy-MM-dd", "day")):
        (level,) = load(tmp_path, f"{text}{pattern}\n").spec.writer.options["partition_by"]
        assert level["granularity"] == granularity
    for pattern in ("yyyy/MM/dd/HH/mm", "yyyy/ww", "xxxx/ww", "'all'"):
        (fault,) = faults(tmp_path, f"{text}{pattern}\n")
        assert "expected a pattern of y, M, d and H" in fault


def test_key_of_any_converter_check_or_writer_may_be_of_one_branch(tmp_path: Path) -> None:
    text = KAFKA + (
        "fork.branches=2\nconverter.classes.1=AvroFieldsPickConverter\nconverter.avro.fields.1=value\n"
        "qualitychecker.task.policies.1=RowCountRangePolicy\nqualitychecker.task.policy.types.1=FAILED\n"
        "qualitychecker.row.count.range.1=0.25\nqualitychecker.row.err.file.1=/err\nwriter.buffer.size.1=4096\n"
        "writer.partitioner.class.1=TimeBasedAvroWriterPartitioner\nwriter.partition.columns.1=at\n"
        "writer.file.pathType.1=tablename\n"
    )
    plain, picked = load(tmp_path, text).spec.fork.branches
    assert [one.options for one in picked.converters] == [{"columns": ["value"]}]
    assert [one.options for one in picked.task_policies or ()] == [{"tolerance": 0.25}]
    assert picked.writer is not None
    assert picked.writer.options["partition_by"] == [
        {"column": "at", "granularity": "hour", "timezone": "America/Los_Angeles"}
    ]
    assert (plain.writer, picked.path) == (None, "{table}/{branch}/{dataset}")


def test_publisher_that_replaces(tmp_path: Path) -> None:
    text = KAFKA + "data.publisher.type=org.apache.gobblin.publisher.BaseDataPublisher\n"
    assert load(tmp_path, text).spec.publisher is None
    job = load(tmp_path, text + "data.publisher.replace.final.dir=true\n").spec
    assert job.publisher is not None
    assert job.publisher.type == "replace"
    timed = load(tmp_path, KAFKA + "data.publisher.type=gobblin.publisher.TimestampDataPublisher\n").spec
    assert timed.publisher is not None
    assert timed.publisher.type == "timestamped"
    assert "there is no publisher for the class" in faults(tmp_path, KAFKA + "data.publisher.type=com.shop.Own\n")[0]


def test_value_that_asks_for_what_is_so_anyway_is_not_told(tmp_path: Path) -> None:
    assert (
        warnings(tmp_path, KAFKA + "publish.data.at.job.level=true\nstate.store.dir=/x\nmetrics.enabled=true\n") == []
    )
    assert warnings(tmp_path, KAFKA + "publish.data.at.job.level=false\n") == [
        "5 publish.data.at.job.level: is not carried: "
        "the commit publishes, never a task; `commit.scope: job` makes all datasets of a run one"
    ]


# Round trip


@pytest.mark.parametrize("text", [QUERY, BRANCHES, SEED], ids=["query", "branches", "seed"])
def test_yaml_of_a_job_is_the_same_job(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, {"orders.pull": text})
    files = GobblinFiles(path.parent, {name: ConstructSpec.model_validate(spec) for name, spec in OWN.items()})
    environ = {"DB_PASSWORD": "123"}
    converted = path.with_suffix(".yaml")
    converted.write_text(files.read(path, {}).yaml)
    assert "123" not in converted.read_text()
    same: JobSpec = load_job(converted, None, environ).spec
    assert same == load_job(path, None, environ, files).spec
