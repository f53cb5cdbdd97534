"""KEYS: the field of our job file for each key of Gobblin's; used by the loader and by docs/reference/gobblin-keys.md.

A field is a place in our job file, for example `commit.policy`. `source(query).tables` is an option of the source if
its type is `query`; `writer(*).partition_by` is an option of every writer of files; `converters(sample).ratio` is set
on each converter of this type. If several keys make one field, they are read together: see `combine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gobblin_dagster.spec.gobblin import values


class Mark(StrEnum):
    """How often a key is used, or which documents name it."""

    SEED = "seed"
    """Named by the documents on state, exactly-once and forks."""
    COMMON = "common"
    """In many users' files."""
    RARE = "rare"


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and the field it became."""

    name: str
    """The key in the file, without the branch index; `*` at the end means all keys with this beginning."""
    field: str = ""
    """The field of our job file; empty if the key is not supported (`note` says why)."""
    read: Callable[[str], Any] = values.text
    """Turns the text into the field's value; raises ValueError."""
    mark: Mark = Mark.COMMON
    note: str = ""
    """How it differs from Gobblin; for a key that is not supported, the reason."""
    per_branch: bool = False
    """Whether `.0`, `.1`, ... may follow the key; see `takes_branch`."""
    holds: tuple[str, ...] = ()
    """For a key that is not supported: values, in lower case, that change nothing here; `*` means all. Other values are
    reported."""
    is_refused: bool = False
    """Whether its other values are faults, because without the key other rows would be read or they would go
    elsewhere."""

    @property
    def is_list(self) -> bool:
        """Whether the key's text is a list with commas."""
        return self.read in (values.words, values.patterns)

    @property
    def takes_branch(self) -> bool:
        """Whether the index of a branch may follow the key; the page on forks allows it for three whole families."""
        return self.per_branch or self.name.startswith(("converter.", "qualitychecker.", "writer."))


def _refused(
    name: str, note: str, mark: Mark = Mark.COMMON, *, per_branch: bool = False, holds: tuple[str, ...] = ()
) -> Key:
    """Return a key that is refused: without it, the job would read or write other data than with Gobblin."""
    return Key(name, mark=mark, note=note, per_branch=per_branch, holds=holds, is_refused=True)


def _needless(name: str, note: str, mark: Mark = Mark.COMMON, *, per_branch: bool = False) -> Key:
    """Return a key that is not needed here, with any value."""
    return Key(name, mark=mark, note=note, per_branch=per_branch, holds=("*",))


_SEED, _RARE = Mark.SEED, Mark.RARE
_STATE = "the project's `state` (gobblin.yaml) holds it, for all jobs"
_LEASE = "each dataset is always reserved by a lease, which ends by itself"
_STAGING = "staged files always lie in `_gobblin` below `output.path`"
_DAGSTER = "Dagster runs, schedules and tags jobs"
_ALERTS = "Dagster tells people of failed runs"
_METRICS = "a run's counts are in Dagster's metadata and in `gobblin run --output json`"
_LOADER = "read by the loader: its keys become keys of the job"
_PACKING = "Spark's cores and `execution.tasks_per_core` decide how many packs there are"
_POOL = "Spark's cores decide"
_LAYOUT = "tablename: no folder of the namespace; the branch and the dataset are folders always, so that none collide"
_URL = "`classes` of gobblin.yaml can name a source with a `url` of your own"
_FS = "settings of the file system's own client"

