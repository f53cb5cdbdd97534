"""Registry: find the class for `type:` of a construct, and load it only when a job uses it.

A type is the short name of a built-in, a name that a package declares in the entry-point group
`gobblin_dagster.constructs` (`kind.type`, e.g. `converter.my_masker`), or `module:Class` for a class of the user that
Python can import. Names are never replaced silently: a second target for a name is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from types import FunctionType, MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from gobblin_dagster.constructs import aliases
from gobblin_dagster.constructs.formats.base import FileFormat
from gobblin_dagster.constructs.formats.published import PublishedFormat, ending_of
from gobblin_dagster.core.constructs import (
    ChecksExtract,
    ChecksPositions,
    ChoosesFolder,
    ConstructContext,
    Converter,
    DataPublisher,
    DataWriter,
    DeclaresSchema,
    ForkOperator,
    JudgesExtract,
    JudgesRows,
    JudgesTargets,
    JudgesWriter,
    KeepsLedger,
    PositionedSource,
    PreviewsSchema,
    RowLevelPolicy,
    Source,
    StartpointResolver,
    TaskLevelPolicy,
)
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError
from gobblin_dagster.core.traits import FormatTraits, PackageTraits, PublisherTraits, SourceTraits, WriterTraits
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.spec.descriptions import described_schema, description_of
from gobblin_dagster.spec.explain import explain
from gobblin_dagster.spec.job import ConstructSpec, ConverterSpec, RowPolicySpec, TaskPolicySpec

ENTRY_POINT_GROUP = "gobblin_dagster.constructs"
Fault = tuple[tuple[str | int, ...], str]
"""The place of a fault in the construct's keys, and what is wrong."""


class ConstructKind(StrEnum):
    """The kinds of constructs in a job."""

    SOURCE = "source"
    FORMAT = "format"
    """How files of the `files` source are read."""
    CONVERTER = "converter"
    ROW_POLICY = "row_policy"
    TASK_POLICY = "task_policy"
    FORK = "fork"
    WRITER = "writer"
    PUBLISHER = "publisher"


