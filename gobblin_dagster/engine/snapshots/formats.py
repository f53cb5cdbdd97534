"""Read published files back as they were written: with the types in the dataset's state and the options of its writer.

The differences between formats are in `DatasetFormat`. Names of folders are read as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from gobblin_dagster.constructs.formats.published import DatasetFormat, Types, ending_of
from gobblin_dagster.constructs.registry import registry
from gobblin_dagster.constructs.types.arrow import is_list
from gobblin_dagster.constructs.types.plain import plain_schema
from gobblin_dagster.constructs.types.schema_text import any_type_from_text, type_texts
from gobblin_dagster.constructs.types.wider import common_type
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.storage.arrow import arrow_files

if TYPE_CHECKING:
    import pyarrow.dataset as ds

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
_OTHER_COLUMNS = re.compile(r"source ('[^']*'): .*Expected \d+ columns, got (\d+)")


def stored_types(schema_text: str) -> dict[str, pa.DataType | None]:
    """Return the types of a stored schema by column; None for nested types of no known text."""
    return {name: any_type_from_text(text) for name, text in type_texts(schema_text).items()}


def flat_types(types: Types) -> dict[str, pa.DataType | None]:
    """Return the types with None for nested ones (lists, structs), which readers find themselves."""
    return {name: None if kind is not None and pa.types.is_nested(kind) else kind for name, kind in types.items()}


def arrow_dataset(
    paths: Mapping[str, Sequence[str]],
    types: Mapping[str, Types],
    options: Mapping[str, Any],
    whose: str,
    urn_column: str = "",
) -> ds.Dataset:
    """Return files as one lazy dataset; a column that only some files have is null in the others.

    Without files it has no columns.

    Args:
        paths: files by dataset.urn.
        types: as of `stored_types`, by dataset.urn.
        options: options of the branch's writer.
        whose: the dataset and branch of the files, for messages.
        urn_column: name of a column to add at the end, with the dataset.urn of each row; empty for none.

    Raises:
        UsageError: pyarrow cannot read the files, there is no common type for a column, or there is a column
            `urn_column`.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415  # loads pandas: a fifth of the start of a run in Dagster

    groups = list(reader_groups(paths, options))
    if not groups:
        return ds.dataset(pa.table({}))
    try:
        parts = [_arrow_factory(kind, urn, group, types.get(urn, {})) for kind, urn, group in groups]
        schema = _unified([schema for _, schema in parts])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UsageError(
            problem=f"Files of {whose}, have no types in common: {error}.",
            hint="Load fewer at once, or give `paths` to a reader that is told which types to take.",
        ) from error
    made = [factory.finish(schema) for factory, _ in parts]
    if urn_column:
        if urn_column in schema.names:
            problem = f"Files of {whose}, have a column {urn_column!r} already."
            raise UsageError(problem=problem, hint="Choose another name for the column with the dataset.urn.")
        made = [_with_urn(one, urn_column, urn) for one, (_, urn, _) in zip(made, groups, strict=True)]
    return ds.dataset(made)


def _with_urn(files: ds.FileSystemDataset, column: str, urn: str) -> ds.FileSystemDataset:
    """Return a dataset with one more column, which is the same in all rows; nothing is read."""
    import pyarrow.dataset as ds  # noqa: PLC0415  # as above

    same = ds.field(column) == urn
    fragments = [
        files.format.make_fragment(one.path, one.filesystem, partition_expression=one.partition_expression & same)
        for one in files.get_fragments()
    ]
    schema = files.schema.append(pa.field(column, pa.string()))
    return ds.FileSystemDataset(fragments, schema, files.format, files.filesystem)


