"""FilesSource: dated files, a dataset per folder or name, read in order of the dates in their paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Annotated, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from gobblin_dagster.constructs.extractors.files import FilesExtractor, translated_errors
from gobblin_dagster.constructs.extractors.format import FileFormat, InputFile
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.dated import Limits, plan_dated_files
from gobblin_dagster.constructs.sources.listing import Examples, Listing, LocalFolders, RemoteFolders, Walk, printable
from gobblin_dagster.constructs.sources.pattern import PathPattern
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import InvalidUrnError, SourceError
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.watermark import CommittedRanges, TimestampWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.spec.job import ConstructSpec


class FilesOptions(BaseModel):
    """Options of the source `files`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str = Field(min_length=1)
    """Pattern of file paths, relative to the project, absolute, or a URL: `data/{dataset}/{date:%Y-%m-%d}.csv`.
    `{dataset}` is the dataset.urn (`{dataset:**}`: one folder or more), `{date:<strptime format>}` the day, hour or minute
    that orders the files, `*` any text inside one name (not a leading dot). Without `{dataset}` all files are one dataset,
    named `<namespace>.<table>`."""
    format: Annotated[ConstructSpec, ConstructKind.FORMAT]
    """How files are read: `{type: csv}`, `{type: jsonl}` or `{type: parquet}`, with options."""
    start: date | None = None
    """Files dated before it are left alone; default: none are."""
    timezone: str = "UTC"
    """Time zone of the dates in paths, e.g. `Europe/Berlin`."""
    files_per_work_unit: int = Field(default=64, ge=1)
    """Most files that one work unit takes; files of one date stay together even so."""
    bytes_per_work_unit: int = Field(default=128 << 20, ge=1)
    """Most bytes that one work unit takes; files of one date stay together even so."""
    _pattern: PathPattern = PrivateAttr()

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {name!r}; expected a name like Europe/Berlin") from None
        return name

    @field_validator("path")
    @classmethod
    def _compiles(cls, path: str) -> str:
        PathPattern.parse(path)
        return path.removeprefix("file://")

    @model_validator(mode="after")
    def _compiled(self) -> Self:
        self._pattern = PathPattern.parse(self.path, self.timezone)
        return self

    @property
    def pattern(self) -> PathPattern:
        """The path, compiled."""
        return self._pattern


