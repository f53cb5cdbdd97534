"""Dataset URNs: the names of datasets. State, commits and Dagster partitions are kept per dataset.

The state store uses the urn as it is. Dagster partition keys and folder names use percent-encodings that can be
reversed, so that `a:b`, `a.b` and `a_b` never share state (the original replaces characters).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from gobblin_dagster.core.errors import CorruptRecordError, InvalidUrnError

MAX_SEGMENT_BYTES = 240
"""Longest percent-encoded urn, in bytes; common file systems allow folder names of 255 bytes."""
_EMPTY = "%00"
"""Encoding of the empty urn (a job without datasets). No other urn encodes to it: control characters are refused."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetUrn:
    """A checked dataset.urn.

    Any printable text is valid; it is never used as a path. The empty urn names the only dataset of a job that declares
    none.

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
        """The partition key in Dagster: percent-encoded except `/` and `:`, which stay readable in the UI."""
        return quote(self.value, safe="/:") if self.value else _EMPTY

    @property
    def path_segment(self) -> str:
        """The folder name of the dataset, percent-encoded; never `.`, `..`, or a hidden name (`.x`, `_x`)."""
        if not self.value:
            return _EMPTY
        quoted = quote(self.value, safe="")
        # A leading dot or underscore hides a folder from Spark and pyarrow readers; `..` would leave the lake.
        return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[0] in "._" else quoted

    def folder_in(self, path: str) -> str:
        """Return the part of a published file's path up to the dataset's folder.

        Raises:
            CorruptRecordError: the file lies in no folder of the dataset, as if a manifest was edited.
        """
        above, mark, _ = path.rpartition(f"/{self.path_segment}/")
        if not mark:
            what = f"The list of the published files of dataset {self.value!r}"
            raise CorruptRecordError(
                what=what, problem=f"it names {path}, which lies in no folder of the dataset; see `gobblin verify`"
            )
        return above + mark[:-1]

    @classmethod
    def from_key(cls, key: str) -> DatasetUrn:
        """Return the urn of a partition key or of a path segment."""
        return cls("" if key == _EMPTY else unquote(key))


def table_name_of(dataset_urn: str) -> str:
    """Return a dataset's name as part of a table's: letters and digits of ASCII, and `_` for all others."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in dataset_urn)


def place_of(dataset_urn: str, place: str) -> str:
    """Return a place of `PublisherTraits.keeps_rows_in`, in which `{dataset}` stands for a name, as that of a dataset.

    Example:
        >>> place_of("shop/web", "postgresql://db:5432/lake#public.n_{dataset}")
        'postgresql://db:5432/lake#public.n_shop_web'
    """
    return place.replace("{dataset}", table_name_of(dataset_urn))
