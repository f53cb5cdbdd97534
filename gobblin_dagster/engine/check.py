"""Check a project whole: every fault of every file, without reading any data."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gobblin_dagster.constructs.extras import missing_extras, missing_store_extras
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext, ReadsPaths
from gobblin_dagster.core.errors import (
    EnvironmentFaultError,
    InvalidSpecError,
    SpecFault,
    UsageError,
)
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.table import Column, Table
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.allowed import faults_of
from gobblin_dagster.engine.declared_columns import unknown_columns
from gobblin_dagster.engine.validation import PublishedPaths, check_construct, check_parts, published_paths
from gobblin_dagster.spec.job import ConstructSpec, JobSpec
from gobblin_dagster.spec.load import LoadedJob, load_jobs, load_project, shown_path
from gobblin_dagster.spec.project import PROJECT_FILE, ProjectSpec
from gobblin_dagster.state import check_url

_COMPARED = 50
"""Jobs that are compared, pair by pair: that takes 0.1 to 0.6 s."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """One file of a project and what is wrong with it."""

    file: str
    """Its path, relative to the current folder if it lies in it."""
    job: str | None
    """Name of the job; None if the file has faults."""
    faults: tuple[SpecFault, ...] = ()
    is_sound: bool = False
    """Whether its faults are only packages that are not installed here; the file itself is right."""
    notes: tuple[SpecFault, ...] = ()
    """What its author should know: settings of a Gobblin job file that are left out, circles of jobs."""

    @property
    def problem(self) -> str:
        """All faults as people read them; empty if there is none."""
        return InvalidSpecError(file=self.file, faults=self.faults).message() if self.faults else ""


_FILES: tuple[Column[CheckedFile], ...] = (
    Column("file", "text", lambda one: one.file),
    Column("job", "text", lambda one: one.job),
    Column("faults", "number", lambda one: len(one.faults)),
    Column("first fault", "text", lambda one: one.faults[0].text(one.file) if one.faults else None, is_shown=False),
)


@dataclass(frozen=True, slots=True, repr=False)
class ProjectCheck(Table[CheckedFile]):
    """The faults of a project: its files, those without fault first; shown as a table and every fault below it."""

    files: tuple[CheckedFile, ...]

    @property
    def is_valid(self) -> bool:
        """True if no file has a fault."""
        return not any(one.faults for one in self.files)

    def _title(self) -> str:
        return f"{count(len(self.files), 'file')}, {count(sum(len(one.faults) for one in self.files), 'fault')}"

    def _items(self) -> Sequence[CheckedFile]:
        return self.files

    def _columns(self) -> Sequence[Column[CheckedFile]]:
        return _FILES

    def _more(self) -> list[str]:
        return [one.problem for one in self.files if one.faults]


def check_project(root: Path) -> ProjectCheck:
    """Check `gobblin.yaml` and all job files of a folder: keys, constructs, SQL, packages, columns, what is allowed.

    Reads no data. Constructs of the user's own must be importable.

    Raises:
        UsageError: there is no `gobblin.yaml`, or no job file.
    """
    try:
        project = load_project(root)
        loaded, errors = load_jobs(root, project, check_construct)
    except InvalidSpecError as error:
        # Without a project it is not known where the jobs are.
        return ProjectCheck((CheckedFile(error.file, None, error.faults),))
    if not loaded and not errors:
        raise UsageError(
            problem="There is no job file (*.yaml, *.pull, *.job, *.conf) in the jobs folder.",
            hint=f"See {root / PROJECT_FILE}.",
        )
    unread = [CheckedFile(error.file, None, error.faults) for error in errors]
    judged = [_judged(job, root, project) for job in loaded]
    good = _with_circles([one for one in judged if not one.faults], loaded, root)
    unread = [*_judged_store(root, project), *unread]
    return ProjectCheck((*good, *map(_without_secrets, (*unread, *(one for one in judged if one.faults)))))


def _with_circles(good: list[CheckedFile], loaded: Sequence[LoadedJob], root: Path) -> list[CheckedFile]:
    """Add a note to the files of jobs that read what each other publish."""
    names = {one.job for one in good}
    found = _circles([job.spec for job in loaded if job.spec.job in names], root)
    notes = {
        name: SpecFault(
            "source",
            f"reads in a circle what jobs publish: {' -> '.join((*way, way[0]))} (each reads what the one before it "
            "publishes), so rows may go round again and again",
        )
        for name, way in found.items()
    }
    return [replace(one, notes=(*one.notes, notes[one.job])) if one.job in notes else one for one in good]


def _circles(jobs: Sequence[JobSpec], root: Path) -> dict[str, tuple[str, ...]]:
    """Return, by job, the names of a shortest circle of jobs through it; jobs in no circle are left out.

    Only what job files name is compared: paths of files, tables and topics.

    Args:
        jobs: checked jobs of a project; of more than 50, the first.
        root: folder of the project.
    """
    sources: dict[str, ReadsPaths] = {}
    for job in jobs[:_COMPARED]:
        with suppress(Exception):  # told with its job; for a note alone no class of the user's own ends the check
            if issubclass(registry.load(ConstructKind.SOURCE, job.source.type), ReadsPaths):
                context = ConstructContext(job=job.job, base_dir=str(root.resolve()))
                sources[job.job] = registry.create(ConstructKind.SOURCE, job.source, context)
    published: dict[str, list[PublishedPaths]] = {}
    for job in (one for one in jobs if one.job in sources):
        with suppress(Exception):
            published[job.job] = list(_as_any(job, root, sources[job.job].named_datasets()))
    spelt = {job.job: _folders_in(job.source) for job in jobs if job.job in sources}
    readers: dict[str, set[str]] = {job: set() for job in published}
    for (job_name, places), (name, source) in itertools.product(published.items(), sources.items()):
        with suppress(Exception):
            if any(source.would_read(path) for one in places for path in _in_folders(one, spelt[name])):
                readers[job_name].add(name)
    ways = {name: _way(readers, name) for name in readers}
    return {name: way for name, way in ways.items() if way}


_ANY = "dataset"
"""Stands for a dataset of any name."""


def _as_any(job: JobSpec, root: Path, named: Sequence[str]) -> Iterator[PublishedPaths]:
    """Yield paths such as a job publishes for datasets that it names, else for one of any name."""
    has_names = "{dataset" in str(job.source.options.get("path", "{dataset}"))
    known = named if has_names else [f"{job.extract.namespace}.{job.extract.table}"]
    names = {DatasetUrn(name).path_segment for name in known} or {_ANY}
    yield from (
        one for one in published_paths(job, root, named) if not one.folder or posixpath.basename(one.folder) in names
    )


_BRACES = re.compile(r"\{(?:dataset:|date:[^}]*)?([^{},:]*)[^{}]*\}")
"""A part of a path in braces, and the first text that it names."""
_WILD = re.compile(r"[*?]")


def _folders_in(source: ConstructSpec) -> set[str]:
    """Return names of folders that a source's path spells out, or such as its wildcards match."""
    path = _BRACES.sub(lambda found: found[1], str(source.options.get("path", "")))
    return {_WILD.sub("", name) for name in path.split("/")[:-1]} - {"", _ANY}


