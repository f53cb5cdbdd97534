"""Infer the types of a dataset's columns from a sample of the files that a run will read.

Types are inferred once per dataset, when it is planned for the first time, and stored with its first commit. Later runs
only infer types of columns that are new. A dataset that was published before, without inferred types, keeps its texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FormatError, InfersTypes, InputFile
from gobblin_dagster.constructs.types.inference import ColumnGuess
from gobblin_dagster.core.utils.text import count

SAMPLE_BYTES = 8 << 20
"""Bytes of a dataset's new files that are looked at; the source asks for more if its last runs failed."""
_MOST_FILES = 64
"""Most files that are opened; each may cost requests to a remote file system."""
_MOST_NAMES = 12
"""Most columns of one type that a note names."""


@dataclass(frozen=True, slots=True)
class InferredTypes:
    """Types of the columns of one dataset."""

    types: Mapping[str, str] = field(default_factory=dict)
    """All types to read with, by column name; columns without one are text."""
    notes: Sequence[str] = ()
    """What was inferred now, from how much, for the plan."""


def infer_types(
    file_format: InfersTypes,
    files: Sequence[str],
    known: Mapping[str, str],
    texts: Collection[str],
    *,
    sample_bytes: int = SAMPLE_BYTES,
) -> InferredTypes:
    """Return the types of a dataset's columns; files that cannot be read are passed over, reading them tells why.

    Args:
        file_format: opens the files.
        files: absolute paths or URLs of the files to be read, in their order.
        known: types that were inferred before, by column; they stay.
        texts: columns that were published before without an inferred type; they stay texts.
        sample_bytes: bytes to look at, over all files.
    """
    sample = _Sample(file_format, {*known, *texts})
    # If types are known, a file is opened for its names only, and read on if it has a new one.
    for path in _spread(files)[: 1 if known else _MOST_FILES]:
        if sample.bytes_read >= sample_bytes:
            break
        sample.look(path, max(sample_bytes // min(len(files), 8), 1))
    found = {name: guess.type_name for name, guess in sample.guesses.items()}
    if not found:
        return InferredTypes(known)
    of_files = f" of {len(files):,}" if len(files) > sample.files else ""
    sampled = f"{count(sample.rows, 'row')} of {count(sample.files, 'file')}{of_files}"
    notes = [f"types inferred from {sampled}: {_listed(found)}.", *_null_hints(sample.guesses)]
    return InferredTypes({**known, **found}, notes)


class _Sample:
    """Looks at files, and keeps a guess for each column whose type is not settled."""

    def __init__(self, file_format: InfersTypes, settled: Collection[str]) -> None:
        self._format = file_format
        self._settled = settled
        self.guesses: dict[str, ColumnGuess] = {}
        self.files = self.rows = self.bytes_read = 0

    def look(self, path: str, most_bytes: int) -> None:
        """Look at the first bytes of a file."""
        try:
            reader = self._format.open_texts(InputFile(path))
        except (FormatError, OSError, pa.ArrowException, UnicodeError, EOFError):
            return  # the task that reads it says why, with file and row
        with closing(reader):
            names = [name for name in reader.schema.names if name not in self._settled]
            if not names:
                return
            self.files += 1
            for name in names:
                self.guesses.setdefault(name, ColumnGuess(self._format.fractions))
            try:
                for batch in reader.batches():
                    self.rows += batch.num_rows
                    for name in names:
                        self.guesses[name].look(batch.column(name))
                    if reader.bytes_read >= most_bytes:
                        break
            except (FormatError, OSError, pa.ArrowException, UnicodeError, EOFError):
                pass  # as above
            self.bytes_read += reader.bytes_read


def _spread(files: Sequence[str]) -> list[str]:
    """Return the files in an order in which the first few lie as far from each other as they can: ends first."""
    ordered, gaps = ([files[0], files[-1]] if len(files) > 1 else list(files)), [(0, len(files) - 1)]
    for low, high in gaps:  # grows while it is read
        if high - low > 1:
            middle = (low + high) // 2
            ordered.append(files[middle])
            gaps += [(low, middle), (middle, high)]
    return ordered


def _listed(types: Mapping[str, str]) -> str:
    """Return `int64: id, qty; date: day`; of a type with many columns, the first few."""
    by_type: dict[str, list[str]] = {}
    for name, kind in types.items():
        by_type.setdefault("text" if kind == "string" else kind, []).append(name)

    def names(columns: list[str]) -> str:
        more = f" and {len(columns) - _MOST_NAMES} more" if len(columns) > _MOST_NAMES else ""
        return ", ".join(columns[:_MOST_NAMES]) + more

    return "; ".join(f"{kind}: {names(columns)}" for kind, columns in by_type.items())


def _null_hints(guesses: Mapping[str, ColumnGuess]) -> Iterator[str]:
    """Yield a note on columns that are text only for words like `NA`, which may mean null."""
    blocked = {name: guess for name, guess in guesses.items() if guess.type_name != guess.ignoring_null_words}
    if not blocked:
        return
    words = sorted({word for guess in blocked.values() for word in guess.null_words})
    listed = _listed({name: guess.ignoring_null_words for name, guess in blocked.items()})
    quoted = ", ".join(f'"{word}"' for word in words)
    option = (
        "`quoted_nulls: true`"
        if words == [""]
        else f'`null_values: ["", {quoted}]`'
        if "" not in words
        else (f"`null_values: [{quoted}]` and `quoted_nulls: true`")
    )
    yield f"if {quoted} means null, set {option}; columns that would not be text: {listed}."
