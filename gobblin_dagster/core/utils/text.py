"""Small functions on text."""

from __future__ import annotations

import csv
import re
import reprlib
import string
import sys
import unicodedata
from collections.abc import Sequence

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a terminal's cursor, colours or turns round its text, but for tabs and ends of lines."""
_MOST_SHOWN = 40
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 300 characters; its class name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def shown(value: object) -> str:
    """Return the repr of a value for a message, cut to 40 characters: a database's one text may have a gigabyte.

    Example:
        >>> shown(1.5), shown("x" * 100)
        ('1.5', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…")
    """
    try:
        text = repr(value[:_MOST_SHOWN] if isinstance(value, str | bytes) else value)
    except RecursionError:  # nested too deep
        text = reprlib.repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def count(number: int, noun: str, plural: str = "") -> str:
    """Show a count with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def lower_ascii(text: str) -> str:
    """Lower the letters A to Z alone, as SQLite compares names: `Ä` and `ä` are two letters to it.

    Example:
        >>> lower_ascii("ÄB")
        'Äb'
    """
    return text.translate(_ASCII_LOWER)


def printable(text: str) -> str:
    r"""Return a text in one line that a terminal prints as it is: a source may name its datasets as it likes.

    Example:
        >>> printable("north"), printable("a\x1b[2J")
        ('north', 'a\\x1b[2J')
    """
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def visible(text: str) -> str:
    r"""Return a text of any lines, with its control characters as escapes: messages quote what files and people say.

    Example:
        >>> visible("größe:\tx\ny"), visible("a\x1b[2J")
        ('größe:\tx\ny', 'a\\x1b[2J')
    """
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def told_apart(texts: Sequence[str]) -> list[str]:
    r"""Return texts as they are, or with escapes if they write accents in different ways, which look the same.

    Example:
        >>> told_apart(["größe", "a"]), told_apart(["\xe9", "e\u0301", "a"])
        (['größe', 'a'], ['\\xe9', 'e\\u0301', 'a'])
    """
    forms = {unicodedata.is_normalized("NFC", text) for text in texts if not text.isascii()}
    return [text.encode("unicode_escape").decode() if len(forms) > 1 else text for text in texts]


def storable(text: str) -> str:
    r"""Return a text that every database takes: without NUL, and with halves of characters as escapes.

    Names of files that are not UTF-8, and JSON's escapes, bring such halves.

    Example:
        >>> storable("größe"), storable("a\0b\udcff")
        ('größe', 'ab\\udcff')
    """
    return text.replace("\0", "").encode(errors="backslashreplace").decode()


def lift_limit_of_csv() -> None:
    """Let Python's csv module read values of more than 131,072 characters, in all threads from now on.

    Nobody restores its limit: another thread may be in the middle of a file.
    """
    csv.field_size_limit(sys.maxsize)
