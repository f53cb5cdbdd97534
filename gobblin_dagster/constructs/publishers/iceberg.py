"""IcebergPublisher: add published Parquet files to an Iceberg table as they are, or merge their rows by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field, field_validator

from gobblin_dagster.constructs.clients.environment import to_store
from gobblin_dagster.constructs.clients.sql import parse_url
from gobblin_dagster.constructs.publishers.changes import require_order
from gobblin_dagster.constructs.publishers.iceberg_steps import (
    AppendToIcebergStep,
    IcebergCatalog,
    MergeIntoIcebergStep,
    is_sql,
    newest_commits,
    table_place,
)
from gobblin_dagster.constructs.publishers.merge_rule import MergeOptions, MergingPublisher
from gobblin_dagster.constructs.publishers.tables import (
    TableCommit,
    holds_extension,
    is_extension,
    is_foreign_decimal,
    resolved,
    unfit_type_in,
    without_secrets,
)
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.constructs import ConstructContext, HeldFile, NotedCommit, PublishView
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.traits import Widening

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL_FILE = re.compile(r"sqlite(\+\w+)?:///(?!:)")

_UNFIT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (
        lambda kind: pa.types.is_time(kind) and kind.unit != "us",
        "Iceberg keeps microseconds; cast it to time64[us]",
    ),
    (pa.types.is_duration, "Iceberg has no durations; make it a number of seconds, e.g. by the converter `columns`"),
    (is_foreign_decimal, "Iceberg has decimals of at most 38 digits; cast it to decimal128"),
    (
        lambda kind: is_extension(kind) and not isinstance(kind, pa.UuidType),
        "a type of Arrow that Iceberg does not have; make it text, e.g. by the converter `columns`",
    ),
)
_UNFIT_IN_MODE: Mapping[str, tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = {
    "append": (
        (
            lambda kind: pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC", "Etc/UTC", "+00:00", "Z"},
            "Iceberg keeps UTC, and files are added as they are; cast it to the same with the time zone UTC",
        ),
        (pa.types.is_float16, "Iceberg has no such numbers, and files are added as they are; cast it to float"),
    ),
    "scd2": ((holds_extension, "whose versions cannot be compared; make it text, e.g. by the converter `columns`"),),
}


class IcebergOptions(MergeOptions):
    """Options of the publisher `iceberg`."""

    table: str = Field(pattern=r"^[^.\s]+(\.[^.\s]+)+$")
    """Name in the catalog, `namespace.table`; the table is created by the first publication if it does not exist. All
    datasets of the branch share it: `{dataset}` is no placeholder here."""
    catalog_name: str = Field(default="default", min_length=1)
    """Name of the catalog; SQL catalogs store tables under it."""
    catalog: dict[str, str]
    """Properties of the catalog for pyiceberg: `{type: rest, uri: ...}`, `{type: sql, uri: ..., warehouse: ...}`,
    `{type: glue}`. The file of `sqlite:///catalog.db` and a `warehouse` folder of a `sql` catalog are relative to the
    project."""
    catalog_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables by name of the property, e.g. `credential: LAKE_CREDENTIAL`. They are read when publishing,
    and never written to plans, logs or state."""

    @field_validator("table")
    @classmethod
    def _no_placeholder(cls, table: str) -> str:
        if "{" in table or "}" in table:
            raise ValueError("must hold no braces: all datasets of a branch share one Iceberg table")
        return table

    @field_validator("catalog")
    @classmethod
    def _no_secrets(cls, catalog: dict[str, str]) -> dict[str, str]:
        return without_secrets(catalog, "catalog_env")


