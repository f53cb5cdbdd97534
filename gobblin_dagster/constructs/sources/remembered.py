"""By time of change: every file that was read is remembered with size and time, so files may come in any order.

What changed or vanished since it was read is found by comparing, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar

from gobblin_dagster.constructs.sources.arrivals import FilesPlan, Gate, Label, Limits, after_plan, has_room, in_units
from gobblin_dagster.constructs.sources.listing import Examples, FoundFile
from gobblin_dagster.constructs.sources.pattern import NO_DATE
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.file_set import LINE, UNREAD, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark import CommittedRanges, Watermark


class ReadChanged(StrEnum):
    """What becomes of a file that changed after it was read."""

    REPORT = "report"
    """The plan names it; it is not read."""
    AGAIN = "again"
    """It is read again, whole."""
    FAIL = "fail"
    """Its dataset fails until the file is as it was, or the option is changed."""


def known_files(ranges: CommittedRanges) -> Mapping[str, FileVersion]:
    """Return the files of committed ranges by name."""
    known: dict[str, FileVersion] = {}
    for name, parts in ranges.ranges.items():
        version = parts[-1][1]
        if name != LINE and isinstance(version, FileVersion) and version.number:
            known[name] = version
    return known


@dataclass(slots=True)
class Compared:
    """Files as they lie there against files as they were read."""

    new: list[FoundFile] = field(default_factory=list)
    changed: list[FoundFile] = field(default_factory=list)
    gone: Examples = field(default_factory=Examples)
    """Files that were read and are not there any more."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Compares files with those that were read, by name, and says what to do about the differences."""

    key: Label
    """Returns the name of a file below the root of the pattern."""
    label: Label
    read_changed: ReadChanged

    def compare(self, files: Iterable[FoundFile], known: Mapping[str, FileVersion]) -> Compared:
        """Sort files into new ones, changed ones and those that are gone."""
        found, seen = Compared(), set()
        for file in files:
            name = self.key(file.path)
            seen.add(name)
            version = known.get(name)
            if version is None:
                found.new.append(file)
            elif version.size_bytes != file.size_bytes or version.modified_us != file.modified_us:
                found.changed.append(file)
        for name in sorted(known.keys() - seen):
            found.gone.add(name)
        return found

    def judge(self, found: Compared, known: Mapping[str, FileVersion], plan: FilesPlan, gate: Gate) -> list[FoundFile]:
        """Return the files to read, in order of date and path; say in the plan what changed, what is gone, what waits."""
        to_read = [file for file in (*found.new, *self._changed(found, known, plan)) if gate.is_wanted(file)]
        ripe = [file for file in to_read if gate.is_ripe(file)]
        plan.waiting += len(to_read) - len(ripe)
        return [] if plan.problem else sorted(ripe)

    def _changed(self, found: Compared, known: Mapping[str, FileVersion], plan: FilesPlan) -> list[FoundFile]:
        """Return the changed files that are to be read again."""
        if found.gone.count:
            plan.notes.append(f"{found.gone.count} file(s) that were read are gone: {found.gone}.")
        if not found.changed:
            return []
        examples = Examples()
        for file in found.changed:
            before = known[self.key(file.path)].size_bytes
            grew = f"grew from {before} to {file.size_bytes} bytes" if file.size_bytes > before else "replaced"
            examples.add(f"{self.label(file.path)} ({grew})")
        what = f"{examples.count} file(s) changed after they were read"
        match self.read_changed:
            case ReadChanged.REPORT:
                remedy = "To read them again, whole, set `read_changed: again`."
                plan.notes.append(f"{what}; they are not read again: {examples}. {remedy}")
            case ReadChanged.AGAIN:
                plan.notes.append(f"{what}; they are read again, whole: {examples}.")
                return found.changed
            case ReadChanged.FAIL:
                plan.problem = (
                    f"{what}, and `read_changed` is `fail`: {examples}. Put them back as they were, or set "
                    "`read_changed` to `report` or `again`."
                )
        return []

    def interval(self, files: Iterable[FoundFile], known: Mapping[str, FileVersion]) -> tuple[Watermark, Watermark]:
        """Return the versions that files had when they were read, and those that they have now."""
        low, high = {}, {}
        for file in files:
            name = self.key(file.path)
            low[name] = known.get(name, UNREAD)
            high[name] = version_of(file, low[name].number + 1)
        return FileSetWatermark(low), FileSetWatermark(high)

    def was_read(self, file: FoundFile, known: Mapping[str, FileVersion]) -> bool | None:
        """Tell whether a file was read once and is as it was; None where its rows were read from another version."""
        version = known.get(self.key(file.path))
        if version is None:
            return False
        return True if version.number == 1 and version.is_like(version_of(file, 1)) else None


def version_of(file: FoundFile, number: int) -> FileVersion:
    """Return a file as it lies there."""
    date_s = 0 if file.start == NO_DATE else int(file.start.timestamp())
    return FileVersion(number, file.size_bytes, file.modified_us, date_s)


@dataclass(frozen=True, slots=True)
class RememberedArrivals:
    """Reads every file that was not read, oldest change first.

    Source: `source.filebased.fs.snapshot`, `FileBasedSource` of gobblin-core. Differs: remembers sizes too; a changed file
    is said and not read a second time unless that is asked for.
    """

    memory: Memory
    limits: Limits
    watermark_type: ClassVar[type[Watermark]] = FileSetWatermark

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        plan = FilesPlan()
        committed = state.committed if state is not None else CommittedRanges(FileSetWatermark, {})
        known = known_files(committed)
        to_read = self.memory.judge(self.memory.compare(files, known), known, plan, gate)
        to_read.sort(key=lambda file: (file.modified_us, file.path))
        add_file_units(plan, dataset_urn, to_read, known, self.memory, self.limits)
        if plan.work_units:
            plan.low = FileSetWatermark(known).summarised()
            plan.expected_high = after_plan(plan, committed)
        return plan

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        known = known_files(ranges)
        return lambda file: self.memory.was_read(file, known)


def add_file_units(
    plan: FilesPlan,
    dataset_urn: str,
    files: Sequence[FoundFile],
    known: Mapping[str, FileVersion],
    memory: Memory,
    limits: Limits,
) -> None:
    """Add work units that read files, as many as fit into a run."""
    for unit in in_units(files, attrgetter("path"), limits):
        if plan.left or not has_room(plan, unit, limits):
            plan.left += len(unit)
        else:
            plan.add(dataset_urn, *memory.interval(unit, known), unit, memory.label)
