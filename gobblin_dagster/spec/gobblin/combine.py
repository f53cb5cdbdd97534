"""Fields that are made from several Gobblin keys. Each function gets texts by key and returns the field's value."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any

from gobblin_dagster.spec.gobblin import combine_files, values
from gobblin_dagster.spec.gobblin.classes import PUBLISHERS

Texts = Mapping[str, str]
"""Texts by key, without the branch's index."""

DEFAULT_ZONE = "America/Los_Angeles"
"""Zone of Gobblin for sources and for time partitions where the job names none."""
_BATCH_ROWS = 5_000
_DIALECTS = {
    "MysqlSource": "mysql+pymysql",
    "OracleSource": "oracle+oracledb",
    "PostgresqlSource": "postgresql",
    "SqlServerSource": "mssql+pyodbc",
    "TeradataSource": "teradatasql",
}
"""SQLAlchemy's names, by the last name of a source's class."""
_UNIT_SECONDS = {
    "NANOSECONDS": 1e-9,
    "MICROSECONDS": 1e-6,
    "MILLISECONDS": 1e-3,
    "SECONDS": 1.0,
    "MINUTES": 60.0,
    "HOURS": 3600.0,
    "DAYS": 86400.0,
}
_FORMATS = {"avro": "avro", "parquet": "parquet", "orc": "orc", "json": "jsonl", "csv": "csv", "txt": "text"}
"""Our writer by Gobblin's output format, in lower case."""
WRITER_TYPES = frozenset({*_FORMATS.values(), "console"})
"""Our types for Gobblin's writers; `writer.output.format` does not apply to others."""
_GRANULARITIES = {"y": "year", "M": "month", "d": "day", "H": "hour"}


def url(texts: Texts) -> str:
    """Return a database's URL; the password may only come from the environment."""
    dialect = _DIALECTS.get(texts["source.class"].rpartition(".")[2])
    if dialect is None:
        raise ValueError("the class does not tell the database; name it in `classes` of gobblin.yaml, with its `url`")
    if "source.conn.host" not in texts:
        raise ValueError("source.conn.host is missing")
    host = texts["source.conn.host"]
    user, password = texts.get("source.conn.username", ""), texts.get("source.conn.password", "")
    port = f":{texts['source.conn.port']}" if "source.conn.port" in texts else ""
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return f"{dialect}://{login}{host}{port}/{texts.get('source.querybased.schema', '')}"


def tables(texts: Texts) -> list[str] | None:
    """Return the listed tables, without those that the whitelist or blacklist excludes; None if a query is read.

    As in Gobblin, `source.entity` counts only without `source.entities`, the extract's table only without both.
    """
    if "source.querybased.query" in texts:
        return None
    names = ("source.entities", "source.entity", "extract.table.name")
    listed = next((found for name in names if (found := values.words(texts.get(name, "")))), [])
    allowed, refused = (_patterns(texts, f"entity.{name}list") for name in ("white", "black"))
    if not listed:
        raise ValueError("it chooses from the tables that source.entities lists, which is missing")
    if not allowed and not refused:
        return list(dict.fromkeys(listed))
    if any("${" in text for text in (*listed, *allowed, *refused)):
        raise ValueError("a list with a variable cannot be compared with another; write the names themselves")
    found = [
        name
        for name in dict.fromkeys(listed)
        if not _matches(refused, name) and (not allowed or _matches(allowed, name))
    ]
    if not found:
        raise ValueError("entity.whitelist and entity.blacklist leave no table of source.entities")
    return found


def _patterns(texts: Texts, key: str) -> list[str]:
    try:
        return values.patterns(texts.get(key, ""))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _matches(patterns: list[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name, re.ASCII) for pattern in patterns)  # Java's classes are ASCII's


def overlap(texts: Texts) -> str | int | values.Plain | None:
    """Return the distance that is read again for late rows; Gobblin does so only for the extract type SNAPSHOT."""
    given = values.count(texts["source.querybased.low.watermark.backup.secs"])
    if _extract_type(texts) != "SNAPSHOT" or given == 0:
        return None
    return given if _is_simple(texts) else f"{given}s"


