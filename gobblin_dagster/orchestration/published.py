"""PublishedDatasets: what downstream assets get: the files of whole commits, found through the state store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.formats import (
    arrow_dataset,
    folder_levels,
    reader_groups,
    spark_fields,
    stored_types,
)
from gobblin_dagster.engine.snapshots.reader import writer_options
from gobblin_dagster.spec.job import JobSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class PublishedDatasets:
    """The newest snapshots of one branch of some datasets.

    Half a commit is never in it: files are those of the state store's snapshots, never those that a folder lists.
    """

    job: str
    branch: str
    files: Mapping[str, tuple[PublishedFile, ...]]
    """Files by dataset.urn; datasets that were never committed are absent."""
    types: Mapping[str, Mapping[str, pa.DataType | None]] = field(default_factory=dict)
    """Types of columns by dataset.urn as they were before the writer made text or folders of them; None for nested ones."""
    writer_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the branch's writer, which say how CSV is read."""

    @classmethod
    def load(
        cls, project: Project, job: JobSpec, branch: str, urns: Collection[str] | None = None
    ) -> PublishedDatasets:
        """Look up what is published.

        Args:
            project: the project.
            job: the job.
            branch: one of its branches.
            urns: datasets; None means all that were ever committed.

        Raises:
            TransientError: the store cannot be reached.
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
        """Return all files as one lazy pyarrow dataset; a column that only some files have is null in the others.

        Shape: columns as they were given to the writer, those that became folders last (decimals among them as text); no order of
        rows is promised. Whole numbers in CSV and JSON lines come in 64 bits. In JSON lines bytes are base64, and days, times
        of day and what lies inside of other values are as pyarrow guesses them.
        Without any file it has no columns.

        Raises:
            UsageError: pyarrow cannot read the files, or their types cannot be brought together.
        """
        return arrow_dataset(self.paths, self.types, self.writer_options, f"job {self.job!r}, branch {self.branch!r}")

    def to_arrow(self) -> pa.Table:
        """Read everything into memory; shape as of `to_dataset`."""
        return self.to_dataset().to_table()

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Read with Spark; a column that only some files have is null in the others.

        Shape: as of `to_dataset`, where Spark has the types.
        """
        frames = []
        for kind, urn, paths in reader_groups(self.paths, self.writer_options):
            types, levels = self.types.get(urn, {}), folder_levels(urn, paths)
            reader = session.read.format(kind.spark_name).option("basePath", DatasetUrn(urn).folder_in(paths[0]))
            reader = reader.options(**kind.spark_options())
            found = reader.load(paths).schema
            # Guessed from the folders' names, 007 would be 7.
            told = {**kind.spark_types(types), **{level: types.get(level) or pa.string() for level in levels}}
            names = kind.column_names(types, levels)
            frames.append(reader.schema(found.fromJson(spark_fields(found.jsonValue(), told, names))).load(paths))
        if not frames:
            return session.createDataFrame([], "struct<>")
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