_HERE = __name__.rpartition(".")[0]
_FILE_FORMATS: dict[str, tuple[str, str]] = {
    "avro": ("formats.avro:AvroFormat", "writers.avro:AvroWriter"),
    "csv": ("formats.csv:CsvFormat", "writers.csv:CsvWriter"),
    "jsonl": ("formats.jsonl:JsonLinesFormat", "writers.jsonl:JsonLinesWriter"),
    "orc": ("formats.orc:OrcFormat", "writers.orc:OrcWriter"),
    "parquet": ("formats.parquet:ParquetFormat", "writers.parquet:ParquetWriter"),
    "text": ("formats.text:TextFormat", "writers.text:TextWriter"),
}
"""What reads and what writes the files of each format; their names end in `.<format>`."""
_BUILT_IN: dict[ConstructKind, dict[str, str]] = {
    ConstructKind.SOURCE: {
        "files": "sources.files.source:FilesSource",
        "kafka": "sources.kafka.source:KafkaSource",
        "python": "sources.python.source:PythonSource",
        "query": "sources.query.source:QuerySource",
        "rest": "sources.rest.source:RestSource",
        "spark": "sources.spark.source:SparkSource",
    },
    ConstructKind.FORMAT: {
        "json": "formats.json_documents:JsonDocumentFormat",
        **{name: reading for name, (reading, _) in _FILE_FORMATS.items()},
    },
    ConstructKind.CONVERTER: {
        "add": "converters.add:AddConverter",
        "avro_bytes": "converters.avro_bytes:AvroBytesConverter",
        "bytes_to_text": "converters.text:BytesToTextConverter",
        "child_table": "converters.child_table:ChildTableConverter",
        "columns": "converters.columns:ColumnsConverter",
        "csv_text": "converters.csv_text:CsvTextConverter",
        "decrypt": "converters.encrypt:DecryptConverter",
        "dedup": "converters.dedup:DedupConverter",
        "drop": "converters.drop:DropConverter",
        "encrypt": "converters.encrypt:EncryptConverter",
        "explode": "converters.explode:ExplodeConverter",
        "filter": "converters.filter:FilterConverter",
        "flatten": "converters.flatten:FlattenConverter",
        "function": "converters.function:FunctionConverter",
        "hash": "converters.hash:HashConverter",
        "json_text": "converters.json_text:JsonTextConverter",
        "mask": "converters.mask:MaskConverter",
        "parse_timestamps": "converters.parse_timestamps:ParseTimestampsConverter",
        "rename": "converters.rename:RenameConverter",
        "sample": "converters.sample:SampleConverter",
        "schema": "converters.schema:SchemaConverter",
        "select": "converters.select:SelectConverter",
        "split": "converters.explode:SplitConverter",
        "sql": "converters.sql:SqlConverter",
        "text_to_bytes": "converters.text:TextToBytesConverter",
        "to_json": "converters.text:ToJsonConverter",
    },
    ConstructKind.ROW_POLICY: {
        "in_set": "quality.values:InSetRowPolicy",
        "not_null": "quality.not_null:NotNullRowPolicy",
        "not_older": "quality.values:NotOlderRowPolicy",
        "range": "quality.values:RangeRowPolicy",
        "regex": "quality.values:RegexRowPolicy",
        "sql": "quality.row_sql:SqlRowPolicy",
    },
    ConstructKind.TASK_POLICY: {
        "file_size": "quality.output:FileSizePolicy",
        "freshness": "quality.output:FreshnessPolicy",
        "required_columns": "quality.schema:RequiredColumnsPolicy",
        "row_count": "quality.row_count:RowCountPolicy",
        "row_count_range": "quality.row_count:RowCountRangePolicy",
        "schema_compatible": "quality.schema:SchemaCompatibilityPolicy",
        "sql_aggregate": "quality.output:SqlAggregatePolicy",
    },
    ConstructKind.FORK: {
        "hash": "forks.shares:HashForkOperator",
        "identity": "forks.identity:IdentityForkOperator",
        "records": "forks.records:RecordForkOperator",
        "round_robin": "forks.shares:RoundRobinForkOperator",
        "sample": "forks.shares:SampleForkOperator",
        "sql": "forks.sql:SqlForkOperator",
    },
    ConstructKind.WRITER: {
        "console": "writers.console:ConsoleWriter",
        **{name: writing for name, (_, writing) in _FILE_FORMATS.items()},
    },
    ConstructKind.PUBLISHER: {
        "append": "publishers.files:AppendPublisher",
        "delta": "publishers.delta:DeltaPublisher",
        "iceberg": "publishers.iceberg:IcebergPublisher",
        "kafka_topic": "publishers.kafka_topic:KafkaTopicPublisher",
        "merge": "publishers.snapshot_merge:MergePublisher",
        "noop": "publishers.files:NoopPublisher",
        "replace": "publishers.files:ReplacePublisher",
        "replace_partitions": "publishers.files:ReplacePartitionsPublisher",
        "sql_table": "publishers.sql_table:SqlTablePublisher",
        "timestamped": "publishers.timestamped:TimestampedPublisher",
    },
}
_ALIASES: Mapping[ConstructKind, Mapping[str, str]] = {
    ConstructKind.SOURCE: aliases.SOURCES,
    ConstructKind.CONVERTER: aliases.CONVERTERS,
    ConstructKind.ROW_POLICY: aliases.ROW_POLICIES,
    ConstructKind.TASK_POLICY: aliases.TASK_POLICIES,
    ConstructKind.FORK: aliases.FORKS,
    ConstructKind.WRITER: aliases.WRITERS,
    ConstructKind.PUBLISHER: aliases.PUBLISHERS,
}
_PROTOCOLS: dict[ConstructKind, type[Any]] = {
    ConstructKind.SOURCE: Source,
    ConstructKind.FORMAT: FileFormat,
    ConstructKind.CONVERTER: Converter,
    ConstructKind.ROW_POLICY: RowLevelPolicy,
    ConstructKind.TASK_POLICY: TaskLevelPolicy,
    ConstructKind.FORK: ForkOperator,
    ConstructKind.WRITER: DataWriter,
    ConstructKind.PUBLISHER: DataPublisher,
}
_OPTIONAL: dict[ConstructKind, tuple[type[Any], ...]] = {
    ConstructKind.SOURCE: (
        SourceTraits,
        PositionedSource,
        ChecksExtract,
        ChecksPositions,
        DeclaresSchema,
        PreviewsSchema,
        StartpointResolver,
    ),
    ConstructKind.FORMAT: (FormatTraits,),
    ConstructKind.WRITER: (WriterTraits,),
    ConstructKind.PUBLISHER: (
        PublisherTraits,
        JudgesWriter,
        JudgesExtract,
        JudgesRows,
        JudgesTargets,
        KeepsLedger,
        ChoosesFolder,
    ),
}
"""Optional methods and traits by kind; without short names (`frame`, `observe`), which many names are similar to."""
_SPECS: dict[ConstructKind, type[ConstructSpec]] = {
    ConstructKind.CONVERTER: ConverterSpec,
    ConstructKind.ROW_POLICY: RowPolicySpec,
    ConstructKind.TASK_POLICY: TaskPolicySpec,
}