def partition_interval(texts: Texts) -> int | str | None:
    """Return the width of a work unit: hours, or days for APPEND_DAILY; for numbers a plain number."""
    given = values.count(texts.get("source.querybased.partition.interval", "0"))
    kind = _extract_type(texts)
    if kind not in ("SNAPSHOT", "APPEND_DAILY", "APPEND_HOURLY", "APPEND_BATCH"):
        raise ValueError(f"expected SNAPSHOT, APPEND_DAILY, APPEND_HOURLY or APPEND_BATCH, got {kind[:60]!r}")
    watermark = texts.get("source.querybased.watermark.type", "timestamp").lower()
    if isinstance(given, values.Plain):
        raise ValueError("expected a number of hours; a variable has no unit")
    if kind == "APPEND_DAILY" and watermark != "simple":
        return f"{max(given, 1)}d"
    if given <= 0:
        return None
    if watermark == "simple":
        return given
    return f"{given}{'d' if watermark == 'date' else 'h'}"


def max_partitions(texts: Texts) -> int | values.Plain:
    """Return the most work units of a range; 0 stands for the default."""
    return values.count(texts["source.max.number.of.partitions"]) or 20


def start(texts: Texts) -> str | int:
    """Return the first position; of the watermark type simple a number, whatever date its digits may look like."""
    given = texts["source.querybased.start.value"]
    return values.whole(given) if _is_simple(texts) else values.position(given)


def end(texts: Texts) -> str | int | None:
    """Return the position to stop before; Gobblin's is inclusive, and counts only for full extracts of APPEND_...."""
    if _extract_type(texts) == "SNAPSHOT" or not _is_full(texts):
        return None
    given = texts["source.querybased.end.value"]
    return values.whole(given) + 1 if _is_simple(texts) else values.after_position(given)


def max_watermark(texts: Texts) -> str | None:
    """Return the age of the newest rows to read; in Gobblin it counts only for extracts of APPEND_... that go on."""
    if _extract_type(texts) == "SNAPSHOT" or _is_full(texts):
        return None
    return values.upper(texts["source.querybased.append.max.watermark.limit"])


def _extract_type(texts: Texts) -> str:
    return texts.get("source.querybased.extract.type", "SNAPSHOT").upper()


def _is_full(texts: Texts) -> bool:
    return values.decides(texts, "extract.is.full")


def _is_simple(texts: Texts) -> bool:
    return texts.get("source.querybased.watermark.type", "timestamp").lower() == "simple"


def message_value(texts: Texts) -> dict[str, str]:
    """Return the decoder of messages' values."""
    given = texts.get("kafka.deserializer.type", "").upper()
    registry = texts.get("kafka.schema.registry.url")
    if given == "CONFLUENT_AVRO" and registry is None:
        raise ValueError("kafka.schema.registry.url is missing")
    kind = {"CONFLUENT_AVRO": "avro", "BYTE_ARRAY": "bytes", "STRING": "string", "": "avro"}.get(given)
    if kind is None:
        raise ValueError(f"expected BYTE_ARRAY, STRING or CONFLUENT_AVRO, got {given[:60]!r}")
    return {"type": kind, "registry": registry} if kind == "avro" and registry else {"type": kind}


def bootstrap(texts: Texts) -> str:
    """Return where a topic without a watermark begins."""
    given = values.lower(texts["bootstrap.with.offset"])
    return {"offset_lookback": "lookback"}.get(given, given)


def group(texts: Texts) -> str | None:
    """Return the urn of the single dataset for all topics; None for one dataset per topic."""
    if values.decides(texts, "gobblin.kafka.shouldEnableDatasetStateStore"):
        return None
    return texts.get("dataset.urn") or texts.get("job.name")


def parallelism(texts: Texts) -> int | values.Plain:
    """Return the number of threads that commit."""
    is_parallel = values.decides(texts, "job.commit.parallelize", "true")
    return values.count(texts.get("job.commit.parallelCommits", "8")) if is_parallel else 1


