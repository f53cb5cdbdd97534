r"""Read a properties file as Gobblin does, with the library commons-configuration 1.10, which is not Java's own way.

Blanks around each line are nothing, also those behind a `\` at its end. Comments and empty lines are left out where a
value goes on. Commas separate items, and blanks around items are nothing. Measured against that library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` takes away."""
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_ENTRY = re.compile(r"((?:[^ \t\n\x0b\f\r\\=:]|\\.)*)(?:[ \t\x0b\f]*[=:]|[ \t\x0b\f])[ \t\x0b\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.)|\Z)", re.DOTALL)
_CODE = re.compile(r"[0-9A-Fa-f]{4}")
_LETTERS = {"r": "\r", "f": "\f", "t": "\t", "n": "\n", "b": "\b"}
_PARTS = re.compile(r"\\[\\,]|[^,\\]+|\\|,")


class PropertiesError(Exception):
    """The text cannot be read as Gobblin would."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(frozen=True, slots=True)
class Property:
    """A key with its text."""

    key: str
    text: str
    """Its items with commas between."""
    line: int
    is_list: bool
    """Whether it has several items; a reference to it means the first."""


def read_properties(text: str) -> Iterator[Property]:
    r"""Yield the keys of a file in its order.

    Raises:
        PropertiesError: an escape `\u` without four digits, or the file ends in a line that goes on.
    """
    for whole, line in _lines(text):
        if (found := _ENTRY.fullmatch(whole)) is None:
            found = re.fullmatch("(.*)()", whole, re.DOTALL)  # a key alone
        if found is None:
            continue
        items = _items(_unescaped(found[2], line, ","))
        yield Property(_unescaped(found[1].strip(_BLANKS), line), ",".join(items), line, len(items) > 1)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each line with those in which it goes on, and the number of the first."""
    parts: list[str] = []
    first = 0
    for number, given in enumerate(text.split("\n"), 1):
        line = given.strip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        first = first if parts else number
        if _GOES_ON.search(line):
            parts.append(line[:-1])
            continue
        yield "".join([*parts, line]), first
        parts = []
    if parts:
        raise PropertiesError("the value goes on at the end of the file, and Gobblin leaves it out; remove `\\`", first)


def _unescaped(text: str, line: int, delimiter: str = "") -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1] is not None:
            if not _CODE.fullmatch(found[1]):
                raise PropertiesError(f"expected four digits of base 16 in {found[0]!r}", line)
            return chr(int(found[1], 16))
        one = found[2] or "\\"
        return f"\\{one}" if one == delimiter else _LETTERS.get(one, one)

    return _ESCAPE.sub(replaced, text) if "\\" in text else text


def _items(text: str) -> list[str]:
    """Return the items of a value; as there, one that begins with a comma has no other unless a second one follows."""
    if text.find(",") <= 0:
        return [text]
    items = [""]
    for part in _PARTS.findall(text):
        if part == ",":
            items.append("")
        else:
            items[-1] += part[1:] if len(part) == 2 and part[0] == "\\" else part
    return [item.strip(_BLANKS) for item in items]
