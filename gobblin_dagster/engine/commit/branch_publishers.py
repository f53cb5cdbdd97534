"""Ask the publishers of a dataset's branches what to do with its staged files; nothing that readers see changes."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from gobblin_dagster.core.commit import CommitStep, PublishedFile
from gobblin_dagster.core.constructs import (
    ChoosesFolder,
    DataPublisher,
    DataWriter,
    PublishView,
    RewritesFiles,
    Rewritten,
)
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.core.traits import PublisherTraits, traits_of


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and its absolute target."""

    staged: StagedFile
    target: str


@dataclass(frozen=True, slots=True)
class BranchPublications:
    """The publication of all branches."""

    moves: tuple[Move, ...]
    """The files that are published, in the order in which they were staged."""
    removed: tuple[str, ...] = ()
    steps: tuple[CommitStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Publishers:
    """The publishers of a job's branches, for one dataset; a branch without one (the quarantine) is appended to."""

    by_branch: Mapping[str, DataPublisher] = field(default_factory=dict)
    current: Sequence[PublishedFile] = ()
    """The files of the dataset's newest snapshot; empty if no publisher reads them."""
    replaced: Sequence[str] = ()
    """Files of earlier snapshots that leave, whatever the publishers say; their rows were read again."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """The dataset's folder by branch, relative to the output's root."""
    new_writer: Callable[[str, pa.Schema], DataWriter] | None = None
    """Makes the writer of a branch, for publishers that write published files again; None: there are none."""
    homes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What holds the rows of each branch, as `DatasetState.holders`, and where, as its `places`."""

    def plan(
        self, frame: PublishView, moves: Iterable[Move], schemas: Mapping[str, str], snapshot: int
    ) -> BranchPublications:
        """Ask each branch's publisher for its publication.

        Args:
            frame: the facts that all branches share; `branch`, `folder` and the fields after `now` are filled in.
            moves: every staged file with the target that its writer chose.
            schemas: the schema of each branch as text.
            snapshot: number of the new snapshot, if the publication changes what readers see.

        Raises:
            StepRefusedError: a publisher removes a file that its branch does not hold, or names a folder outside of its
                own.
            GobblinDagsterError: raised by a publisher.
        """
        moves = list(moves)
        kept = dict.fromkeys(range(len(moves)), True)
        removed: list[str] = []
        steps: list[CommitStep] = []
        for branch, publisher in self.by_branch.items():
            held = [file for file in self.current if file.branch == branch] if reads_current([publisher]) else []
            view = replace(
                frame,
                branch=branch,
                folder=posixpath.join(frame.output_root, self.folders[branch]),
                current=held,
                schema=schemas.get(branch),
            )
            subfolder = _subfolder(publisher, view)
            mine = [number for number, move in enumerate(moves) if move.staged.branch == branch]
            for number in mine:
                moves[number] = _moved(moves[number], view.folder, subfolder)
            view = _with_files(view, [moves[number] for number in mine], snapshot)
            rewritten = self._rewritten(publisher, view)
            if rewritten is not None:
                kept.update(dict.fromkeys(mine, False))
                new = [Move(file, posixpath.join(frame.output_root, file.target)) for file in rewritten.staged]
                kept.update(dict.fromkeys(range(len(moves), len(moves) + len(new)), True))
                moves += new
                _check(view, rewritten.removed)
                removed += rewritten.removed
                continue
            publication = publisher.publish(view)
            _check(view, publication.removed)
            kept.update(dict.fromkeys(mine, publication.publishes_files))
            removed += publication.removed
            steps += publication.steps
        return BranchPublications(
            tuple(move for number, move in enumerate(moves) if kept[number]),
            tuple(dict.fromkeys((*removed, *self.replaced))),
            tuple(steps),
        )

    def _rewritten(self, publisher: DataPublisher, view: PublishView) -> Rewritten | None:
        """Let a publisher write published files again; None if it does not."""
        if self.new_writer is None or not view.files or not isinstance(publisher, RewritesFiles):
            return None
        return publisher.rewrite(view, partial(self.new_writer, view.branch))


def reads_current(publishers: Iterable[DataPublisher]) -> bool:
    """True if one of the publishers must know the current files of its branch."""
    return any(traits_of(publisher, PublisherTraits).reads_current for publisher in publishers)


def needs_all_units(publishers: Iterable[DataPublisher]) -> bool:
    """True if one of the publishers must publish nothing if a work unit failed."""
    return any(traits_of(publisher, PublisherTraits).needs_all_units for publisher in publishers)


def replaces_all(publishers: Collection[DataPublisher]) -> bool:
    """True if there are publishers, and each of them replaces what it published before."""
    return bool(publishers) and all(traits_of(one, PublisherTraits).on_again == "replace" for one in publishers)


def deletes_missing(publishers: Iterable[DataPublisher]) -> bool:
    """True if one of the publishers deletes rows that a full extract lacks."""
    return any(traits_of(publisher, PublisherTraits).deletes_missing for publisher in publishers)


def published_file(move: Move, snapshot: int) -> PublishedFile:
    """Return a moved file as the manifest lists it."""
    staged = move.staged
    return PublishedFile(staged.branch, move.target, staged.size_bytes, staged.sha256, staged.rows, snapshot)


def _subfolder(publisher: DataPublisher, view: PublishView) -> str:
    subfolder = publisher.subfolder(view) if isinstance(publisher, ChoosesFolder) else ""
    if subfolder and {"", ".", ".."} & set(subfolder.split("/")):
        problem = f"the subfolder {subfolder!r} is not a plain relative path"
        raise StepRefusedError(step=f"publish branch {view.branch!r}", problem=problem)
    return subfolder


def _moved(move: Move, folder: str, subfolder: str) -> Move:
    if not subfolder:
        return move
    return replace(move, target=posixpath.join(folder, subfolder, posixpath.relpath(move.target, folder)))


def _with_files(view: PublishView, moves: Sequence[Move], snapshot: int) -> PublishView:
    files = [published_file(move, snapshot) for move in moves]
    return replace(view, files=files, staged={move.target: move.staged.path for move in moves})


def _check(view: PublishView, removed: Iterable[str]) -> None:
    if foreign := {*removed} - {file.path for file in view.current}:
        raise StepRefusedError(
            step=f"publish branch {view.branch!r}", problem=f"it removes {min(foreign)}, which it does not hold"
        )
