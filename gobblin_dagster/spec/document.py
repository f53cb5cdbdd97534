"""Read a YAML file as plain data, with the line of each part and all faults of its syntax.

The rules are those of YAML 1.2's core schema: only `true` and `false` are booleans, dates and times stay text, and a
leading zero does not make a number octal. Anchors, aliases and `<<` work; duplicate keys and tags outside of the core
are refused. References to environment variables are replaced in values, not in keys. A plain value that is one whole
reference is parsed as YAML after it was replaced, so `port: ${PORT}` is a number; in quotes it stays text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.spec.env import Expanded, expand

Loc: TypeAlias = tuple[str | int, ...]
"""Keys and list indexes from the root of a document to one of its parts."""

MAX_NODES = 100_000
"""The most parts of a document, each use of an alias counted: nested aliases of a few lines could fill the memory."""

_SHORTEST_SECRET = 4
"""Values with fewer characters are not hidden in messages: parts of ordinary words would be replaced."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "merge": re.compile(r"<<$"),
    "null": re.compile(r"(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
    "float": re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"),
}
"""Patterns of plain scalars that are not text."""


_UNQUOTED = re.compile(r"[\[{][^\"']*?(\$\{[^}\"']*\}?)")
"""A reference without quotes inside `{...}` or `[...]`, in which YAML ends plain text at a brace."""


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the core rules of YAML 1.2. Only its nodes are used; it creates no Python objects."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Join surrogate pairs, which JSON writes as two escapes; PyYAML reads each half alone."""
        node = super().compose_scalar_node(anchor)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise yaml.MarkedYAMLError(problem="half a unicode character", problem_mark=node.start_mark) from None
        return node


@dataclass(slots=True)
class Document:
    """The content of a file, with everything that messages need."""

    data: Any = None
    """Mappings, lists and scalars, with references replaced; None if the file is empty or not YAML."""
    lines: dict[Loc, int] = field(default_factory=dict)
    """Line of each part, counted from 1: the line of its key, or of the item in a list."""
    faults: list[tuple[Loc, str, int]] = field(default_factory=list)
    """Place, problem and line of each fault of syntax or references."""
    written: dict[Loc, str] = field(default_factory=dict)
    """The text in the file of values that held references."""
    values: dict[Loc, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """(reference, value) of the environment variables that were read, by place."""
    names: dict[Loc, tuple[str, ...]] = field(default_factory=dict)
    """Environment variables that references name, by place, whether they are set or not."""
    found: list[SpecFault] = field(default_factory=list)
    """Faults in other files that this document includes."""
    broken: set[Loc] = field(default_factory=set)
    """Places of such faults; no further faults are reported there."""
    warnings: list[SpecFault] = field(default_factory=list)
    """Parts of the file that are ignored on purpose."""

    def line(self, loc: Loc) -> int:
        """Return the line of a part; if it has none, that of the nearest part around it."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def fault(self, loc: Loc, problem: str, line: int | None = None) -> SpecFault:
        """Return a fault of a part; pass `line` if it is not the line of the part."""
        return SpecFault(show_loc(loc), problem, line or self.line(loc))

    def hide_values(self, loc: Loc, text: str) -> str:
        """Return a message about a part with the values of environment variables replaced by their references."""
        for place, values in self.values.items():
            if place[: len(loc)] == loc or loc[: len(place)] == place:
                for reference, value in values:
                    text = _hidden(text, value, reference)
        return text


def is_meant_as_file(path: Path) -> bool:
    """Return True for a file, and for what was meant as one, so that reading it says what is wrong.

    That is a link to nothing, a pipe, or a folder `x.yaml`: systems of containers make one in place of a file that is
    not there.
    """
    # Emacs marks a file that is being edited by a link to nothing, `.#orders.yaml`.
    if path.is_file() or path.name.startswith("."):
        return path.is_file()
    return path.suffix.lower() in {".yaml", ".yml"} if path.is_dir() else os.path.lexists(path)


def show_loc(loc: Loc) -> str:
    """Return a place as text for people, e.g. `fork.branches[1].writer.type`.

    Example:
        >>> show_loc(("fork", "branches", 1, "writer", "type"))
        'fork.branches[1].writer.type'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def plain_scalars() -> dict[str | None, list[tuple[str, re.Pattern[str]]]]:
    """Return the patterns of plain scalars that are not text, in PyYAML's form."""
    return {None: [(_TAG + name, pattern) for name, pattern in _PLAIN.items()]}


def _hidden(text: str, secret: str, reference: str) -> str:
    """Replace a secret by its reference, also if `repr` wrote it or only its beginning is in the text."""
    forms = [form for form in {secret, repr(secret)[1:-1]} if len(form) >= _SHORTEST_SECRET]
    parts, at = [], 0
    while at < len(text):
        length = max((_common(text, at, form) for form in forms), default=0)
        if length >= _SHORTEST_SECRET:
            parts.append(reference)
            at += length
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts)