JOB = (
    Key("job.name", "job", values.name, note="what is no letter, digit or `_` becomes `_`"),
    Key("job.description", "description"),
    _needless("job.group", _DAGSTER),
    _needless("job.tag", _DAGSTER),
    _needless("job.id", "each run has an id of its own", _RARE),
    Key("job.schedule", note="give the job a schedule in Dagster"),
    Key("job.runonce", note=_DAGSTER, holds=("false",)),
    _refused("job.disabled", "take the file out of the jobs folder", holds=("false",)),
    _needless("job.class", "Azkaban's"),
    _needless("type", "Azkaban's"),
    _needless("launcher.type", "Spark runs every job"),
    Key("job.commit.policy", "commit.policy", values.lower, _SEED),
    Key(
        "publish.data.at.job.level",
        mark=_SEED,
        note="the commit publishes, never a task; `commit.scope: job` makes all datasets of a run one",
        holds=("true",),
    ),
    Key("job.commit.partial.fail.task.fails.job.commit", "commit.failed_units_fail_run", values.switch),
    Key("job.commit.parallelize", "commit.parallelism", note="false: 1"),
    Key("job.commit.parallelCommits", "commit.parallelism", values.count),
    _needless("job.max.failures", _ALERTS, _RARE),
    _needless("job.lock.*", _LEASE),
    Key("job.listeners", mark=_RARE, note="Dagster's sensors take their place"),
    _needless("job.template", _LOADER),
    _needless("gobblin.template.*", _LOADER),
    Key("task.maxretries", "execution.retries.count", values.count),
    Key("task.retry.intervalinsec", "execution.retries.backoff_s", values.number, _RARE, "doubled at each retry"),
    _needless("taskexecutor.threadpool.size", _POOL, _RARE),
    _needless("taskretry.threadpool.coresize", _POOL, _RARE),
    Key(
        "workunit.retry.enabled",
        "execution.retry_failed",
        note="where no policy is given; true: `always`, false: `never`",
    ),
    Key("workunit.retry.policy", "execution.retry_failed"),
    Key("extract.limit.enabled", "execution.limit.rows", mark=_RARE, note="false: no limit"),
    Key(
        "extract.limit.type", "execution.limit.rows", mark=_RARE, note="count, time or rate; what is left is read later"
    ),
    Key(
        "extract.limit.count.limit",
        "execution.limit.rows",
        mark=_RARE,
        note="a unit ends at the first position behind so many rows, for files at the end of a file",
    ),
    Key("extract.limit.timeLimit", "execution.limit.seconds", mark=_RARE),
    Key("extract.limit.timeLimitTimeunit", "execution.limit.seconds", mark=_RARE, note="default: seconds"),
    Key("extract.limit.rateLimit", "execution.limit.rows_per_second", mark=_RARE),
    Key("extract.limit.rateLimitTimeunit", "execution.limit.rows_per_second", mark=_RARE, note="default: seconds"),
    Key(
        "overwrite.configs.in.statestore",
        mark=_RARE,
        note="a retried work unit always takes today's job",
        holds=("true",),
    ),
    _refused("workunit.skip", "select datasets with --exclude", _RARE, holds=("false",)),
    Key("dataset.urn", "source(kafka).group", mark=_SEED, note="other sources name their datasets by themselves"),
    _refused("dataset.specific.props", "write a job of its own for these datasets"),
    _refused("kafka.topic.specific.state", "write a job of its own for these topics"),
    _needless("task.execution.synchronousExecutionModel", "branches always run side by side", _RARE),
    Key("task.executionMode", mark=_RARE, note="jobs run in batches", holds=("batch",)),
    Key(
        "task.skip.error.records", "converters(*).max_errors", values.count, note="sets `on_error: skip`, per work unit"
    ),
    _needless("cleanup.staging.data.per.task", _STAGING, _RARE),
    _needless("cleanup.old.job.data", "`gobblin clean` does so", _RARE),
    _needless("task.data.root.dir", _STAGING),
    _needless("email.*", _ALERTS),
    _needless("metrics.*", _METRICS),
    Key("encrypt.key.loc", note="secrets come from the environment: ${env:NAME}"),
    Key("fs.uri", "output.path"),
    Key("gobblin.runtime.delivery.semantics", "commit.delivery", values.lower, _SEED),
    _needless("gobblin.runtime.commit.sequence.store.*", _STATE, _SEED),
    _needless("jobconf.*", "the project says where its jobs are"),
    _needless("mr.*", "no MapReduce here", _RARE),
    _needless("mapreduce.*", "no MapReduce here", _RARE),
    _needless("zookeeper.*", "no ZooKeeper here", _RARE),
    _needless("filebased.*", _METRICS, _RARE),
)

STATE = (
    _refused(
        "state.store.enabled",
        "a job always has its state; `extract.is.full=true` reads all of a database in each run",
        holds=("true",),
    ),
    _needless("state.store.dir", _STATE, _SEED),
    _needless("state.store.type", _STATE),
    _needless("dataset.state.store.type", _STATE),
    _needless("intermediate.state.store.type", _STATE),
    _needless("state.store.fs.uri", _STATE),
    _needless("state.store.db.*", _STATE),
    _needless("state.store.compressedValues", _STATE, _RARE),
    Key("streaming.*", mark=_RARE, note="jobs run in batches"),
)

