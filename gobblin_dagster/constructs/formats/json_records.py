"""Cut one JSON document into its records, one line each, without holding the document in memory.

Only texts and brackets are looked at; the reader that parses the records judges the rest. No library does this for us:
pyarrow and the standard library read a document whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gobblin_dagster.constructs.formats.base import FormatError, kind_of
from gobblin_dagster.constructs.formats.json_blocks import MAX_BLOCKS, SIGNATURE

_TOKEN = re.compile(rb'"[^"\\\n\r]*+(?:\\[^\n\r][^"\\\n\r]*+)*+"|[\[\]{}"]')
"""A whole text, a bracket, or the quote that begins a text whose end is not in the buffer."""
_BROKEN = re.compile(rb'"[^"\\\n\r]*+(?:\\[^\n\r][^"\\\n\r]*+)*+\\?[\n\r]')
_SPACE = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^\s,\]}\[{":]*')
_QUOTE, _OPENING = b'"', b"[{"
_MAX_NAMED = 8
"""Most fields in a message."""
WHOLE = "."
"""Path of a document that is one record."""


def records(stream: Any, block_bytes: int, path: str) -> Iterator[list[bytes]]:
    """Yield lists of records, each list about one block long.

    Args:
        stream: the bytes of the document, UTF-8.
        block_bytes: most bytes read at once; a record may be 16 times as long.
        path: names of fields on the way to the list, with dots; empty if the document is the list, `.` if it is one
            record.

    Raises:
        FormatError: (while reading) the document ends early, has no list at the path, or another text behind it.
    """
    document = _Document(stream, block_bytes)
    names = [] if path in ("", WHOLE) else path.split(".")
    found: list[bytes] = []
    size = 0
    for record in document.records(names, is_record=path == WHOLE):
        found.append(record)
        size += len(record)
        if size >= block_bytes:
            yield found
            found, size = [], 0
    if found:
        yield found


class _Document:
    """Reads a document from beginning to end; `_at` is the place in the buffer up to which it was read."""

    def __init__(self, stream: Any, block_bytes: int) -> None:
        self._stream, self._block_bytes = stream, block_bytes
        self._buffer, self._at, self._count = b"", 0, 0

    def records(self, names: Sequence[str], *, is_record: bool) -> Iterator[bytes]:
        """Yield each record as one line; `is_record`: the document is one."""
        self._more()
        self._buffer = self._buffer.removeprefix(SIGNATURE)
        if not self._peek():
            return  # an empty file has no rows, as with JSON lines
        yield from self._walk(names, [], is_record)
        if mark := self._peek():
            hint = " Several objects, one a line, are `format: jsonl`." if mark == b"{" else ""
            raise self._error(f"expected one JSON document, got {self._shown()} behind its end.{hint}")

    def _walk(self, names: Sequence[str], passed: list[str], is_record: bool) -> Iterator[bytes]:
        if names:
            yield from self._field(names, passed)
            return
        mark = self._peek()
        if is_record and mark == b"{":
            yield self._record()
        elif mark == b"[" and not is_record:
            yield from self._items()
        elif mark == b"{":
            self._at += 1
            lists = [name for name, first in self._fields(passed) if first == b"["]
            hint = (
                f" Set `records` to the path of the list: it has the list(s) {', '.join(lists[:5])}." if lists else ""
            )
            raise self._error(f"expected a list at {_place(passed)}, got an object.{hint}")
        elif passed and mark == b"n":
            if (word := self._plain()) != b"null":
                raise self._error(f"expected a list at {_place(passed)}, got {word[:60].decode('utf-8', 'replace')!r}.")
        else:
            expected = "an object" if is_record else "a list"
            kind = "" if passed else kind_of(self._buffer[:8]).replace("`encoding: utf-16`", "JSON is read in UTF-8")
            raise self._error(f"expected {expected} at {_place(passed)}, got {kind or self._shown()}.")

    def _items(self) -> Iterator[bytes]:
        self._at += 1
        if self._take(b"]"):
            return
        while True:
            yield self._record()
            if self._take(b"]"):
                return
            self._require(b",", "a comma or the end of the list")

    def _field(self, names: Sequence[str], passed: list[str]) -> Iterator[bytes]:
        """Yield the records below the first of the names, and pass over the other fields of the object."""
        if self._peek() != b"{":
            raise self._error(f"expected an object with {names[0]!r} at {_place(passed)}, got {self._shown()}.")
        self._at += 1
        others, is_there = [], False
        for name, _ in self._fields(passed, skip=names[0]):
            if name != names[0]:
                others.append(name)
                continue
            if is_there:
                raise self._error(f"field {name!r} at {_place(passed)} was specified twice.")
            is_there = True
            yield from self._walk(names[1:], [*passed, name], is_record=False)
        if not is_there:
            more = ", ..." if len(others) > _MAX_NAMED else ""
            there = f"the field(s) {', '.join(others[:_MAX_NAMED])}{more}" if others else "no field"
            raise FormatError(f"has no field {names[0]!r} at {_place(passed)}, but {there}. Correct `records`.")

    def _fields(self, passed: list[str], skip: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield name and first byte of each field of an object; pass over its value, unless its name is `skip`."""
        if self._take(b"}"):
            return
        while True:
            if self._peek() != _QUOTE:
                raise self._error(f"expected the name of a field at {_place(passed)}, got {self._shown()}.")
            name = _name(self._value())
            self._require(b":", f"a colon behind the field {name!r}")
            yield name, self._peek()
            if name != skip:
                self._skip()
            if self._take(b"}"):
                return
            self._require(b",", f"a comma or the end of the object at {_place(passed)}")

    def _record(self) -> bytes:
        if self._peek() != b"{":
            raise self._error(f"expected an object, got {self._shown()}.")
        record = self._value()
        self._count += 1
        # Line breaks stand between values only: `_BROKEN` refuses those in texts.
        return record.replace(b"\n", b" ").replace(b"\r", b" ")

    def _skip(self) -> None:
        self._value(is_kept=False)

    def _value(self, *, is_kept: bool = True) -> bytes:
        """Pass over the next value and return it; empty if it is not kept."""
        mark = self._peek()
        if mark not in (_QUOTE, b"[", b"{"):
            return self._plain()
        levels, position = 0, self._at
        while True:
            for match in _TOKEN.finditer(self._buffer, position):
                token = match[0]
                if token == _QUOTE:
                    position = match.start()
                    if _BROKEN.match(self._buffer, position):
                        raise self._error(f"a line break inside of the text {self._shown(position)}.")
                    break
                position = match.end()
                if len(token) == 1:
                    levels += 1 if token in _OPENING else -1
                if not levels:
                    value, self._at = self._buffer[self._at : position] if is_kept else b"", position
                    return value
            else:
                position = len(self._buffer)
            position -= self._drop(self._at if is_kept else position)
            if not self._more():
                raise self._error("the document ends in the middle of a value; was its upload interrupted?")

    def _plain(self) -> bytes:
        """Pass over a number or a word."""
        while (match := _PLAIN.match(self._buffer, self._at)) is not None and match.end() == len(self._buffer):
            if not self._more():
                break
        if match is None or not match[0]:
            raise self._error(f"expected a value, got {self._shown()}.")
        self._at = match.end()
        return match[0]

    def _peek(self) -> bytes:
        """Return the next byte that is no blank; empty at the end."""
        while True:
            match = _SPACE.match(self._buffer, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            self._drop(self._at)
            if not self._more():
                return b""

    def _take(self, mark: bytes) -> bool:
        """Pass over a mark if it comes next, and return whether it did."""
        is_next = self._peek() == mark
        self._at += is_next
        return is_next

    def _require(self, mark: bytes, what: str) -> None:
        if not self._take(mark):
            raise self._error(f"expected {what}, got {self._shown()}.")

    def _drop(self, until: int) -> int:
        """Forget the buffer before a place, and return its length; the place read up to never lies before it."""
        self._buffer, self._at = self._buffer[until:], max(self._at - until, 0)
        return until

    def _more(self) -> bool:
        data = self._stream.read(self._block_bytes)
        self._buffer += data
        if len(self._buffer) > (MAX_BLOCKS + 1) * self._block_bytes:
            raise self._error(
                f"a value is longer than {MAX_BLOCKS * self._block_bytes} bytes. Set `records` to the path of the "
                "list, or raise `execution.block_bytes` if rows are that long."
            )
        return bool(data)

    def _shown(self, at: int | None = None) -> str:
        at = self._at if at is None else at
        part = self._buffer[at : at + 60].decode("utf-8", "replace")
        if not part:
            return "the end of the file; was its upload interrupted?"
        return "null" if part.startswith("null") else repr(part)

    def _error(self, problem: str) -> FormatError:
        return FormatError(problem, self._count + 1)


def _name(text: bytes) -> str:
    try:
        name = str(json.loads(text))
        name.encode()  # half of a surrogate pair could not be printed
    except ValueError:
        return text.decode("utf-8", "replace")
    return name


def _place(passed: Sequence[str]) -> str:
    return repr(".".join(passed)) if passed else "the top"
