"""Whether all quotes of a CSV file are closed.

pyarrow takes all that follows an open quote for one value, without a word, and the rows in it are lost. Sound files have an
even number of quotes; where it is odd, a second reading by Python's csv tells an open quote from one inside a value (`5"`).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable

import pyarrow as pa

from gobblin_dagster.constructs.extractors.looked_at import Again


class QuoteCounter:
    """Hands a stream of UTF-8 on, for `pa.PythonFile`, and counts its quotes."""

    def __init__(self, stream: pa.NativeFile | Again, quote: str) -> None:
        self.count = 0
        self.closed = False
        self._stream = stream
        self._quote = quote.encode()

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        data: bytes = self._stream.read(size)
        self.count += data.count(self._quote)
        return data

    def close(self) -> None:
        """Leave the stream to whoever opened it."""
        self.closed = True


def row_of_open_quote(lines: Iterable[str], delimiter: str, quote: str, escape: str | None) -> int | None:
    """Return the number of the row, from 1, in which a text ends inside quotes; None where it does not."""
    reader, rows = csv.reader(lines, delimiter=delimiter, quotechar=quote, escapechar=escape, strict=True), 0
    limit = csv.field_size_limit(sys.maxsize)
    try:
        while True:
            try:
                row = next(reader)
            except csv.Error as error:
                if "unexpected end" in str(error):
                    return rows + 1
                continue  # what else is wrong with a row is for pyarrow to tell
            rows += bool(row)
    except StopIteration:
        return None
    finally:
        csv.field_size_limit(limit)