class FilesSource:
    """Finds dated files and plans those whose dates were not committed.

    The position of a file is the instant at which its date begins, the watermark a timestamp. Files of a date that was
    committed are never read again: each dated file is complete when it first appears (write it under another name, then
    rename it). Late files are named in the plan's notes.

    Source: gobblin-core `FileBasedSource`, `PartitionedFileSourceBase`. Differs: the dataset is part of the path; gaps
    are read again alone; no list of all files ever seen is kept.
    """

    Options = FilesOptions

    def __init__(self, options: FilesOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._format: FileFormat = registry.create(ConstructKind.FORMAT, options.format, context)
        self._limits = Limits(options.files_per_work_unit, options.bytes_per_work_unit)

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        listing = self._listing(context)
        known = {urn for urn in context.states if context.is_selected(urn)}
        urns = {*listing.files, *listing.undated, *listing.skipped, *listing.problems, *known} - {None}
        shared = _skip_notes(listing, None, self._options.pattern.date_format, self._label)
        for urn in sorted(str(urn) for urn in urns):
            yield self._offer(urn, listing, context.states.get(urn), shared)
            shared = []

    def extractor(self, unit: WorkUnit) -> Extractor:
        return FilesExtractor(unit, self._format, self._context)

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        bound = self._options.pattern.bind(dataset_urn)
        try:
            files = self._walk(bound, lambda _: True, dataset_urn).files.get(dataset_urn, [])
        except FileNotFoundError:
            return 0
        rows = 0
        for file in files:
            if file.start >= self._start() and ranges.contains(file.start):
                with translated_errors(dataset_urn, self._label(file.path)):
                    rows += self._format.count_rows(InputFile(file.path))
        return rows

    def _listing(self, context: SourceContext) -> Listing:
        extract = context.extract
        try:
            listing = self._walk(self._options.pattern, context.is_selected, f"{extract.namespace}.{extract.table}")
        except FileNotFoundError:
            raise self._no_match(Examples()) from None
        except OSError as error:
            raise self._error(f"cannot list {self._root()}: {error.strerror or error}.") from error
        if None in listing.problems:
            raise self._error(listing.problems[None] + ".")
        if not (listing.files or listing.undated or listing.problems or listing.has_unselected):
            raise self._no_match(listing.others)
        return listing

    def _walk(self, pattern: PathPattern, is_selected: Callable[[str], bool], default_urn: str) -> Listing:
        root = self._root(pattern)
        folders = RemoteFolders(root) if "://" in root else LocalFolders()
        return Walk(pattern, root, folders, is_selected, default_urn).run()

    def _offer(self, urn: str, listing: Listing, state: DatasetState | None, shared: list[str]) -> DatasetOffer:
        problem = listing.problems.get(urn, "") or _urn_problem(urn) or _state_problem(state)
        if problem:
            return DatasetOffer(printable(urn), None, None, problem=problem, notes=shared)
        files = listing.files.get(urn, [])
        wanted = [file for file in files if file.start >= self._start()] if self._options.start else files
        plan = plan_dated_files(urn, wanted, state, self._limits, self._options.pattern.end_of, self._label)
        notes = [*shared, *_skip_notes(listing, urn, self._options.pattern.date_format, self._label), *plan.notes]
        if not files and state is not None:
            notes.append(f"none of its files is there any more; it is committed up to {state.watermark}.")
        if not plan.work_units:
            mark = state.watermark if state is not None else None
            return DatasetOffer(urn, mark, mark, notes=notes)
        units = plan.work_units
        return DatasetOffer(urn, units[0].low, units[-1].expected_high, units, notes=notes)

    def _start(self) -> datetime:
        """Return the instant before which files are left alone."""
        if self._options.start is None:
            return datetime.min.replace(tzinfo=UTC)
        zone = self._options.pattern.timezone
        return datetime.combine(self._options.start, time_of_day(), zone).astimezone(UTC)

    def _root(self, pattern: PathPattern | None = None) -> str:
        root = (pattern or self._options.pattern).root()
        return root if "://" in root else os.path.normpath(Path(self._context.base_dir, root))

    def _label(self, path: str) -> str:
        """Return the path that people know a file by: relative to the project where it lies inside."""
        return path.removeprefix(self._context.base_dir.rstrip("/") + "/")

    def _error(self, problem: str, hint: str = "") -> SourceError:
        return SourceError(job=self._context.job, problem=problem, hint=hint)

    def _no_match(self, others: Examples) -> SourceError:
        """Say what was looked for, and what is there instead."""
        path = self._options.path
        shown = path if "://" in path else os.path.normpath(Path(self._context.base_dir, path))
        problem = f"no file matches {shown}"
        root = self._root()
        if "://" in root:
            return self._error(f"{problem}.")
        if not Path(root).is_dir():
            parent = next(folder for folder in Path(root).parents if folder.is_dir())
            return self._error(f"{problem}; there is no folder {root}, the nearest is {parent}{_contents(parent)}.")
        if others.count:
            return self._error(f"{problem}; {others.count} file(s) there, e.g. {others.first[0]}, do not.")
        return self._error(f"{problem}; {root}{_contents(Path(root))}.")


def _contents(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return f" cannot be listed: {error.strerror}"
    return f" holds {len(names)} name(s), e.g. {names[0]}" if names else " is empty"


def _skip_notes(listing: Listing, urn: str | None, date_format: str, label: Callable[[str], str]) -> list[str]:
    """Return notes on files that match in part."""
    notes = []
    if undated := listing.undated.get(urn):
        names = ", ".join(label(name) for name in undated.first)
        notes.append(f"{undated.count} path(s) left out: their date does not read as {date_format}: {names}.")
    if skipped := listing.skipped.get(urn):
        notes.append(f"{skipped.count} path(s) left out: {', '.join(label(name) for name in skipped.first)}.")
    return notes


def _urn_problem(urn: str) -> str:
    try:
        DatasetUrn(urn)
    except InvalidUrnError as error:
        return str(error)
    return ""


def _state_problem(state: DatasetState | None) -> str:
    if state is None or state.committed.watermark_type is TimestampWatermark:
        return ""
    return (
        f"its stored watermark is of type {state.committed.watermark_type.type_name!r}, the source `files` needs "
        "'timestamp'; give the job another name, or its former source."
    )
