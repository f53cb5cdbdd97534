"""Data publishers decide which staged files become visible, and which other commit steps run.

Below `DataPublisher` stand the optional additions to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.constructs.writer import DataWriter
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.task_state import StagedFile


@dataclass(frozen=True, slots=True)
class PublishView:
    """What a publisher gets: the files of one branch of one dataset that are published together."""

    job: str
    run_id: str
    commit_id: str
    """128 random bits in hex, part of the name of every file in `files`. Repeating the commit after a crash keeps the
    id."""
    dataset_urn: str
    branch: str
    extract: Extract
    output_root: str
    """Absolute."""
    folder: str
    """Absolute folder of the branch's published files of this dataset; its subfolders are the writer's partitions."""
    now: datetime
    """Aware, UTC."""
    files: Sequence[PublishedFile] = ()
    """The files to publish, under the absolute paths that they will have. Empty if no rows were written for the
    branch."""
    staged: Mapping[str, str] = field(default_factory=dict)
    """Absolute path in staging by path of `files`. A file lies there until it is moved, and stays if it is not
    published."""
    current: Sequence[PublishedFile] = ()
    """The branch's files of the newest snapshot; empty unless the publisher sets `reads_current = True`."""
    schema: str | None = None
    """Arrow schema of the branch as `name: type` lines; None if nothing was ever written."""
    low: str = ""
    """First position that was read, inclusive; empty if nothing was committed before and the plan had no low."""
    high: str = ""
    """The dataset's watermark after this commit, exclusive."""
    rows_left_out: int = 0
    """Rows of all branches that were put into the quarantine: they exist in the source, but are in no file."""
    joins: bool = False
    """True if the rows belong to data published before (a replay of the quarantine). Then nothing may be replaced."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publisher decides; the default moves all files to their targets and does nothing else."""

    removed: tuple[str, ...] = ()
    """Paths of `PublishView.current` that the new snapshot no longer holds. Older snapshots still hold them: the files
    are deleted when those expire."""
    steps: tuple[CommitStep, ...] = ()
    """Steps to run, in order, after all files have been moved and before the commit transaction. Each must be
    idempotent and verify itself by content. Register its class (`core.step_registry.register_commit_step`) when the
    publisher's module is imported. Steps are stored: put no secrets into them."""
    publishes_files: bool = True
    """False leaves the files in staging, for steps that read them there; staging is deleted after the commit."""


class DataPublisher(Protocol):
    """Decides how the files of a branch are published.

    Made with `cls(options, context)` on the driver, one object per dataset, branch and publication, and one to check
    the job file. `core.traits.PublisherTraits` lists the attributes that a publisher may set.

    Source: gobblin-core-base `DataPublisher`. Differs: one per branch, not one per job. It plans steps instead of doing
    them, so that the next run can finish them after a crash.
    """

    def publish(self, view: PublishView) -> Publication:
        """Return what to do with the files of a branch; change nothing.

        Called once per publication, before its commit sequence is stored; not called again after a crash.

        Raises:
            UsageError, SourceError: the files cannot be published; only this dataset fails.
        """


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Files that a publisher has staged in place of those of a publication."""

    staged: tuple[StagedFile, ...] = ()
    """They are published; the files of the view are not."""
    removed: tuple[str, ...] = ()
    """As `Publication.removed`."""


@runtime_checkable
class RewritesFiles(Protocol):
    """Optional addition to `DataPublisher`: it writes published files again, because new rows replace some of theirs.

    Set `reads_current = True`. A replay calls it too: its rows replace others.
    """

    def rewrite(self, view: PublishView, new_writer: Callable[[pa.Schema], DataWriter]) -> Rewritten | None:
        """Stage files and return them; None to publish the files of the view as they are.

        Called on the driver before `publish`, if the view has files. If it returns files, `publish` is not called. What
        it stages is deleted if nothing is committed.

        Args:
            view: the publication.
            new_writer: makes the branch's writer for rows of a schema.

        Raises:
            GobblinDagsterError: the rows cannot be published; only this dataset fails.
        """


@runtime_checkable
class JudgesWriter(Protocol):
    """Optional addition to `DataPublisher`: it works with some writers only."""

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        """Return why the publisher cannot use the branch's writer; empty if it can.

        Called on the driver when the job file is checked.

        Args:
            type_name: `writer.type` of the job file.
            options: the writer's options, as the job file has them.
        """


@runtime_checkable
class JudgesExtract(Protocol):
    """Optional addition to `DataPublisher`: it publishes some kinds of extraction only."""

    def unfit_extract(self, extract: Extract) -> str:
        """Return why the publisher cannot publish such an extraction; empty if it can.

        Called on the driver when the job file is checked.
        """


@runtime_checkable
class JudgesRows(Protocol):
    """Optional addition to `DataPublisher`: it publishes only rows with certain columns, such as a key."""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why rows of such columns cannot be published; empty if they can.

        Called on the driver when a plan knows the columns, and in each task before rows are written: the work unit
        fails then. So the publisher's class must be importable there.

        Args:
            extract: what the job extracts.
            schema: the branch's columns after its converters and its schema contract.
        """

    def key_columns(self, extract: Extract) -> Sequence[str]:
        """Return the columns that must not be null; a null fails its work unit with file and row."""