def _in_folders(published: PublishedPaths, names: Iterable[str]) -> Iterator[str]:
    """Yield paths as they are, and if their dataset may have any name, as if it had each of these too."""
    yield from published.paths
    parent, name = posixpath.split(published.folder)
    if name == _ANY:
        for path in published.paths:
            below = path.removeprefix(f"{published.folder}/")
            yield from (f"{parent}/{one}/{below}" for one in names if below != path and f"/{one}/" not in f"{parent}/")


def _way(readers: Mapping[str, Iterable[str]], start: str) -> tuple[str, ...]:
    """Return a shortest way from a job back to it, from reader to reader; empty if there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    for way in ways:
        for name in sorted(readers.get(way[-1], ())):
            if name == start and len(way) > 1:
                return way
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return ()


def _without_secrets(file: CheckedFile) -> CheckedFile:
    """Hide values of variables in faults: libraries and the user's own classes may say what they got."""
    return replace(file, faults=tuple(replace(fault, problem=hidden(fault.problem)) for fault in file.faults))


def _judged_store(root: Path, project: ProjectSpec) -> Iterator[CheckedFile]:
    """Yield `gobblin.yaml` if its `state` has a fault: no such store exists, or its package is not installed here."""
    file = shown_path(root / PROJECT_FILE)
    try:
        check_url(project.state, root)
    except UsageError as error:
        yield CheckedFile(file, None, (SpecFault("state", error.message()),))
    else:
        if lacking := _lacking(missing_store_extras(project.state)):
            yield CheckedFile(file, None, lacking, is_sound=True)


def _lacking(missing: Iterable[tuple[str, str]]) -> tuple[SpecFault, ...]:
    return tuple(SpecFault(place, problem) for place, problem in missing)


def _judged(job: LoadedJob, root: Path, project: ProjectSpec) -> CheckedFile:
    if faults := _faults(job, root, project):
        return CheckedFile(shown_path(job.path), None, faults)
    if lacking := _lacking(missing_extras(job.spec)):
        return CheckedFile(shown_path(job.path), None, lacking, is_sound=True)
    if unknown := unknown_columns(job.spec, root):  # only packages that are there can read the files
        return CheckedFile(shown_path(job.path), None, unknown)
    return CheckedFile(shown_path(job.path), job.spec.job, notes=job.warnings)


def _faults(job: LoadedJob, root: Path, project: ProjectSpec) -> tuple[SpecFault, ...]:
    """Return the faults of a job with a valid file: of its parts, or names that are not allowed."""
    if forbidden := faults_of(job.spec, str(root.resolve()), project.allow.lists):
        return forbidden
    try:
        with suppress(EnvironmentFaultError):  # a package is missing, which is told with its place
            check_parts(job.spec, root)
    except UsageError as error:
        return (SpecFault("", error.message()),)
    return ()
