"""Tests that every publisher must pass: it returns what is to be done, and does nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.constructs import (
    ChoosesFolder,
    ConstructContext,
    DataPublisher,
    JudgesExtract,
    JudgesTargets,
    JudgesWriter,
    NamesTargets,
    PublishView,
)
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.traits import PublisherTraits, traits_of
from gobblin_dagster.engine.commit.steps import step_from_json, step_to_json
from gobblin_dagster.testing.conformance.construct import ConstructConformance

COMMIT = "0123456789abcdef0123456789abcdef"


class PublisherConformance(ConstructConformance):
    """Tests of a publisher.

    Example:
        ::

            class TestKeepThree(PublisherConformance):
                spec = {"type": "my_parts:KeepThreePublisher"}
    """

    protocol = "gobblin_dagster.core.constructs.DataPublisher"
    kind = ConstructKind.PUBLISHER
    writer: Mapping[str, object] = {"type": "parquet"}
    """A writer that serves it."""
    extract: Extract = Extract("conformance", "rows", primary_keys=("id",))
    """An extraction that it can publish."""

    @pytest.fixture
    def publisher(self, context: ConstructContext) -> DataPublisher:
        """Return the publisher, fresh as for each dataset, branch and publication."""
        made: DataPublisher = self.make(context)
        return made

    @pytest.fixture
    def view(self, tmp_path: Path) -> PublishView:
        """Return a publication of two files beside two that are there; override it for what the publisher needs."""
        folder = f"{tmp_path}/lake/raw/rows/main/orders"
        files = _files(folder, COMMIT, 2)
        return PublishView(
            job="conformance",
            run_id="run-1",
            commit_id=COMMIT,
            dataset_urn="orders",
            branch="main",
            extract=self.extract,
            output_root=f"{tmp_path}/lake",
            folder=folder,
            now=datetime(2026, 11, 21, 8, tzinfo=UTC),
            files=files,
            staged={
                file.path: f"{tmp_path}/lake/_gobblin/staging/{COMMIT}/{n}.parquet" for n, file in enumerate(files)
            },
            schema="id: int64\nname: string",
            low="0",
            high="10",
        )

    def with_current(self, publisher: DataPublisher, view: PublishView) -> PublishView:
        """Return the view with what the branch holds, for a publisher that reads it."""
        reads = traits_of(publisher, PublisherTraits).reads_current
        return replace(view, current=_files(view.folder, "f" * 32, 1)) if reads else view

    def test_publishing_is_pure(self, publisher: DataPublisher, view: PublishView, context: ConstructContext) -> None:
        """`publish` touches nothing and depends on the view alone: a fresh object says the same."""
        seen = self.with_current(publisher, view)
        before = sorted(Path(context.base_dir).rglob("*"))
        assert publisher.publish(seen) == publisher.publish(seen) == self.make(context).publish(seen)
        assert sorted(Path(context.base_dir).rglob("*")) == before

    def test_only_what_the_branch_holds_is_removed(self, publisher: DataPublisher, view: PublishView) -> None:
        """`Publication.removed` names paths of `PublishView.current` alone."""
        seen = self.with_current(publisher, view)
        assert set(publisher.publish(seen).removed) <= {file.path for file in seen.current}

    def test_no_files_are_published_without_an_error(self, publisher: DataPublisher, view: PublishView) -> None:
        """`publish` accepts a publication without files: the work units read no rows for the branch."""
        publisher.publish(replace(self.with_current(publisher, view), files=(), staged={}))

    def test_steps_are_stored_and_read_again(self, publisher: DataPublisher, view: PublishView) -> None:
        """Every step is of a registered type, survives JSON, and says in one line what it does."""
        for step in publisher.publish(self.with_current(publisher, view)).steps:
            assert step_from_json(step_to_json(step)) == step
            assert step.describe().strip()
            assert "\n" not in step.describe()

    def test_files_are_published_as_the_trait_says(self, publisher: DataPublisher, view: PublishView) -> None:
        """A publisher whose trait `publishes_files` is False never publishes one: an audit counts none."""
        publication = publisher.publish(self.with_current(publisher, view))
        assert not publication.publishes_files or traits_of(publisher, PublisherTraits).publishes_files

    def test_subfolder_is_a_plain_relative_path(self, publisher: DataPublisher, view: PublishView) -> None:
        """`subfolder` returns a relative path without `.` and `..`, the same for a redo."""
        if isinstance(publisher, ChoosesFolder):
            empty = replace(view, files=(), staged={})
            folder = publisher.subfolder(empty)
            assert not {"", ".", ".."} & set(folder.split("/")) or folder == ""
            assert publisher.subfolder(empty) == folder

    def test_what_it_publishes_it_can_publish(self, publisher: DataPublisher) -> None:
        """`unfit_writer` and `unfit_extract` return an empty text for a writer and an extraction that serve it."""
        options = {key: value for key, value in self.writer.items() if key != "type"}
        if isinstance(publisher, JudgesWriter):
            assert publisher.unfit_writer(str(self.writer["type"]), options) == ""
        if isinstance(publisher, JudgesExtract):
            assert publisher.unfit_extract(self.extract) == ""

    def test_targets_are_those_of_the_datasets(self, publisher: DataPublisher) -> None:
        """`targets_of` names no dataset that it was not asked for; unlike names have targets of their own."""
        if isinstance(publisher, NamesTargets):
            targets = publisher.targets_of(["orders", "customers"])
            assert set(targets) <= {"orders", "customers"}
            assert len(set(targets.values())) == len(targets)
        if isinstance(publisher, JudgesTargets):
            assert publisher.unfit_targets(["orders", "customers"]) == {}


def _files(folder: str, commit: str, snapshot: int) -> Sequence[PublishedFile]:
    paths = (f"{folder}/{commit}-wu-00001-0.parquet", f"{folder}/{commit}-wu-00002-0.parquet")
    return [PublishedFile("main", path, 1000, "ab" * 32, 5, snapshot) for path in paths]