@runtime_checkable
class NamesTargets(Protocol):
    """Optional addition to `DataPublisher`: it publishes each dataset to a target of its own, such as a table.

    The planner refuses datasets that would share a target.
    """

    def targets_of(self, datasets: Collection[str]) -> Mapping[str, str]:
        """Return the name of each dataset's target by dataset.urn; leave out datasets that may share a target.

        Called on the driver once per plan, for all datasets with work. Two names must be equal if the target system
        considers them equal: if a database ignores the case of table names, return them in lower case.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@runtime_checkable
class JudgesTargets(Protocol):
    """Optional addition to `DataPublisher`: its target system does not take every name."""

    def unfit_targets(self, datasets: Collection[str]) -> Mapping[str, str]:
        """Return, by dataset.urn, why a dataset cannot be published to its target; leave out datasets that can.

        Called on the driver once per plan, for all datasets with work, so that nothing is read in vain.
        """


@dataclass(frozen=True, slots=True)
class NotedCommit:
    """A commit that a table or topic has recorded beside its rows."""

    commit_id: str | None
    """None if the target keeps only the time of the newest one; then this time is that of its commit sequence."""
    published_at: datetime | None
    """Aware, UTC; None for records of earlier versions, which have no time."""
    doubt: str = ""
    """Why the target, as it is now, may lack rows of the commit though it notes it: a clause, or empty."""


@runtime_checkable
class KeepsLedger(Protocol):
    """Optional addition to `DataPublisher`: its target (a table, a topic) records the ids of the commits that it holds.

    Implement it if publishing a commit twice would add its rows twice, or put older rows in the place of newer ones.
    Before a run reads anything, the engine asks each target once, unless each publication replaces all rows. If the
    target holds commits that the state store does not know, the store was lost or restored from an old backup, and the
    engine refuses the dataset; not if rows take the place of those with their keys (trait `on_again`) and
    `extract.delta_fields` or the trait `keeps_order` tells which one is newer. If the target lacks the newest commit of
    the store, it was itself lost or restored, and the dataset is refused too.
    """

    ledger: str
    """Where the commits are recorded, for messages: `"table gobblin_commits"`."""

    def newest_commits(self, datasets: Mapping[str, str]) -> Mapping[str, Collection[NotedCommit]]:
        """Return the newest commits by dataset.urn, of any branch of the job; leave out datasets without any.

        Args:
            datasets: the datasets to ask about; by dataset.urn, the absolute folder of the branch's files. A publisher
                whose table lies there has the trait `is_in_output`, and is asked for each branch.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A data file that the newest state of a table lists."""

    path: str
    """As readers of the table find it; absolute."""
    size_bytes: int
    found_bytes: int | None
    """Its size now; None if it is not there."""


@runtime_checkable
class ListsTableFiles(Protocol):
    """Optional addition to `DataPublisher`: its table lists data files, which `gobblin verify` looks for."""

    def held_files(self, datasets: Mapping[str, str]) -> Iterable[HeldFile]:
        """Return the data files of the newest state of the tables of some datasets.

        Args:
            datasets: as of `KeepsLedger.newest_commits`.

        Raises:
            StorageError, EnvironmentFaultError: a table cannot be read.
        """


@runtime_checkable
class ChoosesFolder(Protocol):
    """Optional addition to `DataPublisher`: it puts each publication's files into a subfolder."""

    def subfolder(self, view: PublishView) -> str:
        """Return a relative folder to insert below `view.folder`, above partition folders; empty for none.

        Called on the driver once per publication, before `publish`, with a view whose `files` are empty.
        """