QUERY = (
    Key("source.class", "source.type", note="Gobblin's classes, `module:Class`, or `classes` of gobblin.yaml"),
    Key("source.entity", "source(query).tables", note="without `source.entities`; names the table of other sources"),
    Key("source.entities", "source(query).tables", values.words),
    Key(
        "entity.whitelist",
        "source(query).tables",
        values.patterns,
        note="keeps those of `source.entities` that it matches whole",
    ),
    Key(
        "entity.blacklist",
        "source(query).tables",
        values.patterns,
        note="leaves out those of `source.entities` that it matches whole",
    ),
    Key(
        "extract.namespace",
        "extract.namespace",
        values.name,
        _SEED,
        "dots and dashes become `_`; of Kafka `KAFKA`, of `SimpleJsonSource` by default `ExampleNamespace`, as there",
    ),
    Key(
        "extract.table.name",
        "extract.table",
        values.name,
        note="default: `source.entity`, or the job's name; as there, `DatePartitioned...` sources take the name of "
        "their folder, and `SimpleJsonSource` takes `ExampleTable`",
    ),
    Key("extract.table.name", "source(query).tables", note="without `source.entity` and `source.entities`"),
    Key(
        "extract.table.type",
        "extract.type",
        values.lower,
        _SEED,
        "as there, it makes no extract full: SNAPSHOT_ONLY is `snapshot_append`, but for tables without a watermark, "
        "which are read whole in each run, and with `extract.is.full=true`",
    ),
    Key(
        "extract.delta.fields",
        "source(query).watermark.column",
        values.only,
        _SEED,
        "one column; as there, no watermark without `source.querybased.watermark.type`",
    ),
    Key("extract.delta.fields", "extract.delta_fields", values.words, _SEED),
    Key("extract.primary.key.fields", "source(query).primary_key", values.words, _SEED),
    Key("extract.primary.key.fields", "extract.primary_keys", values.words, _SEED),
    Key(
        "extract.is.full",
        "extract.is_full",
        values.switch,
        note="not of Kafka and of files that are read on from run to run, as there",
    ),
    Key(
        "source.querybased.watermark.type", "source(query).watermark.type", values.watermark_type, note="simple: `long`"
    ),
    Key("source.querybased.extract.type", "source(query).partition_interval", note="APPEND_DAILY: intervals are days"),
    Key(
        "source.querybased.partition.interval", "source(query).partition_interval", values.count, note="hours, or days"
    ),
    Key("source.max.number.of.partitions", "source(query).max_partitions", note="0: 20"),
    Key("source.querybased.start.value", "source(query).start", values.position),
    Key(
        "source.querybased.end.value",
        "source(query).end",
        values.after_position,
        note="inclusive there, exclusive here; as there, only of full extracts of the types APPEND_...",
    ),
    _refused(
        "source.querybased.is.watermark.override",
        "`gobblin startpoint set` a watermark: it counts for one run",
        holds=("false",),
    ),
    Key(
        "source.querybased.append.max.watermark.limit",
        "source(query).max_watermark",
        note="as there, not of the extract type SNAPSHOT, and not of full extracts",
    ),
    Key(
        "source.querybased.low.watermark.backup.secs",
        "source(query).overlap",
        note="of the extract type SNAPSHOT alone, as there; of the watermark type simple a number",
    ),
    _refused(
        "source.querybased.skip.high.watermark.calc",
        "the high watermark bounds what is read, else rows are lost",
        holds=("false",),
    ),
    Key("source.querybased.skip.count.calc", "source(query).count_rows", values.switched_off),
    _needless("source.querybased.allowRemoveUpperBounds", "every read is bounded, so that no row is read twice", _RARE),
    _needless("source.querybased.resetEmptyPartitionWatermark", "empty ranges are committed like others", _RARE),
    Key("source.querybased.query", "source(query).query"),
    _needless("source.querybased.is.compression", "see the driver's options in the URL", _RARE),
    Key("source.querybased.schema", "source(query).url", note="the database of the URL"),
    Key("source.querybased.excluded.columns", "source(query).exclude_columns", values.words),
    Key("source.querybased.fetch.size", "source(query).fetch_rows", values.count),
    Key("source.querybased.jdbc.resultset.fetch.size", "source(query).fetch_rows", values.count),
    _refused("source.querybased.hourly.extract", "take the watermark type `hour`", holds=("false",)),
    _refused("source.querybased.hour.column", "take one column that holds day and hour"),
    Key("source.timezone", "source(query).timezone", note="default: America/Los_Angeles, as there"),
    Key("source.timezone", "source(files).timezone", note="default: America/Los_Angeles, as there"),
    _refused(
        "partitioner.hasUserSpecifiedPartitions",
        "each run would read these ranges again, and nothing else; convert the job to YAML and give the source "
        "`start`, `end` and `split_points`",
        _RARE,
        holds=("false",),
    ),
    _needless("partitioner.userSpecifiedPartitions", "without `hasUserSpecifiedPartitions` they do not count", _RARE),
    _refused("partitioner.isEarlyStopped", "see `execution.max_work_units`", _RARE, holds=("false",)),
    Key("partitioner.allowEqualWatermarkBoundary", mark=_RARE, note="ranges are half-open", holds=("false",)),
    Key("source.conn.host", "source(query).url"),
    Key("source.conn.port", "source(query).url"),
    Key("source.conn.username", "source(query).url"),
    Key("source.conn.password", "source(query).url", note="${env:NAME} only; the variable holds it percent-encoded"),
    _needless("source.conn.driver", "the URL names the database"),
    _refused("source.conn.database", _URL),
    _refused("source.conn.sid", _URL),
    Key("source.conn.*", note=_URL),
)

