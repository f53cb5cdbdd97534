"""Gobblin's class names and the types that stand for them here, so that a job may keep the names it had.

The options are ours: see the type's own documentation. `gobblin.` without `org.apache.` in front, as before Gobblin joined
Apache, is understood too.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "org.apache."
_CONVERTER = "org.apache.gobblin.converter"
_QUALITY = "org.apache.gobblin.policies"

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
_PUBLISHER = "org.apache.gobblin.publisher"
PUBLISHERS: Mapping[str, str] = {
    f"{_PUBLISHER}.BaseDataPublisher": "append",
    f"{_PUBLISHER}.CommitSequencePublisher": "append",
    f"{_PUBLISHER}.NoopPublisher": "noop",
    f"{_PUBLISHER}.TimePartitionedDataPublisher": "append",
    f"{_PUBLISHER}.TimePartitionedStreamingDataPublisher": "append",
    f"{_PUBLISHER}.TimestampDataPublisher": "timestamped",
}