class Registry:
    """Find, check and make constructs by kind and type name.

    The class of a construct has an attribute `Options`, a pydantic model that is frozen and refuses unknown keys, and
    the methods of its protocol in `core.constructs`. It is made with `cls(options, context)`. A field of `Options` for
    another construct is declared as `Annotated[ConstructSpec, ConstructKind.FORMAT]`, and is checked together with the
    others.

    Source: the `*.class` and `*.alias` keys of Gobblin. Differs: classes are checked when loaded, options before a run.
    """

    def __init__(self) -> None:
        self._targets = {kind: {n: f"{_HERE}.{t}" for n, t in types.items()} for kind, types in _BUILT_IN.items()}
        self._loaded: dict[tuple[ConstructKind, str], type[Any]] = {}
        self._made: set[type[Any]] = set()
        """Classes whose objects were checked."""
        self._discovered = False

    def register(self, kind: ConstructKind, type_name: str, target: str) -> None:
        """Register `module:Class` as `type_name`; raises UsageError if the name has another target."""
        known = self._targets[kind].setdefault(type_name, target)
        if known != target:
            raise UsageError(
                problem=f"The {kind} type {type_name!r} is {known}; {target} cannot take the same name.",
                hint="Register it under another name.",
            )

    def register_format(self, name: str, *, reading: str, writing: str) -> None:
        """Register a file format for files whose names end in `.<name>`.

        Args:
            name: type name of both parts.
            reading: `module:Class` of kind `FORMAT`; its attribute `Published` can count, merge and read
                published files.
            writing: `module:Class` of kind `WRITER`.

        Raises:
            UsageError: as `register`.
        """
        self.register(ConstructKind.FORMAT, name, reading)
        self.register(ConstructKind.WRITER, name, writing)

    def file_formats(self) -> list[str]:
        """Return the names of formats that can be both read and written."""
        return sorted(self.types(ConstructKind.FORMAT).keys() & self.types(ConstructKind.WRITER).keys())

    def published_format(self, path: str, options: Mapping[str, Any]) -> PublishedFormat | None:
        """Return what counts, merges and reads back a published file; None if its name has no registered format.

        Args:
            path: path or name of the file.
            options: options of the branch's writer.

        Raises:
            UsageError: as `load`.
        """
        name, _ = ending_of(path)
        if name not in self._targets[ConstructKind.FORMAT] and name not in self.types(ConstructKind.FORMAT):
            return None
        found: type[PublishedFormat] | None = getattr(self.load(ConstructKind.FORMAT, name), "Published", None)
        return found(options) if found is not None else None

    def types(self, kind: ConstructKind) -> Mapping[str, str]:
        """Return the dotted targets by type name, including those of installed packages; read-only."""
        self._discover()
        return MappingProxyType(dict(sorted(self._targets[kind].items())))

    def short_name(self, kind: ConstructKind, type_name: str) -> str:
        """Return our name of a type that may be named as one of Gobblin's classes; others as they are."""
        # `gobblin.` is the older form of `org.apache.gobblin.`.
        full_name = aliases.PREFIX + type_name if type_name.startswith("gobblin.") else type_name
        return _ALIASES.get(kind, {}).get(full_name, type_name)

    def load(self, kind: ConstructKind, type_name: str) -> type[Any]:
        """Return the class of a type.

        Raises:
            UsageError: the type is unknown, its class cannot be imported or is no construct of this kind, or one of its
                attributes has nearly the name of an optional one.
        """
        key = (kind, type_name)
        if key not in self._loaded:
            self._loaded[key] = _checked(kind, type_name, _imported(kind, type_name, self._target(kind, type_name)))
        return self._loaded[key]

    def create(self, kind: ConstructKind, spec: ConstructSpec, context: ConstructContext, **more: Any) -> Any:
        """Make a construct from its declaration; `more` is passed to the class.

        Raises:
            UsageError: as `load`; also for attributes that `__init__` adds.
            InvalidSpecError: the options do not fit; the error has all faults.
        """
        cls = self.load(kind, spec.type)
        try:
            options = cls.Options.model_validate(spec.options)
        except ValidationError as error:
            faults = self.check(kind, spec.type, spec.options)
            raise InvalidSpecError(
                file=f"Job {context.job!r}",
                faults=tuple(SpecFault(f"{kind}({spec.type}).{dotted(where)}", why) for where, why in faults),
            ) from error
        made = cls(options, context, **more)
        if cls not in self._made:
            _refuse_misspelt(kind, cls, dir(made))
            self._made.add(cls)
        return made

    def check(self, kind: ConstructKind, type_name: str, options: Mapping[str, Any]) -> list[Fault]:
        """Return all faults of a declaration; if its type is unknown, only this one, at `("type",)`."""
        try:
            model: type[BaseModel] = self.load(kind, type_name).Options
        except UsageError as error:
            return [(("type",), str(error))]
        faults: list[Fault] = []
        try:
            model.model_validate(dict(options))
        except ValidationError as error:
            faults = list(explain(error, model))
        for name, inner in nested_constructs(model):
            # The inner construct is checked as it was written, so that its faults are reported together with all
            # others.
            with suppress(ValidationError, KeyError):
                spec = ConstructSpec.model_validate(options[name])
                faults += [((name, *where), why) for where, why in self.check(inner, spec.type, spec.options)]
        return faults

    def schema(self, kind: ConstructKind) -> dict[str, Any]:
        """Return the JSON schema of all types of a kind: `oneOf` with a constant `type` or only a name, and `$defs`.

        Names in `$defs` begin with kind and type, so that several kinds can be merged into one document.
        """
        options, definitions = [], {}
        for name in self.types(kind):
            model: type[BaseModel] = self.load(kind, name).Options
            prefix = f"{kind}.{name}."
            body = described_schema(model, f"#/$defs/{prefix}{{model}}")
            definitions.update({prefix + key: value for key, value in body.pop("$defs", {}).items()})
            frame = described_schema(_SPECS.get(kind, ConstructSpec), f"#/$defs/{prefix}{{model}}")
            definitions.update({prefix + key: value for key, value in frame.pop("$defs", {}).items()})
            frame["properties"]["type"] = {"const": name, "description": frame["properties"]["type"]["description"]}
            self._embed(model, body, definitions)
            options.append(
                body
                | {
                    "title": name,
                    "properties": frame["properties"] | body.get("properties", {}),
                    "required": [*frame["required"], *body.get("required", ())],
                    "additionalProperties": False,
                }
            )
        alone = [option["title"] for option in options if option["required"] == ["type"]]
        if alone:
            options.append({"title": "without options", "enum": alone})
        return {"oneOf": options, "$defs": definitions}

    def _embed(self, model: type[BaseModel], body: dict[str, Any], definitions: dict[str, Any]) -> None:
        """Replace the open schema of fields for other constructs by the schema of their kind."""
        for name, inner in nested_constructs(model):
            nested = self.schema(inner)
            definitions.update(nested["$defs"])
            body["properties"][name] = {
                "oneOf": nested["oneOf"],
                "description": description_of(model, name),
            }

    def _target(self, kind: ConstructKind, type_name: str) -> str:
        if ":" in type_name:
            return type_name
        type_name = self.short_name(kind, type_name)
        known = self._targets[kind].get(type_name) or self.types(kind).get(type_name)
        if known is None:
            near = difflib.get_close_matches(type_name, self._targets[kind], n=1)
            raise UsageError(
                problem=f"There is no {kind} type {type_name!r}" + (f"; did you mean {near[0]!r}?" if near else "."),
                hint=f"Known: {', '.join(sorted(self._targets[kind]))}; or module:Class for your own.",
            )
        return known

    def _discover(self) -> None:
        """Read the entry points of installed packages, at the first request for a type that is not built in."""
        if self._discovered:
            return
        self._discovered = True
        for point in entry_points(group=ENTRY_POINT_GROUP):
            kind, _, type_name = point.name.partition(".")
            if kind not in list(ConstructKind) or not type_name:
                raise UsageError(
                    problem=f"Entry point {point.name!r} of group {ENTRY_POINT_GROUP} is not `kind.type`.",
                    hint=f"Kinds: {', '.join(ConstructKind)}.",
                )
            self.register(ConstructKind(kind), type_name, point.value)