KAFKA = (
    Key("kafka.brokers", "source(kafka).brokers"),
    Key("topic.whitelist", "source(kafka).topics", values.patterns),
    Key("topic.blacklist", "source(kafka).exclude", values.patterns),
    Key("kafka.deserializer.type", "source(kafka).value", note="BYTE_ARRAY, STRING or CONFLUENT_AVRO"),
    Key("kafka.schema.registry.url", "source(kafka).value"),
    Key("bootstrap.with.offset", "source(kafka).bootstrap", note="offset_lookback: `lookback`"),
    Key("kafka.offset.lookback", "source(kafka).lookback", values.count),
    Key("reset.on.offset.out.of.range", "source(kafka).on_out_of_range", values.lower),
    _refused("topics.move.to.latest.offset", "`gobblin startpoint set` it to `upcoming`: it counts for one run", _RARE),
    Key(
        "gobblin.kafka.shouldEnableDatasetStateStore",
        "source(kafka).group",
        note="false: one dataset of all topics, named by `dataset.urn` or the job; default here: true",
    ),
    _refused("gobblin.kafka.allowPeriodInTopicName", "add `.*[.].*` to topic.blacklist", _RARE, holds=("true",)),
    _needless(
        "gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization",
        "as there, the namespace is `KAFKA` unless it is true",
        _RARE,
    ),
    Key("mr.job.max.mappers", "execution.packs", values.count),
    Key("kafka.workunit.packer.type", "execution.packing", values.lower),
    Key("kafka.workunit.packer.customizedType", note="SINGLE_LEVEL or BI_LEVEL"),
    _needless("kafka.workunit.size.estimator.*", "sizes are estimated by what earlier runs took", _RARE),
    _needless("workunit.pre.grouping.size.factor", "see `execution.packing`", _RARE),
    _needless("mr.target.mapper.size", _PACKING, _RARE),
    _needless("min.multiworkunit.load", "an output of Gobblin's packer", _RARE),
    _needless("max.multiworkunit.load", "an output of Gobblin's packer", _RARE),
)

