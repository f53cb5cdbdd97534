"""Publishers of files: what a snapshot keeps of the ones before it."""

from __future__ import annotations

import posixpath
from typing import ClassVar

from pydantic import BaseModel

from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.spec.job import SpecModel


class _NoOptions(SpecModel):
    """No keys besides `type`."""


class _FilesPublisher:
    """Made of nothing; only readers of snapshots name its files, so they may be merged."""

    Options = _NoOptions
    allows_compaction: ClassVar = True

    def __init__(self, options: BaseModel, context: ConstructContext) -> None:
        """Need neither."""


class AppendPublisher(_FilesPublisher):
    """Adds the files to those of earlier publications.

    Source: gobblin-core `BaseDataPublisher` and `TimePartitionedDataPublisher`, which differ in what is moved; here
    each file is moved on its own.
    """

    def publish(self, view: PublishView) -> Publication:
        return Publication()


class ReplacePublisher(_FilesPublisher):
    """Makes each publication the whole branch: readers no longer see the files of earlier ones.

    Source: `data.publisher.replace.final.dir`. Differs: the old files stay until their snapshots expire, so readers never
    find an empty folder and a rollback brings them back.
    """

    reads_current: ClassVar = True
    needs_all_units: ClassVar = True

    def publish(self, view: PublishView) -> Publication:
        return Publication(removed=tuple(file.path for file in view.current))


class ReplacePartitionsPublisher(_FilesPublisher):
    """Replaces the files in those partition folders that the publication writes to; the others stay as they are.

    Source: gobblin-core `TimePartitionedDataPublisher` with `data.publisher.replace.final.dir`.
    """

    reads_current: ClassVar = True
    needs_all_units: ClassVar = True

    def publish(self, view: PublishView) -> Publication:
        # Below the dataset's folder: that one differs where the branch's `path` has changed since.
        folder_in = DatasetUrn(view.dataset_urn).folder_in

        def partition(path: str) -> str:
            return posixpath.dirname(path).removeprefix(folder_in(path))

        written = {partition(file.path) for file in view.files}
        return Publication(removed=tuple(file.path for file in view.current if partition(file.path) in written))


class NoopPublisher(_FilesPublisher):
    """Publishes nothing: rows are read, converted, checked and counted, and the watermark moves.

    Source: gobblin-core `NoopPublisher`.
    """

    publishes_files: ClassVar = False

    def publish(self, view: PublishView) -> Publication:
        return Publication(publishes_files=False)