def queue_capacity(texts: Texts) -> int:
    """Return the number of batches for a number of records."""
    given = values.count(texts["fork.record.queue.capacity"])
    if isinstance(given, values.Plain) or given < 1:
        raise ValueError("expected a number of records, 1 or more")
    return math.ceil(given / _BATCH_ROWS)


def queue_timeout(texts: Texts) -> float:
    """Return the timeout in seconds."""
    given = values.number(texts.get("fork.record.queue.timeout", "1000"))
    if isinstance(given, values.Plain):
        raise ValueError("expected a number; a variable has no unit")
    return given * _seconds_of(texts.get("fork.record.queue.timeout.unit", "MILLISECONDS"))


def _seconds_of(unit: str) -> float:
    if unit.upper() not in _UNIT_SECONDS:
        raise ValueError(f"expected a unit of {', '.join(_UNIT_SECONDS)}, got {unit[:60]!r}")
    return _UNIT_SECONDS[unit.upper()]


def writer_type(texts: Texts, builder: str | None) -> str:
    """Return a writer's type; `builder` is that of its builder's class, None if none is named."""
    destination = texts.get("writer.destination.type", "HDFS").upper()
    if destination != "HDFS" and builder is None:
        raise ValueError(
            f"there is no writer for the destination {destination[:60]}; name one in `writer.builder.class`"
        )
    given = texts.get("writer.output.format", "")
    if given.lower() in ("", "other"):
        return builder or "avro"
    found = _FORMATS.get(given.lower())
    if found is None:
        raise ValueError(f"expected one of {', '.join(_FORMATS).upper()}, got {given[:60]!r}")
    if builder in ("text", "console", None) and found in ("text", "csv", "jsonl"):
        return builder if builder == "console" else found
    if builder not in (found, None, "console"):
        raise ValueError(
            f"the format {given.upper()} is not what the builder's class writes: {builder}; keep one of both"
        )
    return builder or found


def parquet_codec(texts: Texts) -> str:
    """Return a codec by Parquet's name."""
    given = values.lower(texts["writer.codec.type"])
    return {"null": "none", "deflate": "gzip"}.get(given, given)


def publisher(texts: Texts) -> dict[str, str] | None:
    """Return the publisher for one of Gobblin's classes; None for the default."""
    is_replacing = values.decides(texts, "data.publisher.replace.final.dir")
    given = texts.get("data.publisher.job.type") or texts.get("data.publisher.type", "")
    by_last_name = {name.rpartition(".")[2]: found for name, found in PUBLISHERS.items()}
    found = given if ":" in given else by_last_name.get(given.rpartition(".")[2])
    if given and found is None:
        raise ValueError(f"there is no publisher for the class {given[:80]}; known: {', '.join(sorted(by_last_name))}")
    if is_replacing and found == "timestamped":
        raise ValueError(f"data.publisher.replace.final.dir=true does not go with {given[:80]}; remove one of both")
    if is_replacing and found != "noop":
        return {"type": "replace"}
    return {"type": found} if found and found != "append" else None


def output_path(final_dirs: list[str], file_systems: list[str]) -> tuple[str, list[str]]:
    """Return the folder that contains the final folders of all branches, with its file system, and the rest of each.

    Args:
        final_dirs: the final folder of each branch.
        file_systems: the file system of each branch; empty: this machine's.
    """
    systems = {values.file_system(system) for system in file_systems}
    if len(systems) > 1:
        named = ", ".join(sorted(system or "file:///" for system in systems))
        raise ValueError(f"all branches are published to one file system, got {named[:120]}")
    scheme = systems.pop()
    final_dirs = [values.folder(one) for one in final_dirs]
    marks = {folder.rpartition("://")[0] for folder in final_dirs}
    if len(marks) > 1:
        raise ValueError("all branches are published to one file system; write all final folders as URLs, or none")
    mark = f"{marks.pop()}://".removeprefix("://")
    if odd := next((one for one in final_dirs if "${" in one and ".." in one.split("/")), None):
        raise ValueError(f"a folder behind a variable takes no `..`, as what it leaves is not known; got {odd[:60]}")
    dirs = [posixpath.normpath(folder.removeprefix(mark)) for folder in final_dirs]
    shared = dirs[0] if len(set(dirs)) == 1 else posixpath.commonpath(dirs)
    is_root = mark and "/" not in shared.strip("/") and len(set(dirs)) > 1  # a bucket, a host
    if shared in ("", "/") or is_root:
        raise ValueError("the final folders of the branches share no folder but the root; put them below one")
    rests = [folder.removeprefix(shared).strip("/") for folder in dirs]
    return (mark + shared if mark or not scheme else f"{scheme}/{shared.lstrip('/')}"), rests


