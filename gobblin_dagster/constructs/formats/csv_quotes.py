"""Find misplaced quotes in a CSV file.

pyarrow accepts two faults silently: after an unclosed quote, all the rest is one value, and its rows are lost; and
`"x"y` becomes `xy`. Most valid files have an even number of quotes, a delimiter or a line end before each opening
quote, and one after each closing quote. If a file does not, Python's csv module reads it again, which distinguishes
faults from quotes inside values (`5"`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.formats.peek import Again
from gobblin_dagster.core.utils.text import lift_limit_of_csv


class QuoteCounter:
    """Passes on a stream of UTF-8, for `pa.PythonFile`, and checks its quotes, if it has any."""

    def __init__(self, stream: pa.NativeFile | Again, delimiter: str, quote: str | None, escape: str | None) -> None:
        self.closed = False
        self._stream = stream
        self._quote, self._escape = (quote or "").encode(), (escape or "").encode()
        self._ends = f"{delimiter}{quote or ''}\r\n".encode()
        """Bytes that may follow a closing quote, or come before an opening one."""
        self._complete = {b"\r", b"\n", self._escape}
        """Last bytes of files that get no line end: an escape would take it as its own."""
        self._before = b"\n\n"
        """The last bytes before those that are looked at."""
        self._is_open = False
        """Whether the number of quotes so far is odd."""
        self._has_closed = False
        """Whether the bytes read so far end with a closing quote."""
        self._is_odd = False
        self._is_at_end = False
        self._held = b""
        """Byte for the next block."""

    @property
    def is_suspicious(self) -> bool:
        """Whether the whole stream was passed on and is likely to have a fault."""
        return self._is_at_end and (self._is_odd or self._is_open)

    def read(self, size: int) -> bytes:
        r"""Return the next bytes; the last line gets an end if it has none, and `\r\n` is in one block.

        Without the end, pyarrow takes an empty last value behind a quoted one as quoted too: as a text, not as null.
        Between two blocks it (26.0.1) leaves the line feed out, inside of quotes and behind an escape too.
        """
        data, self._held = self._held, b""
        data += self._stream.read(size - len(data))
        while len(data) < size and not self._is_at_end:
            more: bytes = self._stream.read(size - len(data))
            self._is_at_end = not more
            data += more or (b"" if (self._before + data)[-1:] in self._complete else b"\n")
        if data.endswith(b"\r") and len(data) > 1 and not self._is_at_end:
            data, self._held = data[:-1], b"\r"
        if data and not self._is_odd:
            self._is_odd = self._has_closed and data[0] not in self._ends
            self._has_closed = False
            if self._quote and self._quote in data:
                self._look_at(self._before + data)
        self._before = (self._before + data[-2:])[-2:]
        return data

    def close(self) -> None:
        """Do not close the stream: its opener does."""
        self.closed = True

    def _look_at(self, data: bytes) -> None:
        """Check the byte after each second quote, which closes a value or is the second of a pair, and before others.

        `data` begins with two bytes that were looked at before.
        """
        content = np.frombuffer(data, dtype=np.uint8)
        places = np.flatnonzero(content[2:] == self._quote[0]) + 2
        if self._escape:
            escapes = content == self._escape[0]
            # Whether an escape before a quote is itself escaped, Python finds.
            self._is_odd |= bool((escapes[places - 1] & escapes[places - 2]).any())
            places = places[~escapes[places - 1]]
        opening, closing = places[int(self._is_open) :: 2], places[int(not self._is_open) :: 2]
        # Else it is a quote inside of a value without quotes, and all that follow change their meaning.
        self._is_odd |= bool(content.take(opening - 1).tobytes().translate(None, self._ends))
        if self._escape:  # what stands before an opening quote may be escaped, and so no delimiter, line end or quote
            self._is_odd |= bool(escapes[opening - 2].any())
        self._is_open ^= len(places) % 2 == 1
        if len(closing) and closing[-1] == len(data) - 1:
            self._has_closed, closing = True, closing[:-1]
        self._is_odd |= bool(content[1:].take(closing).tobytes().translate(None, self._ends))


def fault_of_quotes(lines: Iterable[str], delimiter: str, quote: str, escape: str | None) -> tuple[int, str] | None:
    """Return the number of the first row (from 1) with a misplaced quote, and what is wrong; None if there is none."""
    reader, rows = csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=True), 0
    lift_limit_of_csv()
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
