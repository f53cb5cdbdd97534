"""Guess the types of CSV columns from the first bytes of some files, and wider ones for columns that have types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import FileReader, FormatError, InputFile, listed_types
from gobblin_dagster.constructs.formats.csv_spelling import Spelling
from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.inference import ColumnGuess, Fractions
from gobblin_dagster.constructs.types.wider import widenings
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.storage.os_errors import raise_if_passing

_UNREADABLE = (FormatError, OSError, pa.ArrowException, UnicodeError, EOFError)


class CsvSample:
    """The guesses for the columns without a settled type; see `TypeSample`."""

    def __init__(
        self,
        open_texts: Callable[[InputFile], FileReader],
        fractions: Fractions,
        settled: Collection[str],
        spelling: Spelling,
    ) -> None:
        self._spelling = spelling
        self._open_texts = open_texts
        self._fractions = fractions
        self._settled = settled
        self._guesses: dict[str, ColumnGuess] = {}
        self.files = self.rows = self.bytes_read = 0

    def look(self, file: InputFile, most_bytes: int) -> None:
        try:
            reader = self._open_texts(file)
        except _UNREADABLE as error:
            raise_if_passing(error)
            return  # the task that reads it says why, with file and row
        with closing(reader):
            names = [name for name in reader.schema.names if name not in self._settled]
            if not names:
                return
            self.files += 1
            for name in names:
                self._guesses.setdefault(name, ColumnGuess(self._fractions, self._spelling.usual))
            try:
                for batch in reader.batches():
                    self.rows += batch.num_rows
                    for name in names:
                        self._guesses[name].look(batch.column(name))
                    if reader.bytes_read >= most_bytes:
                        break
            except _UNREADABLE as error:
                raise_if_passing(error)  # else, as above
            self.bytes_read += reader.bytes_read

    def types(self) -> dict[str, str]:
        return {name: guess.type_name for name, guess in self._guesses.items()}

    def open_columns(self, may_be_open: Callable[[str], bool]) -> None:
        return None

    def hints(self) -> list[str]:
        """Return a hint on columns that are text only for words like `NA`, which may mean null."""
        return list(_null_hints(self._guesses))


class CsvWidening:
    """The wider types of columns whose inferred types texts of later files do not fit; see `TypeSample`."""

    def __init__(
        self,
        open_texts: Callable[[InputFile, Collection[str]], FileReader],
        known: Mapping[str, str],
        allowed: Collection[Widening],
        spelling: Spelling,
    ) -> None:
        self._spelling = spelling
        self._allowed = frozenset(allowed)
        self._open_texts = open_texts
        self._types = dict(known)
        self._numbers = {name for name, kind in known.items() if kind.startswith(("int64", "decimal"))}
        """The columns whose types may become wider."""
        self.files = self.rows = self.bytes_read = 0

    def look(self, file: InputFile, most_bytes: int) -> None:
        try:
            reader = self._open_texts(file, self._numbers)
        except _UNREADABLE as error:
            raise_if_passing(error)
            return  # the task that reads it says why, with file and row
        guesses: dict[str, ColumnGuess] = {}
        with closing(reader):
            if not reader.schema.names:
                return
            self.files += 1
            try:
                for batch in reader.batches():
                    self.rows += batch.num_rows
                    for name in reader.schema.names:
                        guesses.setdefault(name, ColumnGuess(usual=self._spelling.usual)).look(batch.column(name))
                    if reader.bytes_read >= most_bytes:
                        break
            except _UNREADABLE as error:
                raise_if_passing(error)  # else, as above
            self.bytes_read += reader.bytes_read
        for name, guess in guesses.items():
            before, wide = self._types[name], guess.widened(self._types[name])
            if wide is not None and widenings(arrow_type(wide), arrow_type(before)) <= self._allowed:
                self._types[name] = wide

    def types(self) -> dict[str, str]:
        return dict(self._types)

    def open_columns(self, may_be_open: Callable[[str], bool]) -> None:
        return None

    def hints(self) -> list[str]:
        """Return nothing: the source says which file made a type wider."""
        return []


def _null_hints(guesses: Mapping[str, ColumnGuess]) -> Iterator[str]:
    blocked = {name: guess for name, guess in guesses.items() if guess.type_name != guess.ignoring_null_words}
    if not blocked:
        return
    words = sorted({word for guess in blocked.values() for word in guess.null_words})
    listed = listed_types({name: guess.ignoring_null_words for name, guess in blocked.items()})
    quoted = ", ".join(f'"{word}"' for word in words)
    option = f'`null_values: ["", {quoted}]`'
    if "" in words:
        option = "`quoted_nulls: true`" if len(words) == 1 else f"`null_values: [{quoted}]` and `quoted_nulls: true`"
    yield f"if {quoted} means null, set {option}; columns that would not be text: {listed}."