def branch_path(rest: str, texts: Texts, *, is_alone: bool) -> str | None:
    """Return the template of a branch's folders; None for the default.

    Args:
        rest: what the branch's final folder has behind the one that all share.
        texts: the keys of `fork.branches.path`.
        is_alone: whether it is the job's one branch.
    """
    kind = (texts.get("writer.file.pathType") or texts.get("writer.file.path.type", "default")).lower()
    if kind not in ("default", "namespace_table", "tablename"):
        raise ValueError(f"expected default, namespace_table or tablename, got {kind[:60]!r}")
    given = texts.get("writer.file.path", "").strip("/")
    if given:
        folders = given
    elif kind == "tablename":
        folders = "{table}" if is_alone else "{table}/{branch}"
    elif not rest:
        return None
    else:
        folders = "{namespace}/{table}/{branch}"
    return "/".join(part for part in (rest, folders, "{dataset}") if part)


def file_name(texts: Texts) -> str:
    """Return the template of files' names."""
    name = re.sub(r"[^\w=-]", "-", posixpath.splitext(texts.get("writer.file.name", ""))[0], flags=re.ASCII)
    has_rows = values.decides(texts, "writer.include.record.count.in.file.names")
    return (f"{name}-" if name else "") + "{unique}" + ("-{rows}" if has_rows else "")


def retry_failed(texts: Texts) -> str:
    """Return the rule for reading failed ranges again."""
    if "workunit.retry.policy" in texts:
        return values.lower(texts["workunit.retry.policy"])
    return "always" if values.decides(texts, "workunit.retry.enabled") else "never"


def limit(kind: str, amount: str, unit: str = "") -> Callable[[Texts], float | int | None]:
    """Return a function that reads the limit of one kind; it returns None if the limit is of another kind."""

    def read(texts: Texts) -> float | int | None:
        given, is_on = values.lower(texts.get("extract.limit.type", "")), values.decides(texts, "extract.limit.enabled")
        if given not in ("count", "time", "rate", ""):
            raise ValueError(f"expected count, time or rate, got {given[:60]!r}")
        if is_on and not given and kind == "count":
            raise ValueError("extract.limit.type is missing: count, time or rate")
        if given != kind or not is_on:
            return None
        if amount not in texts:
            raise ValueError(f"{amount} is missing")
        if kind == "count":
            return values.whole(texts[amount])
        found = float(texts[amount])
        factor = _seconds_of(texts.get(unit, "SECONDS"))
        return found * factor if kind == "time" else found / factor

    return read


