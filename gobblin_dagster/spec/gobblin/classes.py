"""Our types for Gobblin's class names, so that jobs may keep these names.

The options are ours: see the type's own documentation. `gobblin.` without `org.apache.` in front, as before Gobblin
joined Apache, is understood too; in Gobblin's own files a class is also found by its last name, for packages moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

PREFIX = "org.apache."
_CONVERTER = "org.apache.gobblin.converter"
_QUALITY = "org.apache.gobblin.policies"
_SOURCE = "org.apache.gobblin.source"
_EXTRACT = "org.apache.gobblin.source.extractor"
_WRITER = "org.apache.gobblin.writer"
_PUBLISHER = "org.apache.gobblin.publisher"

SOURCES: Mapping[str, str] = {
    f"{_EXTRACT}.extract.jdbc.MysqlSource": "query",
    f"{_EXTRACT}.extract.jdbc.OracleSource": "query",
    f"{_EXTRACT}.extract.jdbc.PostgresqlSource": "query",
    f"{_EXTRACT}.extract.jdbc.SqlServerSource": "query",
    f"{_EXTRACT}.extract.jdbc.TeradataSource": "query",
    f"{_EXTRACT}.extract.kafka.KafkaDeserializerSource": "kafka",
    f"{_EXTRACT}.extract.kafka.KafkaSimpleSource": "kafka",
    f"{_EXTRACT}.extract.kafka.UniversalKafkaSource": "kafka",
    f"{_EXTRACT}.filebased.TextFileBasedSource": "files",
    f"{_EXTRACT}.hadoop.AvroFileSource": "files",
    f"{_EXTRACT}.hadoop.HadoopTextInputSource": "files",
    f"{_SOURCE}.DatePartitionedAvroFileSource": "files",
    f"{_SOURCE}.DatePartitionedJsonFileSource": "files",
    "org.apache.gobblin.example.simplejson.SimpleJsonSource": "files",
}
CONVERTERS: Mapping[str, str] = {
    f"{_CONVERTER}.avro.AvroFieldRetrieverConverter": "select",
    f"{_CONVERTER}.avro.AvroToJsonStringConverter": "to_json",
    f"{_CONVERTER}.avro.BytesToAvroConverter": "avro_bytes",
    f"{_CONVERTER}.avro.FlattenNestedKeyConverter": "flatten",
    f"{_CONVERTER}.avro.JsonIntermediateToAvroConverter": "columns",
    f"{_CONVERTER}.csv.CsvToJsonConverter": "csv_text",
    f"{_CONVERTER}.csv.CsvToJsonConverterV2": "csv_text",
    f"{_CONVERTER}.filter.AvroFieldsPickConverter": "select",
    f"{_CONVERTER}.filter.AvroFilterConverter": "filter",
    f"{_CONVERTER}.filter.AvroProjectionConverter": "drop",
    f"{_CONVERTER}.jdbc.AvroToJdbcEntryConverter": "rename",
    f"{_CONVERTER}.json.BytesToJsonConverter": "bytes_to_text",
    f"{_CONVERTER}.json.JsonStringToJsonIntermediateConverter": "json_text",
    f"{_CONVERTER}.json.JsonToStringConverter": "to_json",
    "org.apache.gobblin.example.simplejson.SimpleJsonConverter": "json_text",
    f"{_CONVERTER}.parquet.JsonIntermediateToParquetGroupConverter": "columns",
    f"{_CONVERTER}.SamplingConverter": "sample",
    f"{_CONVERTER}.AvroStringFieldDecryptorConverter": "decrypt",
    f"{_CONVERTER}.AvroStringFieldEncryptorConverter": "encrypt",
    f"{_CONVERTER}.StringFieldEncryptorConverter": "encrypt",
    f"{_CONVERTER}.StringFieldDecryptorConverter": "decrypt",
    f"{_CONVERTER}.StringSchemaInjector": "schema",
    f"{_CONVERTER}.string.ObjectToStringConverter": "bytes_to_text",
    f"{_CONVERTER}.string.StringFilterConverter": "filter",
    f"{_CONVERTER}.string.StringSplitterConverter": "split",
    f"{_CONVERTER}.string.StringToBytesConverter": "text_to_bytes",
    f"{_CONVERTER}.string.TextToStringConverter": "bytes_to_text",
}
ROW_POLICIES: Mapping[str, str] = {
    f"{_QUALITY}.avro.AvroHeaderGuidPolicy": "not_null",
    f"{_QUALITY}.avro.AvroHeaderTimestampPolicy": "not_null",
    f"{_QUALITY}.avro.AvroRecordTimestampLowerBoundPolicy": "not_older",
    f"{_QUALITY}.time.RecordTimestampLowerBoundPolicy": "not_older",
}
TASK_POLICIES: Mapping[str, str] = {
    f"{_QUALITY}.count.RowCountPolicy": "row_count",
    f"{_QUALITY}.count.RowCountRangePolicy": "row_count_range",
    f"{_QUALITY}.schema.SchemaCompatibilityPolicy": "schema_compatible",
    f"{_QUALITY}.size.FileSizePolicy": "file_size",
}
FORKS: Mapping[str, str] = {"org.apache.gobblin.fork.IdentityForkOperator": "identity"}
WRITERS: Mapping[str, str] = {
    f"{_WRITER}.AvroDataWriterBuilder": "avro",
    f"{_WRITER}.ConsoleWriterBuilder": "console",
    f"{_WRITER}.GobblinOrcWriterBuilder": "orc",
    f"{_WRITER}.HiveWritableHdfsDataWriterBuilder": "orc",
    f"{_WRITER}.ParquetDataWriterBuilder": "parquet",
    f"{_WRITER}.SimpleDataWriterBuilder": "text",
}
PUBLISHERS: Mapping[str, str] = {
    f"{_PUBLISHER}.BaseDataPublisher": "append",
    f"{_PUBLISHER}.CommitSequencePublisher": "append",
    f"{_PUBLISHER}.NoopPublisher": "noop",
    f"{_PUBLISHER}.TimePartitionedDataPublisher": "append",
    f"{_PUBLISHER}.TimePartitionedStreamingDataPublisher": "append",
    f"{_PUBLISHER}.TimestampDataPublisher": "timestamped",
}

PASSED: Mapping[str, str] = {
    f"{_CONVERTER}.IdentityConverter": "does nothing",
    f"{_CONVERTER}.StringSchemaInjector": "the converter after it takes the schema",
    f"{_CONVERTER}.serde.HiveSerDeConverter": "the writer takes columns as they are",
    f"{_CONVERTER}.avro.AvroRecordToAvroWritableConverter": "the writer takes columns as they are",
    "org.apache.gobblin.policies.schema.SchemaRowCheckPolicy": "it lets every row pass",
}
"""Classes that are not needed here, with the reason: a construct with such a class is left out."""

_NULLS = ["", *map("".join, product("nN", "uU", "lL", "lL"))]
"""Texts that Gobblin's readers of CSV take for null: `null` in small and capital letters."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "TextFileBasedSource": {
        "format": {"type": "text", "empty_first_line": False},
        "read_changed": "again",
        "hidden": "none",
    },
    "HadoopTextInputSource": {"format": {"type": "text", "line_end": "any"}, "hidden": "hadoop"},
    "AvroFileSource": {"format": {"type": "avro"}, "hidden": "none"},
    "DatePartitionedAvroFileSource": {"format": {"type": "avro"}, "hidden": "none"},
    "DatePartitionedJsonFileSource": {"format": {"type": "text", "line_end": "any"}, "hidden": "none"},
    "SimpleJsonSource": {"format": {"type": "text", "line_end": "any"}},
    "CsvToJsonConverter": {"quote": None, "nulls": _NULLS, "short": True, "long": True},
    "CsvToJsonConverterV2": {"nulls": _NULLS},
    "SamplingConverter": {"ratio": 0.01},
    "AvroHeaderGuidPolicy": {"rule": "header.guid IS NOT NULL"},
    # Which of the two the header has is not known before it is read.
    "AvroHeaderTimestampPolicy": {
        "rule": "to_json(header) ->> 'time' IS NOT NULL OR to_json(header) ->> 'timestamp' IS NOT NULL"
    },
}
"""Options by the last part of a class name: the default behaviour of Gobblin's class."""

IN_FILES: Mapping[str, str] = {
    "AvroFieldRetrieverConverter": "sql",
    "AvroHeaderGuidPolicy": "sql",
    "AvroHeaderTimestampPolicy": "sql",
    "FlattenNestedKeyConverter": "sql",
}
"""Types by the last name of a class which in Gobblin's own files do exactly what the class does: its keys say other
things than the options of the type that stands for it in YAML."""
