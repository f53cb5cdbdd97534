"""PublishedDatasets: what downstream assets get: the files of whole commits, found through the state store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.project import Project
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage.arrow import arrow_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json"}
_ARROW_FORMATS = {"parquet": ds.ParquetFileFormat, "csv": ds.CsvFileFormat, "json": ds.JsonFileFormat}


@dataclass(frozen=True, slots=True)
class PublishedDatasets:
    """The newest snapshots of one branch of some datasets.

    Half a commit is never in it: files are those of the state store's snapshots, never those that a folder lists.
    """

    job: str
    branch: str
    files: Mapping[str, tuple[PublishedFile, ...]]
    """Files by dataset.urn; datasets that were never committed are absent."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Types of columns as they were before the writer turned some into folders (`flight_date=2013-02-06/`)."""

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
        types: dict[str, pa.DataType] = {}
        for state in states.values():
            types |= _types(state.schemas.get(branch, ""))
        return cls(job.job, branch, files, types)

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

        Shape: columns as they were given to the writer, those that became folders last; no order of rows is promised.
        Without any file it has no columns.
        """
        factories = [_factory(name, paths, self.types) for name, _, paths in self._groups()]
        if not factories:
            return ds.dataset(pa.table({}))
        schemas = [factory.inspect(promote_options="permissive") for factory in factories]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        return ds.dataset([factory.finish(schema) for factory in factories])

    def to_arrow(self) -> pa.Table:
        """Read everything into memory; shape as of `to_dataset`."""
        return self.to_dataset().to_table()

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Read with Spark; a column that only some files have is null in the others. Shape as of `to_dataset`."""
        frames = []
        for name, urn, paths in self._groups():
            reader = session.read.format(name).option("basePath", DatasetUrn(urn).folder_in(paths[0]))
            frames.append(reader.options(header="true", mergeSchema="true").load(paths))
        if not frames:
            return session.createDataFrame([], "struct<>")
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

    def _groups(self) -> Iterator[tuple[str, str, list[str]]]:
        """Yield (format, dataset.urn, paths): files that one reader takes together, below one folder of the dataset."""
        for urn, paths in self.paths.items():
            folder_in = DatasetUrn(urn).folder_in
            for group in sorted({(_format(path), folder_in(path)) for path in paths}):
                yield group[0], urn, [path for path in paths if (_format(path), folder_in(path)) == group]


def _format(path: str) -> str:
    """Return the format of a published file: its extension, a codec after it left out."""
    return next(_FORMATS[suffix] for suffix in PurePosixPath(path).suffixes if suffix in _FORMATS)


def _factory(name: str, paths: list[str], types: Mapping[str, pa.DataType]) -> ds.FileSystemDatasetFactory:
    levels = dict.fromkeys(part.partition("=")[0] for path in paths for part in path.split("/")[:-1] if "=" in part)
    folders = ds.partitioning(pa.schema([(level, types.get(level, pa.string())) for level in levels]), flavor="hive")
    options = ds.FileSystemFactoryOptions(partitioning=folders)
    filesystem, inside = arrow_files(paths)
    return ds.FileSystemDatasetFactory(filesystem, inside, _ARROW_FORMATS[name](), options)


def _types(schema_text: str) -> dict[str, pa.DataType]:
    """Read the types that folder names can carry out of a stored schema (`name: type` lines)."""
    types = {}
    for line in schema_text.splitlines():
        name, _, kind = line.removesuffix(" not null").rpartition(": ")
        try:
            types[name] = pa.type_for_alias(kind)
        except ValueError:
            continue  # a type with parameters: as text
    return types
