"""Dataset URNs: the name of the unit of state, of commit and of a Dagster partition.

The raw urn is the key everywhere in our own store. Dagster partition keys and folder names carry reversible
percent-encodings of it, so that `a:b`, `a.b` and `a_b` never share state (the original replaces characters).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from gobblin_dagster.core.errors import InvalidUrnError

MAX_SEGMENT_BYTES = 240
"""Longest folder name that a urn may need, percent-encoded; common file systems stop at 255."""
_EMPTY = "%00"
"""Stands for the empty urn (a job without datasets). No valid urn encodes to it: control characters are refused."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetUrn:
    """A dataset.urn that was checked.

    Any printable text is a urn; it is never interpreted as a path. The empty urn names the only dataset of a job
    that declares none.

    Raises:
        InvalidUrnError: the text holds control characters, or needs more than `MAX_SEGMENT_BYTES` percent-encoded.

    Source: `dataset.urn` of gobblin-api `ConfigurationKeys`.
    """

    value: str

    def __post_init__(self) -> None:
        if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) <= 0xDFFF for char in self.value):
            raise InvalidUrnError(urn=self.value, problem="holds a control character or half a unicode character")
        if len(self.path_segment) > MAX_SEGMENT_BYTES:
            problem = f"is longer than {MAX_SEGMENT_BYTES} bytes once percent-encoded"
            raise InvalidUrnError(urn=self.value, problem=problem)

    def __str__(self) -> str:
        return self.value

    @property
    def partition_key(self) -> str:
        """Dagster's partition key: percent-encoded, keeping `/` and `:` for people who read the UI."""
        return quote(self.value, safe="/:") if self.value else _EMPTY

    @property
    def path_segment(self) -> str:
        """One folder name: no separator, never `.` or `..`, never hidden from readers (`.x`, `_x`), reversible."""
        if not self.value:
            return _EMPTY
        quoted = quote(self.value, safe="")
        # A leading dot or underscore hides a folder from Spark and pyarrow readers; `..` would leave the lake.
        return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[0] in "._" else quoted

    def folder_in(self, path: str) -> str:
        """Return the dataset's folder of a published file, wherever its branch's `path` led at the time."""
        mark = f"/{self.path_segment}/"
        return path[: path.rindex(mark) + len(mark) - 1]

    @classmethod
    def from_key(cls, key: str) -> DatasetUrn:
        """Return the urn of a partition key or path segment."""
        return cls("" if key == _EMPTY else unquote(key))
