"""PublishedDatasets: the input of downstream assets: the published files, found through the state store."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.formats.published import DatasetFormat, Types
from gobblin_dagster.constructs.types.arrow import has_part, leaves
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.formats import (
    arrow_dataset,
    flat_types,
    folder_levels,
    reader_groups,
    require_present_options,
    spark_fields,
    spark_float_texts,
    spark_floats,
    stored_types,
)
from gobblin_dagster.engine.snapshots.reader import writer_options
from gobblin_dagster.spec.job import JobSpec

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_FLOAT_EXACT = 2**53
"""Up to here, each whole number is a float of 64 bits."""


@dataclass(frozen=True, slots=True)
class PublishedDatasets:
    """The newest snapshots of one branch of some datasets.

    Files come from snapshots in the state store, never from listing a folder. So it never holds half of a commit.
    """

    job: str
    branch: str
    files: Mapping[str, tuple[PublishedFile, ...]]
    """Files by dataset.urn; datasets that were never committed are absent."""
    types: Mapping[str, Mapping[str, pa.DataType | None]] = field(default_factory=dict)
    """Types of columns by dataset.urn, before the writer turned them into text or folders; None if not known."""
    writer_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the branch's writer, needed to read CSV."""
    urn_column: str = ""
    """Name of a last column with the dataset.urn of each row; empty for none. `dataclasses.replace` sets it."""

    @classmethod
    def load(
        cls, project: Project, job: JobSpec, branch: str, urns: Collection[str] | None = None
    ) -> PublishedDatasets:
        """Look up the published files.

        Args:
            project: the project.
            job: the job.
            branch: one of its branches.
            urns: datasets; None means all datasets that were ever committed.

        Raises:
            TransientError: the store cannot be reached.
            CorruptRecordError: a stored state or file record is damaged.
        """
        with closing(project.open_store()) as store:
            states = store.load_dataset_states(job.job, urns)
            files = {
                urn: tuple(file for file in store.load_snapshot(job.job, urn) if file.branch == branch)
                for urn in sorted(states)
            }
        types = {urn: stored_types(states[urn].schemas.get(branch, "")) for urn in files}
        return cls(job.job, branch, files, types, writer_options(job).get(branch, {}))

    @property
    def paths(self) -> dict[str, list[str]]:
        """Paths of the files by dataset.urn."""
        return {urn: [file.path for file in files] for urn, files in self.files.items()}

    @property
    def rows(self) -> int:
        """Rows of all datasets together."""
        return sum(file.rows for files in self.files.values() for file in files)

    def to_dataset(self) -> ds.Dataset:
        """Return all files as one lazy pyarrow dataset.

        Shape: the columns that the writer got; columns that became folders come last (decimals among them as text). A
        column that only some files have is null in the others. Rows have no guaranteed order. Whole numbers in CSV and
        JSON lines are int64. In JSON lines, bytes are base64 text, and pyarrow guesses the types of dates, times of
        day and nested values. Without any file there are no columns.

        Raises:
            UsageError: pyarrow cannot read the files, types of a column differ too much between files, or there is a
                column `urn_column`.
        """
        whose = f"job {self.job!r}, branch {self.branch!r}"
        return arrow_dataset(self.paths, self.types, self.writer_options, whose, self.urn_column)

    def to_arrow(self) -> pa.Table:
        """Read everything into memory; shape and errors as of `to_dataset`."""
        return self.to_dataset().to_table()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows; a column of whole numbers beside null has objects if floats would be other numbers."""
        table = self.to_arrow()
        frame: pd.DataFrame = table.to_pandas()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if _rounded(column):
                frame[name] = column.to_pandas(integer_object_nulls=True)
        return frame

    def to_tables(self) -> dict[str, pa.Table]:
        """Read everything into memory, one table per dataset.urn; shapes and errors as of `to_dataset`."""
        each = {urn: dataclasses.replace(self, files={urn: files}) for urn, files in self.files.items()}
        return {urn: one.to_arrow() for urn, one in each.items()}

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Return all files as one Spark DataFrame.

        Shape: as of `to_dataset`, as far as Spark has the types.
        """
        frames = []
        for kind, urn, paths in reader_groups(self.paths, self.writer_options):
            types, levels = flat_types(self.types.get(urn, {})), folder_levels(urn, paths)
            reader = session.read.format(kind.spark_name).option("basePath", DatasetUrn(urn).folder_in(paths[0]))
            reader = reader.options(**kind.spark_options())
            found = self._spark_schema(reader, kind, urn, paths)
            # Spark would guess types from the names of folders, and read 007 as 7.
            told = {**kind.spark_types(types), **{level: types.get(level) or pa.string() for level in levels}}
            names = kind.column_names(types, levels)
            require_present_options(kind, paths, names, found.fieldNames(), types)
            if len(found) < len(names):  # pyarrow's reader says which file it is
                arrow_dataset({urn: paths}, self.types, self.writer_options, f"job {self.job!r}")
            wanted = spark_fields(found.jsonValue(), told, names)
            if kind.spark_has_float_texts:
                frame = _with_floats(reader, found, wanted, self.types.get(urn, {}), paths)
            else:
                frame = reader.schema(found.fromJson(wanted)).load(paths)
            frames.append(frame.withColumn(self.urn_column, _literal(urn)) if self.urn_column else frame)
        if not frames:
            return session.createDataFrame([], "struct<>")
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def _spark_schema(self, reader: DataFrameReader, kind: DatasetFormat, urn: str, paths: Sequence[str]) -> StructType:
        """Return the schema of files as Spark finds it; if some have wider types, which it refuses, as pyarrow does."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  # as in `_literal`

        try:
            return reader.load([*paths]).schema
        except Exception:  # noqa: BLE001  # of any kind: pyarrow raises UsageError for files that nobody can read
            types = {urn: self.types.get(urn, {})}
            found = arrow_dataset({urn: paths}, types, self.writer_options, f"job {self.job!r}").schema
            return from_arrow_schema(found, prefer_timestamp_ntz=kind.spark_has_wall_times)


def _rounded(column: pa.ChunkedArray) -> bool:
    """Return whether pandas makes floats of a column's whole numbers, at any depth, that are others then."""
    if not has_part(column.type, pa.types.is_integer):
        return False
    parts = [part for part in leaves(column) if pa.types.is_integer(part.type)]
    ends = [end for part in parts for end in pc.min_max(part).as_py().values() if end is not None]
    return any(part.null_count for part in parts) and any(abs(end) > _FLOAT_EXACT for end in ends)


