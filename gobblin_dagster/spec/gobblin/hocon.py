r"""Read HOCON with pyhocon; this module hides pyhocon's deviations from the specification.

References to keys of the same file are replaced. Other references are returned as `${name}`, or as `${any:NAME}` if the
name may be a key or an environment variable; they are replaced when all files of a job were read. `include` is refused:
Gobblin does not find included files either; so is `+=`, of which pyhocon keeps the last value only.
Deviations that were found: a value like `10 s` is read as a duration instead of text (refused, with a hint), quoted
keys keep their quotes (removed here), `x."a.b"` cannot be parsed, numbers lose how they are written (`2024.10` and
`007` may be names), tabs become spaces and `\u00e4` stays as it is (all three are put right before it reads). It reads
whatever file or URL an `include` names, from anywhere in a text, as part of a value too: it cannot any more.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gobblin_dagster.core.utils.optional_packages import optional_package

_REFERENCE = re.compile(r"\$\{(?P<optional>\??)\s*(?P<name>[\w.:-]+)\s*\}")
_MARK = "\ue000{}\ue001"
_MARKED = re.compile("\ue000(.*?)\ue001")
_QUIET = r'''""".*?"*"""|"(?:[^"\\\n]|\\.)*"|(?:\#|(?<![^\s=,{}\[\]])//)[^\n]*'''
"""Strings and comments: whatever is in them is text. `http://x` is no comment."""
_NUMBER = re.compile(
    rf"{_QUIET}|"
    r"(?P<before>[=:\[,\s}][ \t]*)(?P<number>[+-]?(?:\d*\.\d+|\d+)(?:[eE][+-]?\d+)?)(?=[ \t]*(?:[$}\],#\n\r]|//|\Z))",
    re.DOTALL,
)
_CHANGED = re.compile(r"\t|\\[u/]")
_APPEND = re.compile(rf"{_QUIET}|(?P<append>\+=)", re.DOTALL)
_INCLUDE = re.compile(rf"{_QUIET}|(?P<include>\binclude\b\s*(?=\"|\w+\s*\())", re.DOTALL | re.IGNORECASE)
_parsing = threading.Lock()
"""pyhocon sets for all threads what its parser takes for blanks, so that one text is read at a time."""
_LEAF = ".ROOT_VALUE"
"""Suffix that Gobblin adds to a key with a value that is also the prefix of other keys, which HOCON does not allow."""


class HoconError(Exception):
    """The text cannot be read as HOCON."""

    def __init__(self, problem: str, line: int = 1) -> None:
        super().__init__(problem)
        self.line = line


def read_hocon(
    text: str, is_known: Callable[[str], bool], is_nearer: Callable[[str], bool]
) -> Iterator[tuple[str, str, int]]:
    """Yield (dotted key, text, line) for each value.

    Args:
        text: the content of the file.
        is_known: returns whether a name is a key of another file or an environment variable; optional references to
            other names are left out.
        is_nearer: returns whether a nearer file has a key too; references to this key then mean the nearer one.

    Raises:
        HoconError: the text cannot be read as HOCON.
        EnvironmentFaultError: pyhocon is not installed.
    """
    with optional_package("pyhocon"):
        import pyhocon  # noqa: PLC0415 - asked for where a job is written so
    for pattern, problem in (
        (_INCLUDE, "`include` is not followed; put common keys into the folder's file, or name a template"),
        (_APPEND, "`+=` is not followed, as the values before it would be lost; write the whole list"),
    ):
        if match := next((found for found in pattern.finditer(text) if found.lastgroup), None):
            raise HoconError(problem, text.count("\n", 0, match.start()) + 1)
    try:
        with _without_includes():
            tree = pyhocon.ConfigFactory.parse_string(_NUMBER.sub(_as_written, text), resolve=False)
        marks = pyhocon.ConfigTree()
        for match in _REFERENCE.finditer(text):
            name = match["name"]
            if name in tree:
                if is_nearer(name):
                    tree.put(name, _MARK.format(name))
            elif not match["optional"] or is_known(name):
                marks.put(name, _MARK.format(name))
        tree = tree.with_fallback(marks)
    except Exception as error:  # pyhocon raises pyparsing's errors, its own and many others
        problem = str(error).splitlines()[0]
        # If nearly anything may follow, pyparsing's message lists its whole grammar.
        shown = problem if len(problem) < 120 else "cannot be read from here on; are keys with dots in quotes?"
        raise HoconError(f"is not valid HOCON: {shown}", getattr(error, "lineno", 1)) from error
    for key, value in _leaves(tree, ""):
        if not (isinstance(value, str) and value == _MARK.format(key)):
            line = _line_of(text, key)
            yield key.removesuffix(_LEAF), _text(value, line), line


@contextmanager
def _without_includes() -> Iterator[None]:
    """Take `include` out of pyhocon's grammar: one that the pattern above does not see must read no file either."""
    with optional_package("pyhocon"):
        from pyhocon import config_parser  # noqa: PLC0415 - imported where a job is written so
        from pyparsing import NoMatch  # noqa: PLC0415 - as said above

    keyword = config_parser.Keyword

    def without_include(word: str, **options: Any) -> Any:
        return NoMatch() if word == "include" else keyword(word, **options)

    with _parsing:
        config_parser.Keyword = without_include
        try:
            yield
        finally:
            config_parser.Keyword = keyword


def referred_in(text: str) -> set[str]:
    """Return the keys that a text in HOCON refers to."""
    return {match["name"] for match in _REFERENCE.finditer(text)}


def has_optional(text: str) -> bool:
    """Return whether a HOCON text has optional references."""
    return any(match["optional"] for match in _REFERENCE.finditer(text))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = prefix + name.strip('"')
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.")
        elif value is not None:
            yield key, value


def _text(value: Any, line: int) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float() if "relativedelta(" not in str(value):
            return _MARKED.sub(_as_reference, str(value))
        case list() if all(isinstance(item, str | int | float) for item in value):
            return ",".join(_text(item, line) for item in value)
        case list():
            return json.dumps(value)
    raise HoconError(f"a value is read as {type(value).__name__}; put texts like 10 s in quotes", line)


def _as_written(found: re.Match[str]) -> str:
    """Return a number in quotes if reading it would change it, and a string with its escapes replaced."""
    number = found["number"]
    if number is None:
        is_plain = found[0][0] != '"' or found[0].startswith('"""')
        return found[0] if is_plain or not _CHANGED.search(found[0]) else _plain_string(found[0])
    if (number.isdigit() and number == str(int(number))) or number == str(float(number)):
        return found[0]
    return f'{found["before"]}"{number}"'


def _plain_string(quoted: str) -> str:
    try:
        text = str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted  # an escape that there is not: a fault of the reader
    for one, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(one, escape)
    return f'"{text}"'


def _as_reference(mark: re.Match[str]) -> str:
    """Return a reference as properties files write it; a name without a dot may be an environment variable."""
    name = mark[1]
    return f"${{{name}}}" if "." in name or ":" in name else f"${{any:{name}}}"


def _line_of(text: str, key: str) -> int:
    """Return the line in which a key probably is; pyhocon does not return lines."""
    parts = key.split(".")
    for begin in range(len(parts)):
        name = re.escape(".".join(parts[begin:]))
        if match := re.search(rf'(?:^|[\s{{,.])"?{name}"?\s*(?:[=:{{]|\+=)', text):
            return text.count("\n", 0, match.end()) + 1
    return 1
