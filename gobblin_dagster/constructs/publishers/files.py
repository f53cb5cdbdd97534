"""Publishers of files: decide which files of earlier snapshots a new snapshot keeps."""

from __future__ import annotations

import posixpath
from typing import ClassVar

from pydantic import BaseModel

from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.core.traits import ALL_WIDENINGS
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.spec.job import SpecModel


class _NoOptions(SpecModel):
    """No keys but `type`."""


class _FilesPublisher:
    """Base without options. Only snapshots refer to the files, so compaction may merge them."""

    Options = _NoOptions
    allows_compaction: ClassVar = True
    widens: ClassVar = ALL_WIDENINGS

    def __init__(self, options: BaseModel, context: ConstructContext) -> None:
        """Ignore both arguments."""


class AppendPublisher(_FilesPublisher):
    """Add the files to those of earlier publications.

    Source: gobblin-core `BaseDataPublisher` and `TimePartitionedDataPublisher`, which differ in what they move; here
    each file is moved on its own.
    """

    def publish(self, view: PublishView) -> Publication:
        return Publication()


class ReplacePublisher(_FilesPublisher):
    """Replace the whole branch by each publication: readers no longer see files of earlier ones.

    Source: `data.publisher.replace.final.dir`. Differs: old files stay until their snapshots expire, so readers never
    find an empty folder, and a rollback restores them.
    """

    reads_current: ClassVar = True
    needs_all_units: ClassVar = True
    on_again: ClassVar = "replace"

    def publish(self, view: PublishView) -> Publication:
        return Publication(removed=tuple(file.path for file in view.current))


class ReplacePartitionsPublisher(_FilesPublisher):
    """Replace the files in the partition folders that a publication writes to; the others stay.

    Source: gobblin-core `TimePartitionedDataPublisher` with `data.publisher.replace.final.dir`.
    """

    reads_current: ClassVar = True
    needs_all_units: ClassVar = True
    on_again: ClassVar = "replace"

    def publish(self, view: PublishView) -> Publication:
        # Relative to the dataset's folder, which is another one if the branch's `path` has changed since.
        folder_in = DatasetUrn(view.dataset_urn).folder_in

        def partition(path: str) -> str:
            return posixpath.dirname(path).removeprefix(folder_in(path))

        written = {partition(file.path) for file in view.files}
        return Publication(removed=tuple(file.path for file in view.current if partition(file.path) in written))


class NoopPublisher(_FilesPublisher):
    """Publish nothing: rows are read, converted, checked and counted, and the watermark moves.

    Source: gobblin-core `NoopPublisher`.
    """

    publishes_files: ClassVar = False
    on_again: ClassVar = "drop"

    def publish(self, view: PublishView) -> Publication:
        return Publication(publishes_files=False)
