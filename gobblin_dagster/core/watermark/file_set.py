"""FileSetWatermark: which versions of which files were read.

Each file is a component. Its position is the version that was read last: 0 for none, then 1, 2, ... with the file's
size, time of change and (if taken) checksum, which show whether the file has changed. So the interval of a work unit
is the set of files that it reads, and the arithmetic of `core.watermark` works: `<=` means "is a subset", and adding a
file twice is refused.

If the paths of files hold dates, the set can have a *line of dates*, one more component: all files dated before the
end of the line are known, and need no entry of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from gobblin_dagster.core.watermark import Position, Ranges, TimestampWatermark, Watermark, register_watermark_type
from gobblin_dagster.core.watermark.layers import pack, unpack

LINE = ""
"""Name of the component that holds the line of dates; no file has this name."""


class FileVersion(NamedTuple):
    """A version of a file, as it was read; ordered by `number`."""

    number: int
    """1 for the first version that was read, 0 if none was read."""
    size_bytes: int = 0
    modified_us: int = 0
    """Microseconds since the epoch of its last change."""
    date_s: int = 0
    """Seconds since the epoch at which the date in the file's path begins; 0 if the path has no date."""
    noted: int = 0
    """How many of the versions had no new content: only the time of change was new, or a checksum was added."""
    checksum: str = ""
    """`kind=value`, see `storage.checksums`; empty if none was taken."""

    @property
    def contents(self) -> int:
        """How many different contents of the file were read."""
        return self.number - self.noted

    def then_noted(self, modified_us: int, checksum: str) -> FileVersion:
        """Return the next version, with the same content, another time of change and perhaps a checksum."""
        return self._replace(number=self.number + 1, noted=self.noted + 1, modified_us=modified_us, checksum=checksum)

    def is_like(self, other: FileVersion) -> bool:
        """Return whether size and time of change are equal; then the content is taken as equal too."""
        return (self.size_bytes, self.modified_us) == (other.size_bytes, other.modified_us)

    def to_text(self) -> str:
        """Return the stored form."""
        parts = [str(part or "") for part in self]
        while parts and not parts[-1]:
            parts.pop()
        return ":".join(parts)

    @classmethod
    def from_text(cls, text: str) -> FileVersion:
        """Read what `to_text` wrote; raises ValueError."""
        if not text:
            return UNREAD
        parts = text.split(":", 5)
        try:
            # All parts are numbers except the checksum, which may hold a colon.
            found: list[Any] = [int(part or 0) for part in parts[:5]]
            return cls(*found, *parts[5:])
        except ValueError:
            raise ValueError(f"expected the version of a file, got {text[:80]!r}") from None


UNREAD = FileVersion(0)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