def nested_constructs(model: type[BaseModel]) -> Iterator[tuple[str, ConstructKind]]:
    """Yield the fields for other constructs, with their kinds."""
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, ConstructKind):
                yield name, mark


def dotted(where: tuple[str | int, ...]) -> str:
    """Return a location as text for messages: `columns[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")


def _imported(kind: ConstructKind, type_name: str, target: str) -> Any:
    try:
        return load_target(target)
    except ImportError as error:
        raise UsageError(
            problem=f"The {kind} type {type_name!r} cannot be loaded from {target}: {error}.",
            hint="Install its package, or correct the name; your own modules must be in the project folder.",
        ) from error


def _checked(kind: ConstructKind, type_name: str, cls: Any) -> type[Any]:
    """Return the class; raises UsageError if it would fail later, in a task."""
    protocol = _PROTOCOLS[kind]
    methods = _names(protocol)
    options = getattr(cls, "Options", None)
    problems = [f"method {name}" for name in methods if not callable(getattr(cls, name, None))]
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        problems.append("a pydantic model `Options`")
    elif options.model_config.get("extra") != "forbid" or not options.model_config.get("frozen"):
        problems.append('`ConfigDict(frozen=True, extra="forbid")` on its `Options`')
    if not isinstance(cls, type) or problems:
        lacks = f"lacks {', '.join(problems)}" if isinstance(cls, type) else "is no class"
        raise UsageError(
            problem=f"The {kind} type {type_name!r} ({getattr(cls, '__qualname__', cls)!s}) {lacks}.",
            hint=f"See {protocol.__module__}.{protocol.__name__}.",
        )
    published = getattr(cls, "Published", PublishedFormat)
    if kind is ConstructKind.FORMAT and not (isinstance(published, type) and issubclass(published, PublishedFormat)):
        raise UsageError(
            problem=f"The {kind} type {type_name!r} ({cls.__qualname__}) has a `Published` that is no PublishedFormat.",
            hint=f"Derive it from {PublishedFormat.__module__}.{PublishedFormat.__name__}.",
        )
    _refuse_misspelt(kind, cls, dir(cls))
    return cls


def _names(part: type[Any]) -> list[str]:
    """Return the names of a protocol's methods, or of the fields of traits."""
    if is_dataclass(part):
        return [field.name for field in fields(part)]
    return [n for n, value in vars(part).items() if isinstance(value, FunctionType) and not n.startswith("_")]


def _refuse_misspelt(kind: ConstructKind, cls: type[Any], given: Iterable[str]) -> None:
    """Raise UsageError for an attribute with nearly the name of an optional one, which would be ignored."""
    names = {name for name in given if not name.startswith("_")}
    parts: tuple[type[Any], ...] = (PackageTraits, *_OPTIONAL.get(kind, ()))
    missing = {name for part in parts for name in _names(part)} - names
    for name in sorted(names):
        near = difflib.get_close_matches(name, missing, n=1, cutoff=0.85)
        if near:
            raise UsageError(
                problem=f"The {kind} {cls.__qualname__} has {name!r}, which is never used; did you mean {near[0]!r}?",
                hint="Rename it; if it is your own, begin its name with an underscore.",
            )


registry = Registry()
"""Registry of this process."""