def _common(text: str, at: int, form: str) -> int:
    """Return how many characters of the beginning of `form` the text has from `at` on."""
    length = 0
    while length < len(form) and text.startswith(form[length], at + length):
        length += 1
    return length


_Loader.yaml_implicit_resolvers = plain_scalars()


class _FastLoader(getattr(yaml, "CSafeLoader", _Loader)):  # type: ignore[misc]  # libyaml is not built everywhere
    """libyaml's parser, ten times as fast. It does not know pairs of surrogates, and describes faults otherwise."""


_FastLoader.yaml_implicit_resolvers = plain_scalars()


_DIFFERENT = re.compile(rb"[^\n\r -~]|[?\\]|---|[|>][-+0-9]*#")
"""What libyaml reads otherwise than PyYAML, or may: `?`, escapes, tabs, other alphabets, markers of documents, and a
comment right behind the sign of a block."""

_MANY = 1000


def _compose(content: bytes) -> yaml.Node | None:
    """Return the root node; raises yaml.YAMLError, RecursionError."""
    # libyaml's time grows with the square of open brackets.
    if not _DIFFERENT.search(content) and content.count(b"[") + content.count(b"{") < _MANY:
        try:
            return yaml.compose(content, Loader=_FastLoader)
        except yaml.YAMLError:
            pass  # PyYAML's own parser describes the fault
    # _Loader is a SafeLoader, and its constructors are not used.
    return yaml.compose(content, Loader=_Loader)


