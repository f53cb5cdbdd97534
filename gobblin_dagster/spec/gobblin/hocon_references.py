"""How much the references of a HOCON text bring, told before they are replaced: the library knows no bound.

60 keys of two references to the next one would bring 2^60 texts. Keys are told apart well enough for this, no better:
what is told is more than what is brought, never much less.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

A_REFERENCE = 100
"""Characters that count for each reference and each value that it brings, beside their texts."""
_MOST_PARTS = 20
"""Parts by which dotted keys are told apart."""
_QUOTED = re.compile(r'"""(?P<long>.*?)"""|"(?:[^"\\]|\\.)*"|\s', re.DOTALL)
_NO_NAME = re.compile(r"^\$\{\s*\??|(?:\[\s*\])?\s*\}$")


@dataclass(slots=True)
class _Value:
    path: tuple[str, ...]
    size: int = 0
    """Characters of its text, without those of values inside of it."""
    references: list[tuple[str, ...]] = field(default_factory=list)
    is_object: bool = False


def characters_brought(text: str, tokens: Iterable[re.Match[str]], most: int) -> int:
    """Return how many characters references bring, `most` + 1 if they are more.

    Args:
        text: without `include` and `+=`.
        tokens: all strings, comments and references (the group `quiet`), brackets (`open`, `close`), separators of
            keys and values (`separator`), and line ends and commas (`end`) outside of them.
        most: where to stop.

    Raises:
        RecursionError: references lead to references too many times.
    """
    return _Brought(_values(text, tokens), most).all()


class _Walk:
    """Goes through a text and finds its values."""

    def __init__(self) -> None:
        self.values: list[_Value] = []
        self._around: list[tuple[tuple[str, ...], _Value | None, bool]] = []
        self._path: tuple[str, ...] = ()
        self._value: _Value | None = None
        """The value that has begun, also in a list in it; None: a key is read."""
        self._is_list, self._key = False, ""

    def take(self, token: re.Match[str], before: str) -> None:
        """Take a token and the text before it."""
        self._add(before.strip() if self._value else before)
        kind, given = token.lastgroup, token[0]
        if kind == "quiet" and given[0] not in "#/":
            self._add(given)
            if self._value and given[0] == "$":
                self._value.references.append(_parts(_NO_NAME.sub("", given))[:_MOST_PARTS])
        elif kind == "separator" and self._value is None:
            self._begin()
        elif kind == "open":
            self._open(is_list=given == "[")
        elif kind == "close" and self._around:
            self._path, self._value, self._is_list = self._around.pop()
            self._add(given)
        elif kind == "end" and self._value and not self._is_list and (given == "," or self._value.size):
            self._value, self._key = None, ""

    def _add(self, text: str) -> None:
        if self._value is None:
            self._key += text
        else:
            self._value.size += len(text)

    def _begin(self) -> _Value:
        self._value = _Value((*self._path, *_parts(self._key))[:_MOST_PARTS])
        self._key = ""
        self.values.append(self._value)
        return self._value

    def _open(self, *, is_list: bool) -> None:
        value = self._begin() if self._value is None and self._key.strip() else self._value
        self._around.append((self._path, value, self._is_list))
        self._is_list, self._key = is_list, ""
        if is_list:
            return
        if value is not None:
            self._path, value.is_object = value.path, True
        self._value = None


def _values(text: str, tokens: Iterable[re.Match[str]]) -> list[_Value]:
    walk, at = _Walk(), 0
    for token in tokens:
        walk.take(token, text[at : token.start()])
        at = token.end()
    return walk.values


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted key; of one in quotes too, as nothing here depends on it."""
    return tuple(_QUOTED.sub(_unquoted, name).split("."))


def _unquoted(found: re.Match[str]) -> str:
    if found["long"] is not None or found[0].isspace():
        return found["long"] or ""
    try:
        return str(json.loads(found[0]))
    except ValueError:
        return found[0][1:-1]


class _Brought:
    """Adds up what values bring, each once."""

    def __init__(self, values: list[_Value], most: int) -> None:
        self._values, self._most = values, most
        self._at: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._below: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, value in enumerate(values):
            self._at[value.path].append(index)
            for count in range(len(value.path)):
                self._below[value.path[:count]].append(index)
        self._by_value: dict[int, int] = {}
        self._by_name: dict[tuple[str, ...], int] = {}
        self._steps = 0

    def all(self) -> int:
        found = 0
        for index in range(len(self._values)):
            found += self._of_value(index)
            if found + self._steps > self._most:
                return self._most + 1
        return found

    def _of_value(self, index: int) -> int:
        """Return what the references in a value bring; 0 inside of a circle, which the library refuses."""
        if index in self._by_value:
            return self._by_value[index]
        self._by_value[index] = found = 0
        value = self._values[index]
        for name in value.references:
            if _is_within(value.path, name):
                found += A_REFERENCE + self._of_name(name, index)  # it means what was set before
            else:
                if name not in self._by_name:
                    self._by_name[name] = self._of_name(name, len(self._values))
                found += A_REFERENCE + self._by_name[name]
        self._by_value[index] = min(found, self._most + 1)
        return self._by_value[index]

    def _of_name(self, name: tuple[str, ...], before: int) -> int:
        """Return what a reference brings: the values of the key, those below it, and those that may hold it."""
        holding = (self._at.get(name[:count], []) for count in range(len(name)))
        related = sorted({*self._at.get(name, []), *self._below.get(name, []), *(i for one in holding for i in one)})
        found = 0
        for index in reversed(related):
            if index >= before:
                continue
            self._steps += A_REFERENCE
            value = self._values[index]
            found += A_REFERENCE + value.size + self._of_value(index)
            is_last = value.path == name and not value.is_object and not value.references
            has_former = value.path == name and any(_is_within(name, one) for one in value.references)
            if is_last or has_former or found + self._steps > self._most:
                break  # it replaces those before it, or brings them itself
        return min(found, self._most + 1)


def _is_within(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether one path is the beginning of the other."""
    count = min(len(path), len(other))
    return path[:count] == other[:count]
