"""FilesSource: read files that match a path pattern, one dataset per folder or name; find the new ones in each run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FileFormat, InfersTypes, InputFile, WidensTypes
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.sources.files.by_date import ByDate
from gobblin_dagster.constructs.sources.files.by_date_window import ByDateWindow
from gobblin_dagster.constructs.sources.files.by_modified_time import ByModifiedTime, Memory
from gobblin_dagster.constructs.sources.files.by_name import ByName
from gobblin_dagster.constructs.sources.files.checksums import Checksums, Compare
from gobblin_dagster.constructs.sources.files.discovery import Discovery, FilesPlan, Gate, Limits
from gobblin_dagster.constructs.sources.files.extractor import FilesExtractor, translated_errors
from gobblin_dagster.constructs.sources.files.former_path import FormerPath
from gobblin_dagster.constructs.sources.files.inferred_types import (
    SAMPLE_BYTES,
    InferredTypes,
    infer_types,
    may_find_columns,
    widen_types,
)
from gobblin_dagster.constructs.sources.files.listing import (
    Examples,
    FoundFile,
    Listing,
    LocalFolders,
    RemoteFolders,
    Walk,
    printable,
)
from gobblin_dagster.constructs.sources.files.options import FilesOptions, NewFiles
from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.constructs.sources.files.stored_dates import StoredDates
from gobblin_dagster.constructs.sources.work_units import state_problem
from gobblin_dagster.constructs.types.schema_text import type_texts
from gobblin_dagster.core.allow import names_below
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.errors import InvalidUrnError, SourceError, StartpointError, TransientError
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.traits import FormatTraits, traits_of
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.text import first_line, told_apart
from gobblin_dagster.core.watermark import TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.storage.os_errors import is_passing

__all__ = ["FilesOptions", "FilesSource"]

_MORE_AFTER_FAILURE = 16
"""How many times the usual sample is looked at if the last runs of a dataset failed, perhaps for an inferred type."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AHEAD = timedelta(days=1)
"""Files dated further ahead than this wait: more than any time zone differs, less than a mistyped year."""