FILES = (
    Key("source.filebased.data.directory", "source(files).path", note="with a pattern for the names in it"),
    Key("source.filebased.fs.uri", "source(files).path"),
    Key("date.partitioned.source.partition.pattern", "source(files).path", note="yyyy, MM, dd, HH and mm"),
    Key("date.partitioned.source.partition.prefix", "source(files).path"),
    Key("date.partitioned.source.partition.suffix", "source(files).path"),
    Key(
        "date.partitioned.source.partition.granularity",
        "source(files).path",
        note="default: HOUR; where no pattern is given",
    ),
    Key("date.partitioned.source.partition.lead_time.size", "source(files).lead_time"),
    Key(
        "date.partitioned.source.partition.lead_time.granularity",
        "source(files).lead_time",
        note="MINUTE, HOUR or DAY; default: HOUR",
    ),
    Key(
        "date.partitioned.source.min.watermark.value",
        "source(files).start",
        note="written like the folders; as there, the folder behind it is the first, with which a day must begin",
    ),
    Key(
        "date.partitioned.source.max.files.per.job", "source(files).max_files_per_run", values.count, note="per dataset"
    ),
    Key("date.partitioned.source.max.workunits.per.job", "execution.max_work_units", values.count),
    _refused(
        "source.hadoop.*",
        "each run of Gobblin's reads all of these files; name their folder in source.filebased.data.directory, whose "
        "files are read once, or write extract.is.full=true beside it",
        _RARE,
    ),
    _refused(
        "date.partitioned.source.lookback.time",
        "each run would read the files of that time again, and none before it; convert the job to YAML and give the "
        "source `start` and `lookback`, which reads late files once",
    ),
    Key("source.filebased.maxFilesPerRun", "source(files).max_files_per_run", values.count, note="per dataset"),
    Key("source.filebased.fs.prior.snapshot.required", mark=_RARE, note="a state without its snapshot is never stored"),
    Key("source.filebased.files.to.pull", "source(files).path", values.words, note="files of one folder, or a pattern"),
    _needless("source.filebased.fs.snapshot", "Gobblin's own note of what it has seen; the state holds ours"),
    Key("source.filebased.preserve.file.name", mark=_RARE, note="files are named by their work unit", holds=("false",)),
    _refused(
        "source.filebased.downloader.class",
        "files are read by lines, as `TokenizedFileDownloader` does; for CSV with a header or line breaks, convert "
        "the job to YAML and give it `format: {type: csv}`",
        holds=("tokenizedfiledownloader", "org.apache.gobblin.source.extractor.filebased.tokenizedfiledownloader"),
    ),
    _refused(
        "source.skip.first.record",
        "the header would be published as a row; convert the job to YAML and give it `format: {type: csv}`",
        holds=("false",),
    ),
    Key("source.schema", "converters(csv_text).columns", values.column_names),
    Key("source.schema", "converters(json_text).columns", values.shapes),
    Key("source.schema", "converters(columns).columns", values.columns),
    _refused("schema.in.source.dir", "write the schema into the job", _RARE, holds=("false",)),
    Key("schema.filename", mark=_RARE, note="write the schema into the job"),
)

CONVERTERS = (
    Key("converter.classes", "converters", values.words, _SEED),
    Key("gobblin.converter.schemaInjector.schema", "converters(csv_text).columns", values.column_names),
    Key("gobblin.converter.schemaInjector.schema", "converters(columns).columns", values.columns),
    Key(
        "gobblin.converter.schemaInjector.schema",
        "converters(avro_bytes).avro_schema",
        values.json_object,
        note="of `BytesToAvroConverter`",
    ),
    _needless("gobblin.converter.jsonStringToJsonIntermediate.*", "nested fields are always unpacked", _RARE),
    Key("converter.csv.to.json.delimiter", "converters(csv_text).delimiter", note="its first character"),
    Key(
        "converter.csv.to.json.enclosedchar",
        "converters(csv_text).quote",
        values.quote,
        note="without it, CsvToJsonConverter takes each quote for text, as there",
    ),
    _refused("converter.csv_to_json.custom_order", "list the columns in the order of the file, then `select` them"),
    Key("converter.sample.ratio", "converters(sample).ratio", values.number, note="default: 0.01, as there"),
    Key("converter.fieldsToEncrypt", "converters(encrypt).columns", values.words),
    _refused(
        "converter.encrypt.*",
        "keys come from the environment; in `classes` of gobblin.yaml give the class `{type: encrypt, columns: [...], "
        "key_env: NAME}`",
    ),
    _refused("converter.avro.date.*", "name columns and forms in a converter `parse_timestamps`", _RARE),
    Key("converter.avro.jdbc.entry_fields_pairs", "converters(rename).columns", values.pairs, note="JSON"),
    Key("converter.avro.fields", "converters(select).columns", values.words),
    Key(
        "<table>.remove.fields",
        "converters(drop).columns",
        values.columns_whole,
        note="`<table>` is the text of `extract.table.name`; each column must be there",
    ),
    Key(
        "converter.avro.extractor.field.path",
        "converters(AvroFieldRetrieverConverter).select",
        values.retrieved,
    ),
    Key(
        "converter.avro.extractor.field.path",
        "converters(AvroFieldRetrieverConverter).where",
        values.is_there,
        note="rows without the field are left out",
    ),
    Key(
        "FlattenNestedKeyConverter.fieldsToFlatten",
        "converters(FlattenNestedKeyConverter).select",
        values.flattened,
        note="`address.city` becomes a column `addressCity` behind the others",
    ),
    Key(
        "converter.filter.field",
        "converters(AvroFilterConverter).column",
        values.column_whole,
        note="a whole column; a field of one is refused",
    ),
    Key("converter.filter.value", "converters(AvroFilterConverter).equals"),
    Key(
        "converter.string.filter.pattern",
        "converters(StringFilterConverter).matches",
        values.pattern,
        note="matched by RE2: `.` matches line ends too but for `\\n`, `(?i)` all letters, `\\b` knows ASCII; a "
        "branch's converter needs the branch's index, as there",
    ),
    Key("converter.string.splitter.delimiter", "converters(split).delimiter"),
)

