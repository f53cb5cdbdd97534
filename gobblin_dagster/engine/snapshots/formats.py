"""How published files are read back as they were written: types out of the dataset's state, the options of its writer.

CSV and JSON lines tell no types: guessed, `007` would be 7 and a decimal a float. Folder names are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.json as pajson

from gobblin_dagster.constructs.quality.schema_text import type_from_text, type_texts
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.snapshots.audit import file_format
from gobblin_dagster.storage.arrow import arrow_files

_DICTIONARY = re.compile(r"dictionary<values=([^<>]+), indices=u?int\d+, ordered=[01]>")
_BLOCK_BYTES = 16 << 20
"""Bytes of text that are read at once; no row may be longer."""
_SPARK_NAMES: dict[pa.DataType | None, str] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
}
"""Names in the JSON form of Spark's schemas."""


def stored_types(schema_text: str) -> dict[str, pa.DataType | None]:
    """Return the types of a stored schema by column; None for lists, structs and other types made of types."""
    kinds = {}
    for name, text in type_texts(schema_text).items():
        match = _DICTIONARY.fullmatch(text)
        kinds[name] = type_from_text(match[1] if match else text)
    return kinds


def arrow_dataset(
    paths: Mapping[str, Sequence[str]],
    types: Mapping[str, Mapping[str, pa.DataType | None]],
    csv: Mapping[str, Any],
    whose: str,
) -> ds.Dataset:
    """Return files as one lazy dataset; a column that only some of them have is null in the others.

    Without any file it has no columns.

    Args:
        paths: files by dataset.urn.
        types: as of `stored_types`, by dataset.urn.
        csv: options of the writer `csv`.
        whose: what the files are of, for messages.

    Raises:
        UsageError: pyarrow cannot read the files, or their types cannot be brought together.
    """
    groups = list(reader_groups(paths))
    if not groups:
        return ds.dataset(pa.table({}))
    try:
        parts = [_arrow_factory(name, urn, group, types.get(urn, {}), csv) for name, urn, group in groups]
        schema = pa.unify_schemas([schema for _, schema in parts], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UsageError(
            problem=f"Files of {whose}, have no types in common: {error}.",
            hint="Load fewer at once, or give `paths` to a reader that is told which types to take.",
        ) from error
    return ds.dataset([factory.finish(schema) for factory, _ in parts])


def reader_groups(paths: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (format, dataset.urn, paths): files that one reader takes together, below one folder of the dataset."""
    for urn, files in paths.items():
        folder_in = DatasetUrn(urn).folder_in
        groups: dict[tuple[str, str], list[str]] = {}
        for path in files:
            groups.setdefault((file_format(path), folder_in(path)), []).append(path)
        for (name, _), group in sorted(groups.items()):
            yield name, urn, group


def _arrow_factory(
    format_name: str, urn: str, paths: Sequence[str], types: Mapping[str, pa.DataType | None], csv: Mapping[str, Any]
) -> tuple[ds.FileSystemDatasetFactory, pa.Schema]:
    """Return a factory of a dataset over files of one format, and the schema that it should have.

    Args:
        format_name: pyarrow's name.
        urn: the dataset.urn.
        paths: files below one folder of the dataset.
        types: as of `stored_types`.
        csv: options of the writer `csv`.

    Raises:
        UsageError: pyarrow cannot read the files.
    """
    if packed := [path for path in paths if path.endswith(".zst")]:
        raise UsageError(
            problem=f"pyarrow's datasets read no text packed with zstd: {packed[0]}.",
            hint="Write with `compression: gzip`, or unpack `paths` on your own.",
        )
    levels = folder_levels(urn, paths)
    filesystem, inside = arrow_files(paths)
    names = headless_names(format_name, types, levels, csv)
    told = {name: kind for name, kind in types.items() if kind is not None and _is_told(format_name, kind)}
    kind = _file_format(format_name, names, told, csv)
    if not types.keys() >= {*levels}:  # then files tell better what they hold beside their folders' names
        held = ds.FileSystemDatasetFactory(filesystem, inside, kind).inspect(fragments=1).names
        levels = [level for level in levels if level in types or level not in held]
    folders = pa.schema([(level, _folder_type(types.get(level))) for level in levels])
    options = ds.FileSystemFactoryOptions(partitioning=ds.partitioning(folders, flavor="hive"))
    factory = ds.FileSystemDatasetFactory(filesystem, inside, kind, options)
    schema = factory.inspect(promote_options="permissive")
    if format_name == "json":  # which takes types for the whole dataset only
        schema = pa.schema([field.with_type(told.get(field.name, field.type)) for field in schema])
    # A column that these files have nulls of only.
    schema = pa.schema([_typed(field, types) for field in schema])
    return factory, schema


def folder_levels(urn: str, paths: Sequence[str]) -> list[str]:
    """Return the names of the folder levels between a dataset's folder and its files."""
    folder_in = DatasetUrn(urn).folder_in
    segments = [path.removeprefix(folder_in(path)).split("/")[:-1] for path in paths]
    return list(dict.fromkeys(unquote(one.partition("=")[0]) for parts in segments for one in parts if "=" in one))


def headless_names(
    format_name: str, types: Mapping[str, object], levels: Sequence[str], csv: Mapping[str, Any]
) -> list[str]:
    """Return the names of the columns in files that do not tell them; none where they do."""
    if format_name != "csv" or csv.get("header", True):
        return []
    return [name for name in types if name not in levels or csv.get("keep_partition_columns")]


def in_64_bits(types: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
    """Return types with whole numbers as wide as they may have been once."""
    return {name: pa.int64() if kind and pa.types.is_integer(kind) else kind for name, kind in types.items()}


def spark_options(format_name: str, csv: Mapping[str, Any]) -> dict[str, str]:
    """Return the options with which Spark reads a format as our writers write it."""
    if format_name == "csv":
        header, delimiter = csv.get("header", True), csv.get("delimiter", ",")
        # Spark puts `nullValue` where nothing stands, and then takes that text for null: it must be none of the texts.
        quotes = {"escape": '"', "multiLine": "true", "mode": "FAILFAST", "nullValue": "\0null\0"}
        return {"header": "true" if header else "false", "sep": str(delimiter)} | quotes
    return {"mode": "FAILFAST"} if format_name == "json" else {"mergeSchema": "true"}


def spark_fields(
    schema: Mapping[str, Any], told: Mapping[str, pa.DataType | None], names: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON form of one of Spark's schemas with the types that are told, where Spark has them.

    `names` are those of the first columns where the files name none.
    """
    known = [*names, *(field["name"] for field in schema["fields"][len(names) :])]
    fields = [
        {**field, "name": name, "type": _spark_name(told.get(name)) or field["type"], "nullable": True}
        for name, field in zip(known, schema["fields"], strict=True)
    ]
    return {**schema, "fields": fields}


def _file_format(
    format_name: str, names: Sequence[str], told: Mapping[str, pa.DataType], csv: Mapping[str, Any]
) -> ds.FileFormat:
    match format_name:
        case "parquet":
            return ds.ParquetFileFormat()
        case "orc":
            return ds.OrcFileFormat()
        case "json":
            return ds.JsonFileFormat(read_options=pajson.ReadOptions(block_size=_BLOCK_BYTES))
    return ds.CsvFileFormat(
        parse_options=pacsv.ParseOptions(delimiter=str(csv.get("delimiter", ",")), newlines_in_values=True),
        read_options=pacsv.ReadOptions(column_names=names or None, block_size=_BLOCK_BYTES),
        # Null is an empty field, empty text is in quotes; `NA` is a text.
        convert_options=pacsv.ConvertOptions(
            column_types=dict(told), null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _typed(field: pa.Field, types: Mapping[str, pa.DataType | None]) -> pa.Field:
    return field.with_type(types.get(field.name) or field.type) if pa.types.is_null(field.type) else field


def _folder_type(kind: pa.DataType | None) -> pa.DataType:
    """Return the type of a level's column: text where pyarrow makes nothing else of a folder's name."""
    is_other = kind is None or pa.types.is_decimal(kind) or pa.types.is_string_view(kind)
    return pa.string() if is_other else kind


def _is_told(format_name: str, kind: pa.DataType) -> bool:
    """Tell whether pyarrow must be told a type, and can be: whole numbers it finds by itself, which were wider once perhaps."""
    if pa.types.is_null(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        return False
    if format_name == "csv":
        return not pa.types.is_decimal256(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_uint64(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)
    return bool(is_text or is_number or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind))


def _spark_name(kind: pa.DataType | None) -> str | None:
    if kind is not None and pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if kind is not None and pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK_NAMES.get(kind)