def reader_groups(
    paths: Mapping[str, Sequence[str]], options: Mapping[str, Any]
) -> Iterator[tuple[DatasetFormat, str, list[str]]]:
    """Yield (format, dataset.urn, paths): files that one reader can read together, below one folder of the dataset.

    Raises:
        UsageError: pyarrow does not read the format of a file.
    """
    for urn, files in paths.items():
        folder_in = DatasetUrn(urn).folder_in
        groups: dict[tuple[str, str], list[str]] = {}
        for path in files:
            groups.setdefault((ending_of(path)[0], folder_in(path)), []).append(path)
        for (name, _), group in sorted(groups.items()):
            found = registry.published_format(group[0], options)
            if not isinstance(found, DatasetFormat):
                raise UsageError(
                    problem=f"pyarrow reads no {name} files: {group[0]}.",
                    hint="Give the paths to a reader of that format.",
                )
            yield found, urn, group


def _arrow_factory(
    kind: DatasetFormat, urn: str, paths: Sequence[str], types: Types
) -> tuple[ds.FileSystemDatasetFactory, pa.Schema]:
    """Return a factory of a dataset over files of one format, and the schema that it should have.

    Args:
        kind: the format.
        urn: the dataset.urn.
        paths: files below one folder of the dataset.
        types: as of `stored_types`.

    Raises:
        UsageError: pyarrow cannot read the files.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415  # loads pandas: a fifth of the start of a run in Dagster

    if packed := [path for path in paths if path.endswith(".zst")]:
        raise UsageError(
            problem=f"pyarrow's datasets read no text packed with zstd: {packed[0]}.",
            hint="Write with `compression: gzip`, or unpack `paths` on your own.",
        )
    levels = folder_levels(urn, paths)
    filesystem, inside = arrow_files(paths)
    types = flat_types(types)
    names = kind.column_names(types, levels)
    reading = kind.fitted(filesystem, inside).arrow_format(names, types)
    if not types.keys() >= {*levels}:  # then look into the files for columns that are not folder names
        held = ds.FileSystemDatasetFactory(filesystem, inside, reading).inspect(fragments=1).names
        levels = [level for level in levels if level in types or level not in held]
    folders = pa.schema([(level, _folder_type(types.get(level))) for level in levels])
    options = ds.FileSystemFactoryOptions(partitioning=ds.partitioning(folders, flavor="hive"))
    factory = ds.FileSystemDatasetFactory(filesystem, inside, reading, options)
    try:
        schema = kind.arrow_schema(factory.inspect(promote_options="permissive"), types)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        if names and (other := _OTHER_COLUMNS.search(str(error))):
            raise UsageError(
                problem=f"Files of dataset {urn!r} have no header, and {other[1]} has rows of {other[2]} columns; the "
                f"dataset has {len(names)}: {', '.join(names)}.",
                hint="If columns came later, they stand behind the others: give `paths` and all names to a reader that "
                "fills up short rows, such as DuckDB's `read_csv(..., null_padding = true, auto_detect = false)`. Or "
                "the file was written with another `delimiter`.",
            ) from error
        # Some files are older than a wider type that pyarrow does not find itself: times for days, texts of JSON.
        alone = [ds.FileSystemDatasetFactory(filesystem, [path], reading, options).inspect() for path in inside]
        schema = _unified([_as_stored(plain_schema(kind.arrow_schema(one, types)), types) for one in alone])
    require_present_options(kind, paths, names, schema.names, types)
    # A column that is null in all of these files; a dictionary of an earlier version.
    return factory, pa.schema([_typed(field, types) for field in plain_schema(schema)])


def require_present_options(
    kind: DatasetFormat, paths: Sequence[str], names: Sequence[str], found: Sequence[str], types: Types
) -> None:
    """Raise UsageError if a file was written with other options than the writer has now: its values would be wrong.

    The options are stored nowhere, so that the first line of a file must tell.

    Args:
        kind: the format, with the present options.
        paths: the files.
        names: as of `column_names`.
        found: names of the columns that a reader finds in the files.
        types: as of `stored_types`.
    """
    if not types or not (names or {*found} - types.keys()):
        return
    filesystem, inside = arrow_files(paths)
    if other := kind.written_otherwise(filesystem, inside, names or [*types]):
        raise UsageError(
            problem=f"{other} was written with other options (`header`, `delimiter`) than its writer has now, or all "
            "of its columns have other names now.",
            hint="Give `paths` to a reader that is told the options with which it was written.",
        )


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return a schema with the columns of all, each in the widest of its types.

    Raises:
        ArrowInvalid, ArrowTypeError: there is no common type for a column.
    """
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        kinds: dict[str, pa.DataType] = {}
        for field in (field for schema in schemas for field in schema):
            kind = common_type(kinds.get(field.name, pa.null()), field.type)
            if kind is None:
                raise
            kinds[field.name] = kind
        return pa.schema(kinds.items())