class FilesSource:
    """Find files and plan those that are new.

    By date, the watermark is a timestamp: files of a committed date are never read again. By time of change, it is the
    set of files that were read. By name, it is the last name. A file must be complete when it first appears (write it
    under another name, then rename it), or old enough (`lead_time`). The plan's notes name files that come late, change
    or vanish.

    Source: gobblin-core `FileBasedSource`, `PartitionedFileSourceBase`. Differs: the dataset is part of the path;
    failed work units are read again alone.
    """

    Options = FilesOptions

    def __init__(self, options: FilesOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._base = self._root(options.pattern)
        self._below = f"{self._base.rstrip('/')}/"
        """Prefix of all paths of files. Computed once, because it is used for each of 100,000 files."""
        self._format: FileFormat = registry.create(ConstructKind.FORMAT, options.format, context)
        self._discovery = self._make_discovery(self._limits())
        self._stored_dates = StoredDates(options.pattern) if options.order is NewFiles.DATE else None
        self._former_path = FormerPath(
            options.pattern, self._label(self._below).removesuffix("/") or ".", self._name, self._label
        )

    identity = ("path",)

    @property
    def full_extract(self) -> str:
        """How jobs that read everything are planned, see `Source`; empty with a limit, which leaves files out."""
        return "" if self._options.max_files_per_run else "start_over"

    @property
    def holds_back(self) -> str:
        """Why files that exist may not be read."""
        return "`lead_time` leaves the newest files to a later run" if self._options.lead_time is not None else ""

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        listing = self._listing(context)
        known = {urn for urn in context.states if context.is_selected(urn)}
        urns = {*listing.files, *listing.undated, *listing.skipped, *listing.problems, *known} - {None}
        shared = _skip_notes(listing, None, self._options.pattern, self._label)
        shared += self._absent_notes(listing) + self._strange_notes(listing, urns)
        gate = self._gate(context.clock.now())
        for urn in sorted(str(urn) for urn in urns):
            yield self._offer(urn, listing, context, gate, shared)
            shared = []

    def _absent_notes(self, listing: Listing) -> list[str]:
        """Name what stands in a `{one,other}` of the path and in no file's; not if other datasets were not listed."""
        paths = [file.path.removeprefix(self._below) for files in listing.files.values() for file in files]
        wanted = [] if listing.has_unselected else self._options.pattern.one_of()
        absent = [text for text in wanted if not any(text in path for path in paths)]
        return [f"no file of `path` has {', '.join(absent)} in its name; it is read once it comes."] if absent else []

    def _strange_notes(self, listing: Listing, known: Iterable[str | None]) -> list[str]:
        """Name the folders that stand where a dataset's does, hold something, and have no path that matches."""
        found = {str(urn) for urn in known}
        found |= {"/".join(parts[:end]) for parts in (urn.split("/") for urn in found) for end in range(1, len(parts))}
        folders = Examples()
        for urn, path in sorted(listing.strange.items()):
            if urn not in found and not any(f"{urn}/".startswith(f"{other}/") for other in found):
                folders.add(f"{urn} ({self._label(path)})")
        return [f"{folders.count} folder(s) hold no file that matches `path`: {folders}."] if folders.count else []

    def extractor(self, unit: WorkUnit) -> Extractor:
        types, file_format = unit.read.get("types"), self._format_of(unit.dataset_urn)
        if isinstance(types, Mapping) and isinstance(file_format, InfersTypes):
            file_format = file_format.with_types({name: str(kind) for name, kind in types.items()})
        return FilesExtractor(unit, file_format, self._context)

    def tells_positions(self) -> bool:
        """Return True: a work unit can end behind each of its files, except between files of one date."""
        return True

    def would_read(self, path: str) -> bool:
        names = names_below(path, self._base, self._context.base_dir)
        return names is not None and self._options.pattern.matches_below_root(names)

    def named_datasets(self) -> Sequence[str]:
        return self._options.pattern.named_datasets()

    def preview_schema(self, unit: WorkUnit) -> pa.Schema | None:
        is_told = traits_of(self._format, FormatTraits).has_schema or "types" in unit.read
        if unit.is_noted or not is_told:
            return None
        with closing(self.extractor(unit)) as extractor:
            return extractor.schema

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        bound = self._options.pattern.bind(dataset_urn)
        try:
            files = self._walk(bound, lambda _: True, dataset_urn).files.get(dataset_urn, [])
        except FileNotFoundError:
            return 0
        was_read, rows, file_format = self._discovery.was_read(ranges), 0, self._format_of(dataset_urn)
        wanted = Gate(self._start()).is_wanted
        for file in filter(wanted, files):
            verdict = was_read(file)
            if verdict is None:
                return None
            if verdict:
                with translated_errors(dataset_urn, self._label(file.path)):
                    rows += file_format.count_rows(InputFile(file.path))
        return rows

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | CommittedRanges | None:
        if isinstance(position, Oldest):
            return None
        files = self._listing(replace(context, is_selected=lambda urn: urn == dataset_urn)).files.get(dataset_urn, [])
        if isinstance(position, Watermark):
            self._require_reached(dataset_urn, position, files, context.clock.now())
            return position
        if isinstance(position, Timestamp):
            if self._options.order is NewFiles.NAME:
                raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem="names hold no times")
            files = [file for file in files if self._is_over(file, position.instant)]
        elif not files:
            problem = "it has no files yet behind which it could begin; `oldest` reads all that come"
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=problem)
        discovery = self._make_discovery(replace(self._limits(), run_files=None))
        gate = self._gate_of_present(context.clock.now())
        units = discovery.plan(dataset_urn, files, None, gate).work_units
        return CommittedRanges(discovery.watermark_type, {}).add_all(unit.interval for unit in units)

    def _require_reached(self, dataset_urn: str, mark: Watermark, files: Sequence[FoundFile], now: datetime) -> None:
        """Raise StartpointError for a position in the future: files that come later, before it, would never be read."""
        discovery = self._make_discovery(replace(self._limits(), run_files=None))
        if type(mark) is not discovery.watermark_type:
            return  # the engine says so, and which type it expects
        units = discovery.plan(dataset_urn, files, None, self._gate(now)).work_units
        end = CommittedRanges(discovery.watermark_type, {}).add_all(unit.interval for unit in units).watermark
        ends: Mapping[str, Any] = end.components() if end is not None else {}
        for name, position in mark.components().items():
            known: list[Any] = [
                one for one in (ends.get(name), now if isinstance(position, datetime) else None) if one is not None
            ]
            if not known or position > max(known):
                there = f"it lies beyond the end, {end}" if end is not None else "the dataset has no files yet"
                problem = f"{there}: files before it that come later would never be read; `upcoming` begins at the end"
                raise StartpointError(dataset_urn=dataset_urn, startpoint=str(mark), problem=problem)
        try:
            self.check_position(mark)
        except ValueError as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(mark), problem=str(error)) from None

    def check_position(self, position: Watermark) -> None:
        """Raise ValueError for a position inside of a date: its files lie at the date's beginning, before it."""
        if not isinstance(position, TimestampWatermark) or self._options.order is not NewFiles.DATE:
            return
        try:
            inside = self._options.pattern.dates_around(position.value)
        except (ValueError, OverflowError):
            return  # before all dates of the calendar, so no file lies there
        if inside is not None:
            start, end = (str(TimestampWatermark(one)) for one in inside)
            raise ValueError(
                f"it lies inside of a {self._options.pattern.granularity}, whose files are read together; begin at "
                f"{start} to read them, or at {end} not to"
            )

    def _is_over(self, file: FoundFile, instant: datetime) -> bool:
        """Return True if a file's date has ended (by date), or if its last change was (else), before an instant."""
        if self._options.order is NewFiles.DATE:
            return self._options.pattern.is_over(file.start, instant)
        return file.modified_us < (instant - _EPOCH) // timedelta(microseconds=1)  # no date has any time of change

    def _limits(self) -> Limits:
        options = self._options
        return Limits(options.files_per_work_unit, options.bytes_per_work_unit, options.max_files_per_run)

    def _make_discovery(self, limits: Limits) -> Discovery:
        """Return the strategy of the options: by date, by date with a lookback, by name or by time of change."""
        options = self._options
        checksums = None
        if options.compare is not Compare.MODIFIED:
            checksums = Checksums(always=options.compare is Compare.CHECKSUM_ALWAYS)
        memory = Memory(self._name, self._label, options.read_changed, checksums)
        match options.order:
            case NewFiles.MODIFIED:
                return ByModifiedTime(memory, limits)
            case NewFiles.NAME:
                return ByName(limits, self._label, self._name)
            case NewFiles.DATE if options.lookback:
                return ByDateWindow(options.pattern, options.lookback, memory, limits)
            case NewFiles.DATE:
                return ByDate(options.pattern, limits, self._label)

    def _gate(self, now: datetime) -> Gate:
        by_date, lead_time = self._options.order is NewFiles.DATE, self._options.lead_time
        if lead_time is None and by_date:
            lead_time = -_AHEAD
        return Gate(self._start(), _before(now, lead_time) if lead_time is not None else None, by_date)

    def _gate_of_present(self, now: datetime) -> Gate:
        """Return the gate for files that are there, also for those that wait because they are too young."""
        lead_time = self._options.lead_time
        if lead_time is None:
            return self._gate(now)
        if self._options.order is not NewFiles.DATE:
            return Gate(self._start())
        return Gate(self._start(), _before(now, min(lead_time, -_AHEAD)), by_date=True)

    def _listing(self, context: SourceContext) -> Listing:
        extract = context.extract
        try:
            listing = self._walk(self._options.pattern, context.is_selected, f"{extract.namespace}.{extract.table}")
        except FileNotFoundError:
            if context.states and "://" in self._base:
                return Listing()  # an object store has no folder after its last object is deleted
            raise self._no_match(Examples()) from None
        except OSError as error:
            problem = f"cannot list {self._base}: {error.strerror or error}."
            if is_passing(error):
                raise TransientError(problem=f"Source of job {self._context.job!r}: {problem}") from error
            raise self._error(problem) from error
        except pa.ArrowInvalid as error:  # an empty name between two slashes, or an address that is none
            raise self._error(f"cannot list {self._base}: {error}.", "Correct `path`.") from error
        if None in listing.problems:
            raise self._error(listing.problems[None] + ".")
        is_known = listing.problems or listing.has_unselected or context.states
        if not (listing.files or is_known):
            raise self._no_match(listing.others, listing.undated.values(), listing.skipped.values())
        return listing

    def _walk(self, pattern: PathPattern, is_selected: Callable[[str], bool], default_urn: str) -> Listing:
        root = self._root(pattern)
        checksums = self._options.compare is not Compare.MODIFIED
        folders = RemoteFolders(root, checksums=checksums) if "://" in root else LocalFolders()
        return Walk(pattern, root, folders, is_selected, default_urn).run()

    def _offer(self, urn: str, listing: Listing, context: SourceContext, gate: Gate, shared: list[str]) -> DatasetOffer:
        state = context.states.get(urn)
        problem = listing.problems.get(urn, "") or _urn_problem(urn)
        problem = problem or state_problem(state, self._discovery.watermark_type, "files")
        if self._stored_dates is not None:
            problem = problem or self._stored_dates.problem(state)
        files = listing.files.get(urn, [])
        problem = problem or self._former_path.problem(state, files)
        if problem:
            return DatasetOffer(printable(urn), None, None, problem=problem, notes=shared)
        plan = self._planned(urn, files, context, gate)
        notes = [*shared, *_skip_notes(listing, urn, self._options.pattern, self._label), *plan.notes]
        if plan.waiting and self._options.lead_time is None:
            notes.append(
                f"{plan.waiting} file(s) are dated more than a day ahead and wait: reading them would move the "
                "watermark, and files dated before it would be late. If files come before their dates, set "
                "`lead_time`, e.g. `-30d`."
            )
        elif plan.waiting:
            notes.append(f"{plan.waiting} file(s) are younger than `lead_time` and wait for a later run.")
        if plan.left:
            notes.append(f"{plan.left} file(s) are left for a later run (`max_files_per_run`).")
        if state is None and files and not any(map(gate.is_wanted, files)):
            notes.append(f"its {len(files)} file(s) are dated before `start` and are not read.")
        if not files and state is not None:
            notes.append(f"all of its files are gone; it is committed up to {state.watermark}.")
        if state is not None and self._options.order is not NewFiles.MODIFIED:  # which knows each file
            notes += self._former_path.notes(state, files, self._discovery.was_read(state.committed))
        mark = state.watermark if state is not None else None
        if plan.problem or not plan.work_units:
            return DatasetOffer(urn, mark, mark, problem=plan.problem, notes=notes, is_absent=not files)
        try:
            inferred = self._inferred(urn, plan, context)
        except OSError as error:  # types that were inferred without the file would stay for ever
            problem = f"the types of its columns cannot be inferred now: {first_line(error)}. Run again."
            return DatasetOffer(urn, mark, mark, problem=problem, notes=notes)
        common: dict[str, Any] = {"root": self._label(self._below)}
        if inferred.types:
            common["types"] = dict(inferred.types)
        units = [replace(unit, read={**unit.read, **common}) for unit in plan.work_units]
        return DatasetOffer(
            urn,
            plan.low,
            plan.expected_high,
            units,
            notes=notes,
            origin={
                **self._former_path.origin,
                **(self._stored_dates.origin if self._stored_dates is not None else {}),
            },
            inferred=inferred.types,
            type_notes=inferred.notes,
        )

    def _inferred(self, urn: str, plan: FilesPlan, context: SourceContext) -> InferredTypes:
        """Return the types of a dataset's columns, stored ones and new ones."""
        state = context.states.get(urn)
        known = state.inferred if state is not None else {}
        file_format = self._format_of(urn)
        if not isinstance(file_format, InfersTypes):
            return InferredTypes()
        read: Any = [unit.read for unit in plan.work_units]
        files = [file["path"] for one in read for file in one.get("files", ())]
        schemas = state.schemas.values() if state is not None else ()
        if not file_format.infers or not files or (schemas and not known):
            return InferredTypes(known)
        texts = {name for schema in schemas for name in type_texts(schema)}
        may_widen = bool(context.widens and known) and isinstance(file_format, WidensTypes)
        may_grow = may_widen or may_find_columns(file_format, known)
        has_failed = may_grow and bool(_failures(urn, context.previous_runs()))
        sample_bytes = SAMPLE_BYTES * (_MORE_AFTER_FAILURE if has_failed else 1)
        base, allow = self._context.base_dir, self._context.allow
        paths = [path if "://" in path else os.path.join(base, path) for path in files]  # noqa: PTH118  # keeps the text
        paths = [path for path in paths if not allow.path_problem(path, base)]
        inferred = infer_types(
            file_format, paths, known, texts, sample_bytes=sample_bytes, may_be_open=context.may_be_open
        )
        if may_widen and isinstance(file_format, WidensTypes):
            return widen_types(
                file_format,
                paths,
                inferred,
                self._label,
                allowed=context.widens,
                sample_bytes=sample_bytes,
                whole_files=has_failed,
            )
        return inferred

    def _format_of(self, urn: str) -> FileFormat:
        """Return the format with the options of one dataset."""
        if urn == self._context.dataset_urn:
            return self._format
        context = replace(self._context, dataset_urn=urn)
        file_format: FileFormat = registry.create(ConstructKind.FORMAT, self._options.format, context)
        return file_format

    def _planned(self, urn: str, files: Sequence[FoundFile], context: SourceContext, gate: Gate) -> FilesPlan:
        """Plan the new files; after failed runs in smaller work units, so that a bad file delays no others."""
        state = context.states.get(urn)
        plan = self._discovery.plan(urn, files, state, gate)
        if not context.publishes_parts or not any((unit.files or 0) > 1 for unit in plan.work_units):
            return plan
        failed = _failures(urn, context.previous_runs())
        if not failed:
            return plan
        limits = self._limits().after(failed)
        plan = self._make_discovery(limits).plan(urn, files, state, gate)
        most = f"at most {limits.tried_files} in a work unit"
        plan.notes.append(
            f"{len(failed)} run(s) of it failed; files that they tried are read {most}, to separate bad from good."
        )
        return plan

    def _start(self) -> datetime | None:
        """Return the instant at which `start` begins in the pattern's zone; files dated before it are ignored."""
        if self._options.start is None:
            return None
        zone = self._options.pattern.timezone
        return datetime.combine(self._options.start, time_of_day(), zone).astimezone(UTC)

    def _root(self, pattern: PathPattern) -> str:
        root = pattern.root()
        return root if "://" in root else os.path.normpath(Path(self._context.base_dir, root))

    def _name(self, path: str) -> str:
        """Return the path of a file below the root of the pattern; it stays the same if the root is moved."""
        return path.removeprefix(self._below)

    def _label(self, path: str) -> str:
        """Return the path for messages and work units: relative to the project if the file is inside it."""
        return path.removeprefix(self._context.base_dir.rstrip("/") + "/")

    def _error(self, problem: str, hint: str = "") -> SourceError:
        return SourceError(job=self._context.job, problem=problem, hint=hint)

    def _no_match(
        self, others: Examples, undated: Iterable[Examples] = (), skipped: Iterable[Examples] = ()
    ) -> SourceError:
        """Return the error for a pattern without files: what was searched, and what is there instead."""
        path = self._options.path
        path = path if "://" in path else os.path.normpath(Path(self._context.base_dir, path))
        there = [name for examples in (*undated, *skipped, others) for name in examples.first]
        shown = told_apart([path, *there])[0]
        problem = f"no file matches {shown}"
        root = self._base
        if "://" not in root and not Path(root).is_dir():
            parent = next(folder for folder in Path(root).parents if folder.is_dir())
            none = f"{problem}; there is no folder {root}, the nearest, "
            return self._error("".join(told_apart([none, f"{parent},{_contents(parent)}."])))
        if names := [name for examples in undated for name in examples.first]:
            found = _nearest(names, path)
            return self._error(f"{problem}: no date can be read as {self._options.pattern.date_format} in {found}.")
        if names := [name for examples in skipped for name in examples.first]:
            return self._error(f"{problem}; left out: {', '.join(names[:3])}.")
        if others.count:
            found = _nearest(others.first, path)
            return self._error(f"{problem}; {others.count} file(s) there do not, e.g. {found}.")
        return self._error(f"{problem}." if "://" in root else f"{problem}; {root}{_contents(Path(root))}.")