def read_document(content: bytes, environ: Mapping[str, str] | None, *, has_defaults: bool = True) -> Document:
    """Read YAML; faults are collected in the document, never raised.

    Args:
        content: the file.
        environ: environment variables for references; None: references stay as they are written.
        has_defaults: as in `expand`.
    """
    document = Document()
    try:
        root = _compose(content)
        if root is not None:
            _Builder(document, environ, has_defaults).build(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = content.split(b"\n")[mark.line] if mark and mark.line <= content.count(b"\n") else b""
        document.faults.append(((), f"is not valid YAML: {_syntax(error, line)}", mark.line + 1 if mark else 1))
    except yaml.YAMLError as error:
        document.faults.append(((), f"is not readable as text: {str(error).splitlines()[0]}", 1))
    except RecursionError:
        return Document(faults=[((), "is nested too deeply", 1)])
    return document


def _syntax(error: yaml.MarkedYAMLError, line: bytes = b"") -> str:
    """Return PyYAML's problem with a hint about its usual cause; `line` is the line of the problem."""
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in problem:
        return f"{problem}; indent with spaces, not tabs"
    if reference := _UNQUOTED.search(line.decode(errors="replace")):
        return f'{problem}; inside {{...}} and [...] a reference needs quotes: "{reference[1]}"'
    if "got '{'" in problem:
        return f"{problem}; inside {{...}} and [...] a text with braces needs quotes"
    if "mapping values are not allowed" in problem:
        return f"{problem}; check the indentation, or put the value in quotes where it holds ': '"
    return problem


class _TooLargeError(Exception):
    """The document has more parts than `MAX_NODES`."""


class _Builder:
    """Visits the nodes of one document and fills a `Document`."""

    def __init__(self, document: Document, environ: Mapping[str, str] | None, has_defaults: bool) -> None:
        self._document = document
        self._environ = environ
        self._has_defaults = has_defaults
        self._open: set[int] = set()
        self._count = 0

    def build(self, root: yaml.Node) -> None:
        self._document.lines[()] = _line(root)
        try:
            self._document.data = self._value(root, ())
        except _TooLargeError:
            self._document.faults.append(((), f"has more than {MAX_NODES} parts, aliases counted each time", 1))

    def _value(self, node: yaml.Node, loc: Loc) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise _TooLargeError
        if id(node) in self._open:
            return self._fault(loc, "an alias refers to a part that holds it")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, loc)
        self._open.add(id(node))
        try:
            if node.tag == _TAG + "map" and isinstance(node, yaml.MappingNode):
                return self._mapping(node, loc)
            if node.tag == _TAG + "seq" and isinstance(node, yaml.SequenceNode):
                return self._sequence(node, loc)
        finally:
            self._open.discard(id(node))
        return self._fault(loc, f"tag {node.tag!r} is not allowed; write plain mappings, lists and values")

    def _sequence(self, node: yaml.SequenceNode, loc: Loc) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._document.lines[(*loc, index)] = _line(item)
            items.append(self._value(item, (*loc, index)))
        return items

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        own: dict[str, int] = {}
        for key, value in sorted(
            node.value, key=lambda pair: pair[0].tag != _TAG + "merge"
        ):  # own keys win over merged
            if key.tag == _TAG + "merge":
                for name, item in self._merged(value, loc):
                    mapping.setdefault(name, item)
            elif not isinstance(key, yaml.ScalarNode):
                self._fault(loc, "a key must be a name, got a list or mapping", _line(key))
            elif key.value in own:
                where = (*loc, key.value)
                self._fault(where, f"the key appears twice, first in line {own[key.value]}", _line(key))
            else:
                own[key.value] = _line(key)
                where = (*loc, key.value)
                self._document.lines[where] = _line(key)
                mapping[key.value] = self._value(value, where)
        return mapping

    def _merged(self, node: yaml.Node, loc: Loc) -> Iterator[tuple[str, Any]]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for part in parts:
            value = self._value(part, loc)
            if isinstance(value, dict):
                yield from value.items()
            else:
                self._fault(loc, "'<<' takes a mapping or a list of mappings", _line(node))

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> Any:
        if self._environ is None:
            expanded = Expanded(node.value)
        else:
            expanded = expand(node.value, self._environ, has_defaults=self._has_defaults)
        for problem in expanded.problems:
            self._fault(loc, problem, _line(node))
        tag = node.tag
        if expanded.names:
            self._document.names[loc] = expanded.names
        if expanded.text != node.value:
            self._document.written[loc] = node.value
            self._document.values[loc] = expanded.values
            # Only a plain reference is parsed by its value; quotes mean text.
            if expanded.is_whole and not node.style:
                tag = _plain_tag(expanded.text)
        try:
            return _scalar(tag, expanded.text)
        except ValueError:
            shown = str(node.value)
            if tag == _TAG + "int" and _PLAIN["int"].match(expanded.text):
                problem = (
                    f"a number of {len(expanded.text):,} digits is too long; write it in quotes if a text is meant"
                )
                return self._fault(loc, problem, _line(node))
            return self._fault(loc, f"{shown[:60]!r} does not fit its tag {tag!r}; leave the tag out", _line(node))

    def _fault(self, loc: Loc, problem: str, line: int | None = None) -> None:
        self._document.faults.append((loc, problem, line or self._document.line(loc)))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _plain_tag(text: str) -> str:
    for name, pattern in _PLAIN.items():
        if name != "merge" and pattern.match(text):
            return _TAG + name
    return _TAG + "str"


def _scalar(tag: str, text: str) -> Any:
    """Return the value of a scalar; raises ValueError if the tag is unknown or does not fit."""
    match tag.removeprefix(_TAG):
        case "str" | "merge":
            return text
        case "null":
            return None
        case "bool" if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case "int":
            number = int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
            str(number)  # Python reads longer numbers in these bases than it writes
            return number
        case "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    raise ValueError(tag)