class IcebergPublisher(MergingPublisher[IcebergOptions]):
    """Publish the branch to an Iceberg table, exactly once, and store the watermark in the table's snapshot.

    `mode: append` adds the files as they are, `mode: merge` updates, inserts and deletes rows by key. New columns are
    added to the table, and types are widened as Iceberg allows. Several datasets and branches may share a table.

    Source: gobblin-iceberg `IcebergMetadataWriter`. Differs: part of the commit, not a stream of events after it.
    """

    packages = ("pyiceberg",)
    Options = IcebergOptions
    published_elsewhere = "an Iceberg table"
    widens: ClassVar[tuple[Widening, ...]] = ("new_fields",)

    def __init__(self, options: IcebergOptions, context: ConstructContext) -> None:
        super().__init__(options, context)
        self.ledger = f"the history of Iceberg table {options.table}"
        self.keeps_rows_in = _place_of(options, context.base_dir)
        self.places = tuple(_written_files(options, context.base_dir)) if self.merges else ()

    def newest_commits(self, datasets: Mapping[str, str]) -> Mapping[str, Collection[NotedCommit]]:
        table = self._catalog().load(self._options.table)
        noted = newest_commits(table, self._context.job) if table is not None else {}
        return {urn: commits for urn, commits in noted.items() if urn in datasets}

    def held_files(self, datasets: Mapping[str, str]) -> Sequence[HeldFile]:
        return self._catalog().load_files(self._options.table)

    def _catalog(self) -> IcebergCatalog:
        options = self._options
        properties = _in_project(options.catalog, self._context.base_dir)
        return IcebergCatalog(options.catalog_name, properties, options.catalog_env)

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        by_value = [level for level in options.get("partition_by") or () if isinstance(level, str)]
        if by_value and not options.get("keep_partition_columns"):
            lost = ", ".join(by_value)
            return f"the table would lack {lost}, in folder names only; set the writer's `keep_partition_columns: true`"
        return super().unfit_writer(type_name, options)

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why no Iceberg table can hold rows of a schema, or why they cannot be merged; empty if they can.

        Newer versions of tables hold more types than older ones: only the table itself tells about these.
        """
        tests = (*_UNFIT, *_UNFIT_IN_MODE.get(self._options.mode, ()))
        return unfit_type_in(schema, tests) or super().unfit_columns(extract, schema)

    def _shared_table(self) -> str:
        return self._options.table

    def _step(self, view: PublishView) -> AppendToIcebergStep:
        place, commit = self._place(), TableCommit.of(view, staged=self.merges)
        if self.merges:
            step = MergeIntoIcebergStep(commit=commit, **place, rule=self.rule_for(view))
            require_order(step.describe(), view, step.rule)
            return step
        return AppendToIcebergStep(commit=commit, **place)

    def aimed(self, step: CommitStep, folder: str) -> CommitStep | None:
        return replace(step, **self._place()) if isinstance(step, AppendToIcebergStep) else None

    def _place(self) -> dict[str, Any]:
        """Return the fields of a step that say which table it changes."""
        options = self._options
        absolute = _in_project(options.catalog, self._context.base_dir)
        # Local paths are shown as they are, as everywhere.
        local = {name: path for name, path in absolute.items() if path != options.catalog[name]}
        others = {name: value for name, value in options.catalog.items() if name not in local}
        plain, variables = to_store(others, options.catalog_env)
        return {
            "table": options.table,
            "catalog_name": options.catalog_name,
            "catalog": {**plain, **local},
            "catalog_env": variables,
        }


def _place_of(options: IcebergOptions, base_dir: str) -> str:
    """Return the table as a URL; the value of a variable is not known when a job file is checked."""
    catalog = {name: f"${{{variable}}}" for name, variable in options.catalog_env.items() if name == "uri"}
    return table_place(options.table, options.catalog_name, {**catalog, **_in_project(options.catalog, base_dir)})


def _written_files(options: IcebergOptions, base_dir: str) -> Iterator[str]:
    """Yield files as pyiceberg names those that it writes when it merges, if it is known here where they are."""
    catalog = dict(options.catalog)
    with suppress(EnvironmentFaultError):  # a run says so
        catalog = resolved(options.catalog, options.catalog_env)
    warehouse = _in_project(catalog, base_dir).get("warehouse", "").rstrip("/")
    namespace, _, table = options.table.rpartition(".")
    for folder in (namespace, f"{namespace}.db") if warehouse else ():
        yield f"{warehouse}/{folder}/{table}/data/00000-0-00000000-0000-0000-0000-000000000000.parquet"


def _in_project(catalog: Mapping[str, str], base_dir: str) -> Mapping[str, str]:
    """Return the properties with absolute local paths, so that all processes of a project find one catalog."""
    found = dict(catalog)
    if _LOCAL_FILE.match(catalog.get("uri", "")):
        found["uri"] = parse_url(catalog["uri"], base_dir).render_as_string(hide_password=False)
    folder = catalog.get("warehouse", "")
    if is_sql(catalog) and folder and not _URL.match(folder):
        found["warehouse"] = str(Path(base_dir, folder))
    return found
