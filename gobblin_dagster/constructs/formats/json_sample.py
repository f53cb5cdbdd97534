"""JsonSample: guess the shapes of JSON fields from the first lines of some files."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import closing

from gobblin_dagster.constructs.formats.base import FormatError, InputFile
from gobblin_dagster.constructs.formats.json_blocks import Split
from gobblin_dagster.constructs.types.json_shapes import RecordShape, shape_text


class JsonSample:
    """The shapes of the fields without a settled type; see `TypeSample`."""

    def __init__(self, split: Split, block_bytes: int, settled: Collection[str], include: Collection[str]) -> None:
        self._split, self._block_bytes = split, block_bytes
        self._settled = set(settled)
        self._include = include
        self._shape = RecordShape()
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
                        break
                self.bytes_read += text.bytes_read
        except (FormatError, OSError, ValueError, EOFError, RecursionError):
            pass  # the task that reads it says why, with file and row

    def _look_at(self, record: object) -> None:
        if isinstance(record, dict):
            self.rows += 1
            names = set(self._include or record) - self._settled
            self._shape.look({name: record[name] for name in record if name in names})

    def types(self) -> dict[str, str]:
        return {name: shape_text(shape) for name, shape in self._shape.shapes().items()}

    def hints(self) -> list[str]:
        """Return nothing: JSON tells null from text."""
        return []