@dataclass(frozen=True, slots=True)
class FileSetWatermark(Watermark):
    """Files by name, each with the version that was read, and the date before which all files are known.

    The interval `[low, high)` of a work unit names the files that it reads: `low` holds their versions read before
    (`UNREAD` if none), `high` the versions that it reads.

    Source: `source.filebased.fs.snapshot` of gobblin-core, `FileBasedSource`. Differs: is a watermark with intervals
    and gaps; holds sizes and checksums too; files of failed work units are not in it.
    """

    files: Mapping[str, FileVersion]
    before: datetime | None = None
    """End of the line of dates: all files dated before it are known. None if there is no line of dates."""
    type_name: ClassVar[str] = "file_set"
    version: ClassVar[int] = 3
    is_layered: ClassVar[bool] = True
    also_reads: ClassVar[tuple[int, ...]] = (1, 2)
    """Version 1 had no checksums."""

    def __post_init__(self) -> None:
        if self.before is not None and not isinstance(self.before, datetime):
            raise TypeError("a set of files has no single position; reset the dataset to read all files again")
        object.__setattr__(self, "files", MappingProxyType(dict(self.files)))

    def __hash__(self) -> int:
        return hash((frozenset(self.files.items()), self.before))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and plans travel to Spark tasks.
        return (type(self), (dict(self.files), self.before))

    def components(self) -> Mapping[str, Position]:
        return self.files if self.before is None else {LINE: self.before, **self.files}

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        files: dict[str, Any] = {name: version for name, version in components.items() if name != LINE}
        line: Any = components.get(LINE)
        return cls(files, line)

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        if isinstance(position, FileVersion):
            return position.to_text()
        return f"@{TimestampWatermark.position_to_json(position)}"

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        text = raw if isinstance(raw, str) else str(raw)
        if text[:1] == "@":
            return TimestampWatermark.position_from_json(text[1:])
        return FileVersion.from_text(text)

    @classmethod
    def encode(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Pack the values: an interval may have very many files."""
        return {"packed": pack(values)}

    @classmethod
    def decode(cls, stored: dict[str, Any]) -> dict[str, Any]:
        return unpack(stored["packed"])

    @classmethod
    def settled(cls, ranges: Ranges) -> Ranges:
        """Drop files without a version that was read, and files that the line of dates covers."""
        line: Any = ranges.get(LINE, ())
        spans = [(low.timestamp(), high.timestamp()) for low, high in line if low < high]
        kept: dict[str, Any] = {}
        for name, parts in ranges.items():
            version: Any = parts[-1][1]
            if name == LINE:
                kept[name] = parts
            elif version.number and not any(low <= version.date_s < high for low, high in spans):
                kept[name] = ((UNREAD, version),)
        return kept

    @classmethod
    def summary(cls, components: Mapping[str, Position]) -> Watermark:
        """Return counts only: plans, results and lists would grow with the number of files otherwise."""
        return cls.from_components(components).summarised()

    @classmethod
    def describe(cls, ranges: Ranges) -> str:
        line = TimestampWatermark.describe({LINE: ranges[LINE]}) if LINE in ranges else ""
        files = cls.summary({name: parts[-1][1] for name, parts in ranges.items() if name != LINE})
        return ", ".join(text for text in (line, str(files) if len(ranges) > bool(line) else "") if text)

    def summarised(self) -> FileSetSummary:
        """Return how many files these are and when the newest of them was changed."""
        read = [version for version in self.files.values() if version.number]
        return FileSetSummary(len(read), max((version.modified_us for version in read), default=0), self.before)

    def __str__(self) -> str:
        return str(self.summarised())


@dataclass(frozen=True, slots=True)
class FileSetSummary(Watermark):
    """A summary of a file set for people: the number of files and their newest change; `<=` compares date and count."""

    count: int
    newest_us: int
    """Microseconds since the epoch of the newest change of a file."""
    before: datetime | None = None
    """End of the line of dates, as in the file set."""
    type_name: ClassVar[str] = "file_set_summary"

    def components(self) -> Mapping[str, Position]:
        line = {} if self.before is None else {LINE: self.before}
        return {**line, "count": self.count, "newest_us": self.newest_us}

    def anchors(self) -> Mapping[str, Position]:
        """Return the line of dates only: a count is no position."""
        return {} if self.before is None else {LINE: self.before}

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        found: Mapping[str, Any] = components
        return cls(found["count"], found["newest_us"], found.get(LINE))

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        return position if isinstance(position, int) else TimestampWatermark.position_to_json(position)

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        return raw if isinstance(raw, int) else TimestampWatermark.position_from_json(raw)

    def __le__(self, other: Watermark) -> bool:
        if not isinstance(other, FileSetSummary) or (self.before is None) != (other.before is None):
            return False
        # The count may shrink when the line moves on: files that the line covers are dropped from the set.
        return self.count <= other.count if self.before == other.before else self._line() < other._line()

    def _line(self) -> datetime:
        return self.before or datetime.min.replace(tzinfo=UTC)

    def __str__(self) -> str:
        newest = f", newest of {_instant(self.newest_us)}" if self.count else ""
        files = f"{self.count:,} file{'' if self.count == 1 else 's'}{newest}"
        if self.before is None:
            return files
        return str(TimestampWatermark(self.before)) + (f" and {files}" if self.count else "")


def time_of_change(micros: int) -> datetime:
    """Return a file's time of change, in whole seconds and within the years 1 to 9999: file systems allow any time.

    Args:
        micros: microseconds since the epoch.
    """
    return datetime.fromtimestamp(min(max(micros // 1_000_000, _FIRST_SECOND), _LAST_SECOND), UTC)


def _instant(micros: int) -> str:
    return f"{time_of_change(micros):%Y-%m-%d %H:%M:%SZ}"


for _cls in (FileSetWatermark, FileSetSummary):
    register_watermark_type(_cls)