def _as_stored(schema: pa.Schema, types: Types) -> pa.Schema:
    """Return a file's schema with times in the stored unit: ORC has nanoseconds only."""
    stored = {name: kind for name, kind in types.items() if kind is not None and pa.types.is_timestamp(kind)}
    return pa.schema(
        [
            field.with_type(stored.get(field.name, field.type)) if pa.types.is_timestamp(field.type) else field
            for field in schema
        ]
    )


def folder_levels(urn: str, paths: Sequence[str]) -> list[str]:
    """Return the names of the folder levels between a dataset's folder and its files."""
    folder_in = DatasetUrn(urn).folder_in
    segments = [path.removeprefix(folder_in(path)).split("/")[:-1] for path in paths]
    return list(dict.fromkeys(unquote(one.partition("=")[0]) for parts in segments for one in parts if "=" in one))


def spark_fields(schema: Mapping[str, Any], told: Types, names: Sequence[str]) -> dict[str, Any]:
    """Return the JSON form of a Spark schema with the given types, if Spark has them.

    `names` are the names of the first columns, for files that hold none.
    """
    known = [*names, *(field["name"] for field in schema["fields"][len(names) :])]
    fields = [
        {**field, "name": name, "type": _spark_name(told.get(name)) or field["type"], "nullable": True}
        for name, field in zip(known, schema["fields"], strict=True)
    ]
    return {**schema, "fields": fields}


def spark_float_texts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a Spark schema in which columns of floats are texts.

    Spark has found texts in nested columns already, if one of their floats is NaN or infinite.
    """
    fields = schema["fields"]
    floats = ("float", "double")
    return {**schema, "fields": [{**one, "type": "string"} if one["type"] in floats else one for one in fields]}


def spark_floats(found: Any, kind: pa.DataType | None) -> Any:
    """Return the JSON form of a Spark type with floats in place of the texts that Spark found there."""
    if kind is None:
        return found
    if found == "string":
        return _spark_name(kind) if pa.types.is_floating(kind) else found
    if not isinstance(found, Mapping):
        return found
    if found["type"] == "array" and is_list(kind):
        return {**found, "elementType": spark_floats(found["elementType"], kind.value_type)}
    if found["type"] == "struct" and (pa.types.is_struct(kind) or pa.types.is_map(kind)):
        inside = {} if pa.types.is_map(kind) else {field.name: field.type for field in kind}
        of_all = kind.item_type if pa.types.is_map(kind) else None
        fields = [
            {**one, "type": spark_floats(one["type"], inside.get(one["name"], of_all))} for one in found["fields"]
        ]
        return {**found, "fields": fields}
    return found


def _typed(field: pa.Field, types: Types) -> pa.Field:
    return field.with_type(types.get(field.name) or field.type) if pa.types.is_null(field.type) else field


def _folder_type(kind: pa.DataType | None) -> pa.DataType:
    """Return the type of a folder level's column: text if pyarrow cannot parse the type from a folder's name."""
    is_other = kind is None or pa.types.is_decimal(kind) or pa.types.is_string_view(kind)
    return pa.string() if is_other or pa.types.is_fixed_size_binary(kind) else kind


def _spark_name(kind: pa.DataType | None) -> str | None:
    if kind is not None and pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if kind is not None and pa.types.is_decimal(kind) and not pa.types.is_decimal256(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK_NAMES.get(kind)