def _with_floats(
    reader: DataFrameReader, found: StructType, wanted: Mapping[str, Any], types: Types, paths: Sequence[str]
) -> DataFrame:
    """Read files whose NaN and infinities are texts: as texts, which become floats then.

    Args:
        reader: reader of these files.
        found: the schema as Spark finds it.
        wanted: JSON form of the schema to read.
        types: types of the columns, also of nested ones.
        paths: the files.
    """
    from pyspark.sql.functions import col  # noqa: PLC0415  # a caller that asks for a frame has Spark

    as_read = found.fromJson(spark_float_texts(wanted))
    fields = [{**one, "type": spark_floats(one["type"], types.get(one["name"]))} for one in wanted["fields"]]
    frame = reader.schema(as_read).load([*paths])
    columns = {name: col(f"`{name.replace('`', '``')}`") for name in frame.columns}
    kinds = {field.name: field.dataType for field in found.fromJson({**wanted, "fields": fields})}
    is_other = {field.name: kinds[field.name] != field.dataType for field in frame.schema if field.name in kinds}
    return frame.select(
        [one.cast(kinds[name]).alias(name) if is_other.get(name) else one for name, one in columns.items()]
    )


def _literal(text: str) -> Any:
    from pyspark.sql.functions import lit  # noqa: PLC0415  # a caller that asks for a frame has Spark

    return lit(text)
