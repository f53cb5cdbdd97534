"""DeltaPublisher: add published Parquet files to a Delta table as they are, or merge their rows by key."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from gobblin_dagster.constructs.clients.environment import to_store
from gobblin_dagster.constructs.publishers.changes import require_order
from gobblin_dagster.constructs.publishers.delta_steps import (
    AppendToDeltaStep,
    MergeIntoDeltaStep,
    application_of,
    load_files,
    load_numbers,
    unfit_types,
)
from gobblin_dagster.constructs.publishers.merge_rule import MergeOptions, MergingPublisher
from gobblin_dagster.constructs.publishers.tables import TableCommit, without_secrets
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.constructs import HeldFile, NotedCommit, PublishView
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.traits import ALL_WIDENINGS
from gobblin_dagster.core.utils.parallel import in_parallel

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES_AT_ONCE = 8


class DeltaOptions(MergeOptions):
    """Options of the publisher `delta`."""

    table: Literal["branch", "dataset"] = "branch"
    """`branch`: one table for the branch of all datasets, in the folder `<namespace>/<table>/<branch>` of the output.
    `dataset`: a table in each dataset's own folder."""
    storage_options: dict[str, str] = Field(default_factory=dict)
    """Settings of the table's storage for deltalake, e.g. `{AWS_ENDPOINT_URL: ...}`; default: deltalake's own
    defaults."""
    storage_options_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables by name of the setting. They are read when publishing, and never written to plans, logs or
    state."""

    @field_validator("storage_options")
    @classmethod
    def _no_secrets(cls, settings: dict[str, str]) -> dict[str, str]:
        return without_secrets(settings, "storage_options_env")


class DeltaPublisher(MergingPublisher[DeltaOptions]):
    """Publish the branch to a Delta table, exactly once; the table stores the dataset's progress as transaction id.

    `mode: append` adds the files as they are; folders of `partition_by` become the table's partition columns. `mode:
    merge` updates, inserts and deletes rows by key. New columns are added to the table, and wider types are taken by
    writing it again; a column of any other type is refused.

    Source: none; Gobblin does not publish to Delta.
    """

    packages = ("deltalake",)
    Options = DeltaOptions
    published_elsewhere = "a Delta table"
    is_in_output = True
    widens = ALL_WIDENINGS
    ledger = "the log of the branch's Delta table"

    @property
    def keeps_rows_in(self) -> str:
        """The table, relative to the branch's folder."""
        return "{dataset}" if self._options.table == "dataset" else ""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why rows of a schema cannot be in a Delta table, or cannot be merged; empty if they can."""
        return unfit_types(schema, self._options.mode) or super().unfit_columns(extract, schema)

    def newest_commits(self, datasets: Mapping[str, str]) -> Mapping[str, Collection[NotedCommit]]:
        options, job, branch = self._options, self._context.job, self._context.branch or ""
        places = {urn: self._location(folder) for urn, folder in datasets.items()}
        locations = self._locations(datasets)
        load = partial(load_numbers, options=options.storage_options, variables=options.storage_options_env)
        tables = dict(zip(locations, in_parallel(load, locations, _TABLES_AT_ONCE), strict=True))
        numbers = {
            urn: tables[place](application_of(job, urn, branch)) for urn, place in places.items() if place in tables
        }
        return {
            urn: [NotedCommit(None, _EPOCH + timedelta(microseconds=number))]
            for urn, number in numbers.items()
            if number is not None
        }

    def held_files(self, datasets: Mapping[str, str]) -> Iterator[HeldFile]:
        options = self._options
        for location in self._locations(datasets):
            yield from load_files(location, options.storage_options, options.storage_options_env)

    def targets_of(self, datasets: Collection[str]) -> Mapping[str, str]:
        return {} if self._options.table == "dataset" else super().targets_of(datasets)

    def _shared_table(self) -> str:
        return f"{self._context.branch} (one table for all datasets; `table: dataset` makes one for each)"

    def _location(self, folder: str) -> str:
        return folder if self._options.table == "dataset" else posixpath.dirname(folder)

    def _locations(self, datasets: Mapping[str, str]) -> list[str]:
        # `_step` says why there can be no table in a folder with `%`.
        return sorted({place for place in map(self._location, datasets.values()) if "%" not in place})

    def _step(self, view: PublishView) -> AppendToDeltaStep:
        location = self._location(view.folder)
        if "%" in location:
            raise UsageError(
                problem=f"Branch {view.branch!r}: there can be no Delta table at {location}: the library that writes "
                "it cannot open folders with `%` in their names.",
                hint="Give its publisher `table: branch`.",
            )
        facts: Mapping[str, Any] = {
            **self._place(view.folder),
            "commit": TableCommit.of(view, staged=self.merges),
            "number": _transaction_number(view.now),
        }
        if not self.merges:
            return AppendToDeltaStep(**facts)
        step = MergeIntoDeltaStep(**facts, rule=self.rule_for(view), partition_by=self.partition_columns(view))
        require_order(step.describe(), view, step.rule)
        return step

    def aimed(self, step: CommitStep, folder: str) -> CommitStep | None:
        return replace(step, **self._place(folder)) if isinstance(step, AppendToDeltaStep) else None

    def _place(self, folder: str) -> dict[str, Any]:
        """Return the fields of a step that say which table it changes."""
        plain, variables = to_store(self._options.storage_options, self._options.storage_options_env)
        return {"location": self._location(folder), "storage_options": plain, "storage_options_env": variables}


def _transaction_number(now: datetime) -> int:
    return (now - _EPOCH) // timedelta(microseconds=1)
