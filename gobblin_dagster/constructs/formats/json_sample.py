"""Guess the shapes of JSON fields from the first lines of some files, and new fields inside of those that have one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from gobblin_dagster.constructs.formats.base import FormatError, InputFile
from gobblin_dagster.constructs.formats.json_blocks import Split
from gobblin_dagster.constructs.types.json_shapes import RecordShape, shape_text, with_new_fields
from gobblin_dagster.storage.os_errors import raise_if_passing


class JsonSample:
    """The shapes of the fields without a settled type; see `TypeSample`.

    Args:
        split: splits a stream into lines with a record each.
        block_bytes: bytes to split at a time.
        settled: fields whose types are stored, so that nothing is inferred for them.
        declared: fields whose types the job file declares.
        include: the only fields to look at; all if it is empty.
    """

    def __init__(
        self,
        split: Split,
        block_bytes: int,
        settled: Collection[str],
        declared: Collection[str],
        include: Collection[str],
    ) -> None:
        self._split, self._block_bytes = split, block_bytes
        self._settled = {*settled, *declared}
        self._not_seen = dict.fromkeys(declared)
        self._include = include
        self._shape = RecordShape()
        self._is_whole = True
        self.files = self.rows = self.bytes_read = 0

    def look(self, file: InputFile, most_bytes: int) -> None:
        self.files += 1
        try:
            with closing(file.open_text()) as text:
                for lines in self._split(text.stream, min(self._block_bytes, most_bytes)):
                    for line in lines:
                        record = json.loads(line)
                        if rb"\ud" in line.lower():
                            json.dumps(record, ensure_ascii=False).encode()  # a name may be no text
                        self._look_at(record)
                    if text.bytes_read >= most_bytes:
                        self._is_whole = False  # nobody knows whether rows follow
                        break
                self.bytes_read += text.bytes_read
        except (FormatError, OSError, ValueError, EOFError, RecursionError) as error:
            self._is_whole = False
            raise_if_passing(error)  # else, the task that reads it says why, with file and row

    def _look_at(self, record: object) -> None:
        if isinstance(record, dict):
            self.rows += 1
            for name in self._not_seen.keys() & record:
                del self._not_seen[name]
            names = set(self._include or record) - self._settled
            self._shape.look({name: record[name] for name in record if name in names})

    def types(self) -> dict[str, str]:
        return {name: shape_text(shape) for name, shape in self._shape.shapes().items()}

    def open_columns(self, may_be_open: Callable[[str], bool]) -> Collection[str] | None:
        empty = self._shape.empty
        typed = {*self._settled, *self._shape.shapes()} - empty
        wanted = typed.intersection(self._include) if self._include else typed
        # Files need a column that is no name of a folder.
        if not self._is_whole or not any(map(may_be_open, wanted)):
            return None
        return [name for name in empty if may_be_open(name)]

    def hints(self) -> list[str]:
        """Name declared fields that no record has: most likely they are written in another way."""
        if not self._not_seen or not self.rows:
            return []
        names = ", ".join(repr(name) for name in self._not_seen)
        return [f"no row that was looked at has {names}, which `columns` declares (the case of letters counts)."]


class JsonWidening(JsonSample):
    """The shapes of fields with an inferred type, with the fields that objects of later files have too.

    Args:
        known: texts of the shapes; those of fields that `include` and `columns` leave to inference.
    """

    def __init__(self, split: Split, block_bytes: int, known: Mapping[str, str]) -> None:
        nested = {name: text for name, text in known.items() if text[:1] in "[{"}
        super().__init__(split, block_bytes, (), (), nested)
        self._known = dict(known)
        self._nested = nested

    def look(self, file: InputFile, most_bytes: int) -> None:
        if self._nested:
            super().look(file, most_bytes)

    def types(self) -> dict[str, str]:
        found = self._shape.shapes().items()
        return self._known | {name: with_new_fields(self._known[name], shape) for name, shape in found}
