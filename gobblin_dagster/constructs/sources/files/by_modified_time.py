"""By time of change: remember each file that was read with its size and time, so that files may come in any order.

Compare the files found with those remembered, and report files that changed or vanished. If checksums are asked for,
they are remembered too: a file with the same content has not changed, and its new time of change is stored, so that it
is not compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar

from gobblin_dagster.constructs.sources.files.checksums import Checksums, Finding, Verdict
from gobblin_dagster.constructs.sources.files.discovery import (
    FilesPlan,
    Gate,
    Label,
    Limits,
    after_plan,
    has_room,
    in_units,
)
from gobblin_dagster.constructs.sources.files.listing import Examples, FoundFile
from gobblin_dagster.constructs.sources.files.pattern import NO_DATE
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.file_set import LINE, UNREAD, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges


class ReadChanged(StrEnum):
    """What to do with a file that changed after it was read."""

    REPORT = "report"
    """Name it in the plan; do not read it."""
    AGAIN = "again"
    """Read the whole file again."""
    FAIL = "fail"
    """Fail its dataset until the file is as it was, or the option is changed."""


def known_files(ranges: CommittedRanges) -> Mapping[str, FileVersion]:
    """Return the files of committed ranges, by name."""
    known: dict[str, FileVersion] = {}
    for name, parts in ranges.ranges.items():
        version = parts[-1][1]
        if name != LINE and isinstance(version, FileVersion) and version.number:
            known[name] = version
    return known


@dataclass(slots=True)
class Compared:
    """The files found, compared with the files that were read."""

    new: list[FoundFile] = field(default_factory=list)
    changed: list[FoundFile] = field(default_factory=list)
    gone: Examples = field(default_factory=Examples)
    """Files that were read and no longer exist."""
    findings: list[Finding] = field(default_factory=list)
    """Results for files whose content had to be compared."""

    def of(self, *verdicts: Verdict) -> list[FoundFile]:
        """Return the files with one of these verdicts."""
        return [finding.file for finding in self.findings if finding.verdict in verdicts]


@dataclass(frozen=True, slots=True)
class Memory:
    """Compare files with those that were read, by name, and decide which to read."""

    key: Label
    """Returns the path of a file below the root of the pattern."""
    label: Label
    read_changed: ReadChanged
    checksums: Checksums | None = None
    """None if only size and time of change are compared."""

    def compare(self, files: Iterable[FoundFile], known: Mapping[str, FileVersion]) -> Compared:
        """Sort files into new, changed and vanished ones."""
        found, seen = Compared(), set()
        unclear: list[tuple[FoundFile, FileVersion]] = []
        for file in files:
            name = self.key(file.path)
            seen.add(name)
            version = known.get(name)
            if version is None:
                found.new.append(file)
            elif version.size_bytes != file.size_bytes:
                found.changed.append(file)
            elif self.checksums is not None:
                if self.checksums.is_unclear(file, version):
                    unclear.append((file, version))
            elif version.modified_us != file.modified_us:
                found.changed.append(file)
        for name in sorted(known.keys() - seen):
            found.gone.add(name)
        if self.checksums is not None and unclear:
            found.findings = self.checksums.look(unclear)
            found.changed += found.of(Verdict.CHANGED, Verdict.UNTOLD)
        return found

    def judge(self, found: Compared, known: Mapping[str, FileVersion], plan: FilesPlan, gate: Gate) -> list[FoundFile]:
        """Return the files to read, in order of date and path; add notes on all others to the plan."""
        plan.notes += self._finding_notes(found)
        for finding in found.findings:
            if finding.verdict is Verdict.UNREADABLE:
                plan.problem = f"cannot compare {self.label(finding.file.path)} with what was read: {finding.problem}."
        to_read = [file for file in (*found.new, *self._changed(found, known, plan)) if gate.is_wanted(file)]
        ripe = [file for file in to_read if gate.is_ripe(file)]
        plan.waiting += len(to_read) - len(ripe)
        return [] if plan.problem else sorted(ripe)

    def _changed(self, found: Compared, known: Mapping[str, FileVersion], plan: FilesPlan) -> list[FoundFile]:
        """Return the changed files that must be read again."""
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

    def _finding_notes(self, found: Compared) -> Iterator[str]:
        """Yield notes on the compared contents, except on changed files."""
        said = {
            Verdict.TOUCHED: "{} have a new time of change and the same content; the new time is stored: {}.",
            Verdict.ADDED: "{} were remembered without a checksum; it is computed and stored now: {}.",
            Verdict.UNTOLD: "{} were remembered without a checksum; only size and time of change are compared: {}.",
            Verdict.UNSETTLED: "{} were written to or deleted while they were compared; the next plan does it: {}.",
        }
        for verdict, text in said.items():
            examples = Examples()
            for file in found.of(verdict):
                examples.add(self.label(file.path))
            if examples.count:
                yield text.format(f"{examples.count} file(s)", examples)

    def add_noted(self, plan: FilesPlan, dataset_urn: str, found: Compared, known: Mapping[str, FileVersion]) -> None:
        """Add a work unit that stores new times of change and checksums of files whose content is unchanged."""
        files = {self.key(file.path): file for file in found.of(Verdict.TOUCHED, Verdict.ADDED)}
        if files and not plan.problem:
            low = {name: known[name] for name in files}
            high = {name: low[name].then_noted(file.modified_us, file.checksum) for name, file in files.items()}
            plan.add_noted(dataset_urn, FileSetWatermark(low), FileSetWatermark(high))

    def with_checksums(self, files: Sequence[FoundFile]) -> Sequence[FoundFile]:
        """Return files with the checksums to be remembered, if checksums are used."""
        return files if self.checksums is None else self.checksums.taken(files)

    def to_read(self, files: Sequence[FoundFile]) -> Sequence[FoundFile]:
        """Return files with the checksums that the extractor must compare."""
        return files if self.checksums is None else [self.checksums.to_verify(file) for file in files]

    def interval(self, files: Iterable[FoundFile], known: Mapping[str, FileVersion]) -> tuple[Watermark, Watermark]:
        """Return the versions of the files that were read before, and their present versions."""
        low, high = {}, {}
        for file in files:
            name = self.key(file.path)
            low[name] = known.get(name, UNREAD)
            high[name] = version_of(file, low[name])
        return FileSetWatermark(low), FileSetWatermark(high)

    def was_read(self, file: FoundFile, known: Mapping[str, FileVersion]) -> bool | None:
        """Return True if a file was read once, in its present version, None if in another version, else False."""
        version = known.get(self.key(file.path))
        if version is None:
            return False
        return True if version.contents == 1 and version.is_like(version_of(file)) else None


def version_of(file: FoundFile, before: FileVersion = UNREAD) -> FileVersion:
    """Return the present version of a file, as the successor of `before`."""
    date_s = 0 if file.start == NO_DATE else int(file.start.timestamp())
    return FileVersion(before.number + 1, file.size_bytes, file.modified_us, date_s, before.noted, file.checksum)


@dataclass(frozen=True, slots=True)
class ByModifiedTime:
    """Read every file that was not read yet, oldest change first.

    Source: `source.filebased.fs.snapshot`, `FileBasedSource` of gobblin-core. Differs: remembers sizes too; a changed
    file is reported, and read again only if `read_changed` asks for it.
    """

    memory: Memory
    limits: Limits
    watermark_type: ClassVar[type[Watermark]] = FileSetWatermark

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        plan = FilesPlan()
        committed = state.committed if state is not None else CommittedRanges(FileSetWatermark, {})
        known = known_files(committed)
        found = self.memory.compare(files, known)
        to_read = self.memory.judge(found, known, plan, gate)
        to_read.sort(key=lambda file: (file.modified_us, file.path))
        add_file_units(plan, dataset_urn, to_read, known, self.memory, self.limits)
        self.memory.add_noted(plan, dataset_urn, found, known)
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
    """Add work units for files, as many as the limits of a run allow."""
    for unit in in_units(files, attrgetter("path"), limits, plan.files):
        if plan.left or not has_room(plan, unit, limits):
            plan.left += len(unit)
        else:
            files = memory.with_checksums(unit)
            plan.add(dataset_urn, *memory.interval(files, known), memory.to_read(files), memory.label)