FORK = (
    Key("fork.operator.class", "fork.operator", mark=_SEED, note="own ones by `classes` of gobblin.yaml"),
    Key("fork.branches", "fork.branches", values.count, _SEED),
    Key("fork.branch.name", "fork.branches.name", mark=_SEED, note="default `fork_<i>`", per_branch=True),
    Key("fork.record.queue.capacity", "fork.queue_capacity", mark=_SEED, note="records there, batches of 5,000 here"),
    Key("fork.record.queue.timeout", "fork.queue_timeout_s", mark=_SEED),
    Key("fork.record.queue.timeout.unit", "fork.queue_timeout_s", mark=_SEED),
    _needless("fork.max.wait.minutes", "the end of a branch is waited for", _RARE),
    _needless("fork.finished.check.interval", "the end of a branch is waited for", _RARE),
    _needless("fork.closeWriterOnCompletion", "a writer always ends with its branch", _RARE),
    _needless("fork.state", "Gobblin's own note; a run's report holds ours", _RARE),
)

QUALITY = (
    Key("qualitychecker.task.policies", "task_policies", values.words, _SEED),
    Key("qualitychecker.task.policy.types", "task_policies.enforce", values.words, _SEED),
    Key("qualitychecker.row.policies", "row_policies", values.words, _SEED),
    Key("qualitychecker.row.policy.types", "row_policies.on_violation", values.words, _SEED),
    _needless("qualitychecker.row.err.file", "rejected rows are published beside the branches, in `quarantine`"),
    _needless("qualitychecker.row.errFile.recordsPerTask", "see `max_share` of row policies", _RARE),
    Key("qualitychecker.row.count.range", "task_policies(row_count_range).tolerance", values.number),
    Key("qualitychecker.timezone", note="times without a zone are UTC", holds=("utc",)),
    Key("record.max.allowed.time.ago", "row_policies(not_older).max_age"),
    Key("writer.partition.columns", "row_policies(not_older).column", values.only, note="one timestamp column"),
    Key("data.quality.enforce.failure", "task_policies.enforce", note="default here: true, as in the documents"),
)

