"""Find misplaced quotes in a CSV file.

pyarrow accepts two faults silently: after an unclosed quote, all the rest is one value, and its rows are lost; and
`"x"y` becomes `xy`. Valid files have an even number of quotes, and a delimiter or a line end after each closing quote.
If a file does not, Python's csv module reads it again, which distinguishes faults from quotes inside values (`5"`).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.formats.peek import Again


class QuoteCounter:
    """Passes on a stream of UTF-8, for `pa.PythonFile`, and checks its quotes."""

    def __init__(self, stream: pa.NativeFile | Again, delimiter: str, quote: str, escape: str | None) -> None:
        self.closed = False
        self._stream = stream
        self._quote, self._escape = quote.encode(), (escape or "").encode()
        self._ends = f"{delimiter}{quote}\r\n".encode()
        """Bytes that may follow a closing quote."""
        self._is_open = False
        """Whether the number of quotes so far is odd."""
        self._has_closed = False
        """Whether the bytes read so far end with a closing quote."""
        self._is_odd = False
        self._is_at_end = False

    @property
    def is_suspicious(self) -> bool:
        """Whether the whole stream was passed on and is likely to have a fault."""
        return self._is_at_end and (self._is_odd or self._is_open)

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        data: bytes = self._stream.read(size)
        self._is_at_end |= not data and size > 0
        if data and not self._is_odd:
            self._is_odd = self._has_closed and data[0] not in self._ends
            self._has_closed = False
            if self._quote in data:
                self._look_at(data)
        return data

    def close(self) -> None:
        """Do not close the stream: its opener does."""
        self.closed = True

    def _look_at(self, data: bytes) -> None:
        """Check the byte after each second quote, which closes a value or is the second of a pair."""
        content = np.frombuffer(data, dtype=np.uint8)
        places = np.flatnonzero(content == self._quote[0])
        if self._escape:
            places = places[(places == 0) | (content[places - 1] != self._escape[0])]
        closing = places[0 if self._is_open else 1 :: 2]
        self._is_open ^= len(places) % 2 == 1
        if len(closing) and closing[-1] == len(data) - 1:
            self._has_closed, closing = True, closing[:-1]
        self._is_odd |= bool(content[1:].take(closing).tobytes().translate(None, self._ends))


def fault_of_quotes(lines: Iterable[str], delimiter: str, quote: str, escape: str | None) -> tuple[int, str] | None:
    """Return the number of the first row (from 1) with a misplaced quote, and what is wrong; None if there is none."""
    reader, rows = csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=True), 0
    limit = csv.field_size_limit(sys.maxsize)
    try:
        while True:
            try:
                row = next(reader)
            except csv.Error as error:
                if "unexpected end" in str(error):
                    return rows + 1, "a quote is opened and never closed; all that follows it would be one value."
                if "expected after" in str(error):
                    problem = (
                        f"a quoted value continues after its closing quote; write {2 * quote} for a quote inside of it."
                    )
                    return rows + 1, problem
                continue  # pyarrow reports other faults
            rows += bool(row)
    except StopIteration:
        return None
    finally:
        csv.field_size_limit(limit)