def own_level(texts: Texts, declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the folder level of a user-defined partitioner, as declared in `classes` or in the file itself."""
    options = {name: value for name, value in declared.items() if name != "type"}
    level = {
        "partitioner": str(declared["type"]),
        "name": texts.get("writer.partition.prefix", "partition").strip("/"),
    }
    return [level | ({"options": options} if options else {})]


def partition_by(texts: Texts) -> list[dict[str, Any]]:
    """Return the folder level of a partitioner."""
    given = texts.get("writer.partitioner.class", "")
    if ":" in given:
        return own_level(texts, {"type": given})
    if not given.rpartition(".")[2].startswith("TimeBased"):
        raise ValueError(
            "expected a TimeBased... class, `module:Class` of your own in Python, or a class that `classes` of "
            "gobblin.yaml names"
        )
    if "writer.partition.columns" not in texts:
        raise ValueError("writer.partition.columns is missing; without a column Gobblin takes the time of writing")
    level = {"column": values.only(texts["writer.partition.columns"]), "granularity": _granularity(texts)}
    if "writer.partition.prefix" in texts:
        level["name"] = texts["writer.partition.prefix"].strip("/")
    # Gobblin's default, not ours: in another zone rows would land in the folders of other days.
    level["timezone"] = texts.get("writer.partition.timezone", DEFAULT_ZONE)
    return [level]


def _granularity(texts: Texts) -> str:
    given = texts.get("writer.partition.pattern")
    if given is None:
        return values.lower(texts.get("writer.partition.granularity", "hour"))
    letters = set(re.findall("[A-Za-z]", re.sub(r"'[^']*'", "", given.replace("Y", "y"))))
    if not letters or letters - set(_GRANULARITIES):
        raise ValueError(
            f"expected a pattern of y, M, d and H, got {given[:60]!r}; levels are years, months, days or hours"
        )
    return [name for letter, name in _GRANULARITIES.items() if letter in letters][-1]


def first_letter(key: str) -> Callable[[Texts], str]:
    """Return a function that returns the first character of a key's text, as Gobblin does."""
    return lambda texts: texts[key][:1]


COMBINED: Mapping[str, Callable[[Texts], Any]] = {
    "source(query).url": url,
    "source(query).tables": tables,
    "source(query).overlap": overlap,
    "source(query).partition_interval": partition_interval,
    "source(query).max_partitions": max_partitions,
    "source(query).start": start,
    "source(query).end": end,
    "source(query).max_watermark": max_watermark,
    "source(kafka).value": message_value,
    "source(kafka).bootstrap": bootstrap,
    "source(kafka).group": group,
    "commit.parallelism": parallelism,
    "fork.queue_capacity": queue_capacity,
    "fork.queue_timeout_s": queue_timeout,
    "writer(parquet).compression": parquet_codec,
    "writer(*).partition_by": partition_by,
    "writer(*).file_name": file_name,
    "publisher": publisher,
    "execution.retry_failed": retry_failed,
    "execution.limit.rows": limit("count", "extract.limit.count.limit"),
    "execution.limit.seconds": limit("time", "extract.limit.timeLimit", "extract.limit.timeLimitTimeunit"),
    "execution.limit.rows_per_second": limit("rate", "extract.limit.rateLimit", "extract.limit.rateLimitTimeunit"),
    "source(files).path": combine_files.file_path,
    "source(files).start": combine_files.start,
    "source(files).lead_time": combine_files.lead_time,
    "converters(csv_text).delimiter": first_letter("converter.csv.to.json.delimiter"),
}
"""Functions by field. A field that is not listed is read from the first of its keys that the job has."""

_LIMITS = ("extract.limit.enabled", "extract.limit.type")
_TYPE = ("source.querybased.watermark.type",)
_EXTRACT = ("source.querybased.extract.type", "extract.is.full")
ASKED: Mapping[str, tuple[str, ...]] = {
    "source(query).url": ("source.class",),
    "source(query).tables": ("source.querybased.query",),
    "source(query).overlap": ("source.querybased.extract.type", "source.querybased.watermark.type"),
    "source(query).partition_interval": _TYPE,
    "source(query).start": _TYPE,
    "source(query).end": (*_TYPE, *_EXTRACT),
    "source(query).max_watermark": _EXTRACT,
    "source(kafka).group": ("job.name",),
    "source(files).path": ("source.class",),
    "source(files).start": combine_files.DATES,
    "publisher": ("data.publisher.type", "data.publisher.job.type"),
    "execution.limit.seconds": _LIMITS,
    "execution.limit.rows_per_second": _LIMITS,
}
"""By field, other keys that its function reads although they belong to other fields."""
