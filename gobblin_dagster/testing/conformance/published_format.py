"""Tests that every PublishedFormat must pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from gobblin_dagster.constructs.formats.published import (
    DatasetFormat,
    MergesBytes,
    MergesColumns,
    PublishedFormat,
    ending_of,
)
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance.base import Conformance


class PublishedFormatConformance(Conformance):
    """Tests of a format as it is published, with files of its writer.

    Example:
        ::

            class TestFeather(PublishedFormatConformance):
                published = PublishedFeather
                writer = {"type": "my_parts:FeatherWriter"}
                rows = pa.record_batch({"id": [1, 2], "name": ["a", None]})
    """

    protocol = "gobblin_dagster.constructs.formats.published.PublishedFormat"
    published: type[PublishedFormat]
    writer: Mapping[str, Any]
    """The writer of the files, as it stands in the job file."""
    rows: pa.RecordBatch
    """Rows that it can write, at least two."""
    types: Mapping[str, pa.DataType] = MappingProxyType({})
    """Types of columns that come back as others, by name."""

    @property
    def made(self) -> PublishedFormat:
        """The format, with the options of its writer."""
        return self.published(ConstructSpec.model_validate(self.writer).options)

    @pytest.fixture
    def files(self, tmp_path: Path) -> list[PublishedFile]:
        """Write all rows to each of two files."""
        return [file for number in (1, 2) for file in self.written(tmp_path, f"commit-{number}", self.rows)]

    def written(self, root: Path, stem: str, *batches: pa.RecordBatch) -> list[PublishedFile]:
        """Write batches to one file."""
        where = WriterContext(LocalStorage(), str(root), "out", stem, "main", "a/b", batches[0].schema)
        context = ConstructContext(job="conformance", base_dir=str(root), dataset_urn="a/b")
        spec = ConstructSpec.model_validate(self.writer)
        made = registry.create(ConstructKind.WRITER, spec, context, writer_context=where)
        for batch in batches:
            made.write(batch)
        return [PublishedFile("main", f.path, f.size_bytes, f.sha256, f.rows, 1) for f in made.finish()]

    def test_rows_are_counted(self, files: list[PublishedFile]) -> None:
        """`count_rows` returns how many rows the files have together, by opening them."""
        paths = [file.path for file in files]
        assert self.made.count_rows(pafs.LocalFileSystem(), paths) == 2 * self.rows.num_rows
        assert self.made.count_rows(pafs.LocalFileSystem(), paths[:1]) == self.rows.num_rows

    def test_columns_are_written_again_as_they_are(self, files: list[PublishedFile], tmp_path: Path) -> None:
        """`batches` yields all rows in order, of exactly `schema`; the writer makes an equal file of them."""
        made = self.made
        if not isinstance(made, MergesColumns):
            return
        read = [list(made.batches(pa.OSFile(file.path))) for file in files]
        schema = made.schema(pa.OSFile(files[0].path))
        assert [batch.schema for batches in read for batch in batches if not batch.schema.equals(schema)] == []
        assert [row for batch in read[0] for row in batch.to_pylist()] == self.rows.to_pylist()
        (merged,) = self.written(tmp_path, "merged", *read[0], *read[1])
        assert made.schema(pa.OSFile(merged.path)).equals(schema)
        assert merged.rows == 2 * self.rows.num_rows

    def test_bytes_of_alike_files_are_joined(self, files: list[PublishedFile], tmp_path: Path) -> None:
        """Files of one `likeness` become one file whose bytes are their `part`s, and whose rows are those of all."""
        made = self.made
        if not isinstance(made, MergesBytes):
            return
        likes = {made.likeness(LocalStorage(), file) for file in files}
        if None in likes:
            return
        assert len(likes) == 1
        ending = ending_of(files[0].path)
        contents = [Path(file.path).read_bytes() for file in files]
        parts = [made.part(content, ending[1], is_first=not number) for number, content in enumerate(contents)]
        merged = tmp_path / f"merged.{'.'.join(filter(None, ending))}"
        merged.write_bytes(b"".join(parts))
        assert made.count_rows(pafs.LocalFileSystem(), [str(merged)]) == 2 * self.rows.num_rows

    def test_rows_come_back_with_their_types(self, files: list[PublishedFile]) -> None:
        """`arrow_format` reads the rows with their values, and with their types if these are told."""
        made = self.made
        if not isinstance(made, DatasetFormat):
            return
        types = dict(zip(self.rows.schema.names, self.rows.schema.types, strict=True))
        paths = [file.path for file in files]
        reading = made.arrow_format(made.column_names(types, ()), types)
        schema = made.arrow_schema(ds.dataset(paths, format=reading).schema, types)
        table = ds.dataset(paths, format=reading, schema=schema).to_table()
        assert table.to_pylist() == self.rows.to_pylist() * 2
        assert dict(zip(table.schema.names, table.schema.types, strict=True)) == types | dict(self.types)
