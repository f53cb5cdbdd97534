"""Data publishers: they say which commit steps make staged files visible, and what else they may be able to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.extract import Extract


@dataclass(frozen=True, slots=True)
class PublishView:
    """One branch of one dataset in one publication: the files of all work units that are published together."""

    job: str
    run_id: str
    commit_id: str
    """128 random bits in hex, in the name of every file of `files`; a redo has the same."""
    dataset_urn: str
    branch: str
    extract: Extract
    output_root: str
    """Absolute."""
    folder: str
    """Absolute folder of the branch's files of this dataset; folders below it are those of the writer's partitions."""
    now: datetime
    """Aware, UTC."""
    files: Sequence[PublishedFile] = ()
    """What this publication adds; paths are absolute targets. Empty where the work units read no rows for the branch."""
    staged: Mapping[str, str] = field(default_factory=dict)
    """Absolute path in staging of each path of `files`: where it lies until it is moved, and stays if it is not published."""
    current: Sequence[PublishedFile] = ()
    """What the branch holds now; empty unless the publisher says `reads_current = True`."""
    schema: str | None = None
    """Arrow schema of the branch as `name: type` lines; None where nothing was ever written."""
    low: str = ""
    """Where this publication began to read; empty where nothing was committed before and the plan had no low."""
    high: str = ""
    """The dataset's watermark once this is committed."""
    joins: bool = False
    """True where the rows belong to what is published already (a replay of the quarantine): nothing may be replaced."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publisher wants done besides moving the files into place."""

    removed: tuple[str, ...] = ()
    """Paths of `PublishView.current` that the new snapshot no longer holds. Older snapshots still do, so nothing is
    deleted before they expire."""
    steps: tuple[CommitStep, ...] = ()
    """Run in order after all files are in place and before COMMIT. Each is idempotent and verified by content; its class is
    registered (`core.step_registry.register_commit_step`) when the publisher's module is imported. They are stored: no
    secrets in them."""
    publishes_files: bool = True
    """False leaves the files of this publication in staging, which is deleted after COMMIT; steps may read them there."""


class DataPublisher(Protocol):
    """Decides how a branch is published; one object per dataset, branch and publication, on the driver.

    Made with `cls(options, context)` as every construct. May say more of itself: `core.traits.PublisherTraits`.

    Source: gobblin-core-base `DataPublisher`. Differs: one per branch, not one per job; it plans what others do, so a
    crash in the middle is made good by whoever comes next.
    """

    def publish(self, view: PublishView) -> Publication:
        """Return what is to be done. Pure; raises UsageError or SourceError, which fail the dataset alone."""


@runtime_checkable
class JudgesWriter(Protocol):
    """What a publisher also implements where not every writer serves it; asked when the job file is checked."""

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        """Return why the branch's writer cannot serve it; empty where it can."""


@runtime_checkable
class JudgesExtract(Protocol):
    """What a publisher also implements where it cannot publish every extraction; asked when the job file is checked."""

    def unfit_extract(self, extract: Extract) -> str:
        """Return why it cannot publish what the job extracts; empty where it can."""


@runtime_checkable
class NamesTargets(Protocol):
    """What a publisher also implements where each dataset has a target of its own; asked when a run is planned."""

    def targets_of(self, datasets: Collection[str]) -> Mapping[str, str]:
        """Return the target's name by dataset.urn, as the target compares names; without datasets that may share one.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@dataclass(frozen=True, slots=True)
class NotedCommit:
    """A commit, as the target that holds its rows notes it."""

    commit_id: str
    published_at: datetime | None
    """Aware, UTC; None if an earlier version noted it, without its time."""


@runtime_checkable
class KeepsLedger(Protocol):
    """A publisher whose target itself names the commits that it holds, and holds a row twice if it is published twice.

    Asked once per target before a run reads anything, so that a state store that was lost or set back is noticed.
    """

    ledger: str
    """What names the commits, for messages: `"table gobblin_commits"`."""

    def newest_commits(self, datasets: Collection[str]) -> Mapping[str, Collection[NotedCommit]]:
        """Return the newest commits by dataset.urn, whatever branch of the job; without datasets that the target does not know.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@runtime_checkable
class ChoosesFolder(Protocol):
    """What a publisher also implements where its files lie in a folder of their own."""

    def subfolder(self, view: PublishView) -> str:
        """Return a relative folder between `view.folder` and the files (and their partition folders); empty for none.

        Called before `publish`, with a view whose `files` are empty.
        """