WRITER = (
    Key("writer.builder.class", "writer.type"),
    Key("writer.destination.type", "writer.type", mark=_SEED),
    Key("writer.output.format", "writer.type", mark=_SEED, note="JSON: `jsonl`, TXT: `text`"),
    Key("writer.fs.uri", "output.path", mark=_SEED, note="one file system for all branches"),
    _needless("writer.staging.dir", _STAGING, _SEED),
    _needless("writer.output.dir", _STAGING, _SEED),
    Key("writer.file.name", "writer(*).file_name", note="without its extension; `{unique}` is added"),
    Key("writer.include.record.count.in.file.names", "writer(*).file_name", note="true: `{rows}` is added"),
    Key("writer.file.path", "fork.branches.path", note="with the dataset's folder behind it"),
    Key("writer.file.pathType", "fork.branches.path", note=_LAYOUT),
    Key("writer.file.path.type", "fork.branches.path", note=_LAYOUT),
    _needless("writer.addTaskTimestamp", "each attempt's files have names of their own", _RARE),
    Key("writer.codec.type", "writer(avro).compression", values.lower),
    Key("writer.codec.type", "writer(parquet).compression", note="null: `none`"),
    Key("writer.deflate.level", note="the codec's own default", holds=("6", "9")),
    _needless("writer.buffer.size", "see `buffer_bytes` of the writer; Gobblin's few KB would be slow"),
    Key("writer.file.permissions", "output.file_mode"),
    Key("writer.dir.permissions", "output.dir_mode"),
    Key("writer.group.name", "output.group"),
    Key("writer.file.replication.factor", note=_FS),
    Key("writer.file.block.size", note=_FS),
    _needless("writer.eager.initialization", "a writer begins with its first row", _RARE),
    Key("writer.partitioner.class", "writer(*).partition_by", mark=_SEED, note="TimeBased..., or `module:Class`"),
    Key(
        "writer.partition.columns",
        "writer(*).partition_by",
        values.only,
        note="one date or timestamp column",
    ),
    Key("writer.partition.granularity", "writer(*).partition_by", values.lower),
    Key("writer.partition.timezone", "writer(*).partition_by", note="default: America/Los_Angeles, as there"),
    Key("writer.partition.prefix", "writer(*).partition_by", note="the level's name; default `date`"),
    _refused("writer.partition.suffix", "a level is `name=value`"),
    Key("writer.partition.pattern", "writer(*).partition_by", note="tells the granularity"),
    _refused(
        "writer.partition.timeUnit",
        "the column must be a date or timestamp; see the converter `parse_timestamps`",
    ),
    _needless("writer.include.partition.in.file.names", "partition folders are always `name=value`", _RARE),
    _needless("writer.parquet.*", "files hold columns as they are", _RARE),
    _refused("writer.jdbc.*", "see the publisher `sql_table`"),
    _refused("jdbc.publisher.*", "see the publisher `sql_table`"),
    _refused("simple.writer.delimiter", "lines end with a line feed", holds=("\\n", "\n", "")),
    _refused("simple.writer.prepend.size", "lines end with a line feed", holds=("false",)),
    Key("gobblin.writer.retry.*", note="a work unit is tried again whole: `task.maxretries`"),
    _needless("partitionedDataWriter.*", "open files are bounded: `max_open_files` of the writer", _RARE),
)

PUBLISHER = (
    Key("data.publisher.type", "publisher", mark=_SEED),
    Key("data.publisher.job.type", "publisher"),
    Key("data.publisher.task.type", note="a dataset is always published as one"),
    Key(
        "data.publisher.final.dir",
        "output.path",
        mark=_SEED,
        note="the folder that the branches share",
        per_branch=True,
    ),
    Key(
        "data.publisher.final.dir",
        "fork.branches.path",
        mark=_SEED,
        note="the rest of a branch's own folder, with namespace, table, branch and dataset below it",
        per_branch=True,
    ),
    Key("data.publisher.fs.uri", "output.path", per_branch=True),
    Key("data.publisher.replace.final.dir", "publisher", note="true: `replace`", per_branch=True),
    _needless("data.publisher.overwrite.enabled", "published files have names of their own", per_branch=True),
    _refused("data.publisher.appendExtractToFinalDir", "namespace and table are always folders", holds=("true",)),
    Key("data.publisher.permissions", "output.dir_mode", mark=_RARE, per_branch=True),
    Key("data.publisher.output.dir.group", "output.group", mark=_RARE, per_branch=True),
    Key("data.publisher.final.name", mark=_RARE, note="files are named by their work unit", per_branch=True),
    _needless("data.publisher.canBeSkipped", "a cancelled run commits what was whole", _RARE),
    _needless("data.publisher.retry.*", "the next run finishes what was begun", _RARE),
    Key("data.publisher.metadata.*", mark=_RARE, note="the snapshot's manifest names files, rows and schema"),
)

COPY = (
    Key("gobblin.dataset.*", note="copying files as they are is not there"),
    Key("gobblin.copy.*", note="copying files as they are is not there"),
    Key("distcp.*", mark=_RARE, note="copying files as they are is not there"),
)

SECTIONS = {
    "Job, commit and scheduling": JOB,
    "State": STATE,
    "Databases, and every source": QUERY,
    "Kafka": KAFKA,
    "Files": FILES,
    "Converters": CONVERTERS,
    "Fork": FORK,
    "Quality": QUALITY,
    "Writers": WRITER,
    "Publishers": PUBLISHER,
    "Copying files": COPY,
}
"""Keys by the part of a job that they speak of."""
KEYS = tuple(key for keys in SECTIONS.values() for key in keys)