def _before(now: datetime, span: timedelta) -> datetime:
    try:
        return now - span
    except OverflowError:
        return (datetime.min if span > timedelta() else datetime.max).replace(tzinfo=UTC)


def _nearest(names: Sequence[str], path: str) -> str:
    """Return the three names that are most similar to a path, separated by commas."""
    likest = sorted(names, key=lambda name: (-SequenceMatcher(None, path, name, autojunk=False).ratio(), name))
    return ", ".join(told_apart([path, *likest[:3]])[1:])


def _contents(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return f" cannot be listed: {error.strerror}"
    return f" holds {len(names)} name(s), e.g. {names[0]}" if names else " is empty"


def _failures(urn: str, runs: Sequence[RunRecord]) -> list[datetime]:
    """Return when the latest runs of a dataset with failed work units began, newest first, up to the last good run."""
    found = [(run.started_at, run.datasets[urn]) for run in runs if urn in run.datasets]
    # Runs that could not list the dataset, or were cancelled, say nothing about its files.
    telling = [(began, one) for began, one in found if one.failed_ranges or one.outcome.is_good]
    return [began for began, _ in takewhile(lambda pair: pair[1].failed_ranges, telling)]


def _skip_notes(listing: Listing, urn: str | None, pattern: PathPattern, label: Callable[[str], str]) -> list[str]:
    """Return notes on paths that match the pattern only in part."""
    notes = []
    if undated := listing.undated.get(urn):
        names = ", ".join(label(name) for name in sorted(undated.first))
        zone = "" if pattern.timezone.key == "UTC" else f" in {pattern.timezone.key}"
        notes.append(
            f"{undated.count} path(s) left out: their date cannot be read as {pattern.date_format}{zone}: {names}."
        )
    if skipped := listing.skipped.get(urn):
        notes.append(f"{skipped.count} path(s) left out: {', '.join(label(name) for name in skipped.first)}.")
    return notes


def _urn_problem(urn: str) -> str:
    try:
        DatasetUrn(urn)
    except InvalidUrnError as error:
        return str(error)
    return ""
