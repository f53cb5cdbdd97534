r"""Read HOCON as Gobblin's library reads it, key by key.

References to keys of the same file are replaced. Other references are returned as `${name}`, or as `${any:NAME}` if the
name may be a key or an environment variable; they are replaced when all files of a job were read. `include` is refused:
Gobblin does not find included files either; so is `+=`, whose earlier values may be in other files. `:` and `=` in a
text without quotes are refused as Gobblin's library does; the parser here would take `hdfs://a` for `hdfs:` and a
comment. References in quotes are text in HOCON, and certainly not meant as such: refused too.

Measured against Gobblin's library: docs/adr/0016.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.spec.gobblin.entries import MAX_BROUGHT
from gobblin_dagster.spec.gobblin.hocon_references import characters_brought

if TYPE_CHECKING:
    from hocon import HoconValue

_REFERENCE = re.compile(r"\$\{(?P<optional>\??)\s*(?P<name>[\w.-]+)\s*\}")
_MARK = "\ue000{}\ue001"
_MARKED = re.compile("\ue000(.*?)\ue001")
_TOKEN = re.compile(
    r'''(?P<quiet>""".*?"*"""|"(?:[^"\\\n]|\\.)*"|(?:\#|//)[^\n]*|\$\{(?:"(?:[^"\\\n]|\\.)*"|[^}$"\n])*\})'''
    r"""|(?P<include>\binclude\b\s*(?="|\w+\s*\())|(?P<append>\+=)|(?P<end>[\n,])|(?P<open>[\[{])|(?P<close>[\]}])"""
    r"|(?P<separator>[=:])",
    re.DOTALL | re.IGNORECASE,
)
"""What has a meaning outside of plain texts. Strings, comments and references are quiet: nothing in them has."""
_KEY = re.compile(r"(?:^|[\s{,])([^\s={}:,\[\]#+]+)\s*(?:[=:{]|\+=)")
_MOST_PARTS = 20
"""Parts of a dotted key that are looked for."""
_BRACED = re.compile(r"(?:\s|(?:#|//)[^\n]*)*\{")
"""The beginning of a file that is one object in braces."""
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
    """Yield (dotted key, text, line) for each value; the text of null is empty.

    Args:
        text: the content of the file.
        is_known: returns whether a name is a key of another file or an environment variable; optional references to
            other names are left out.
        is_nearer: returns whether a nearer file has a key too; references to this key then mean the nearer one.

    Raises:
        HoconError: the text cannot be read as HOCON.
        EnvironmentFaultError: the package `hocon-parser` is not installed.
    """
    with optional_package("hocon"):
        import hocon  # noqa: PLC0415 - asked for where a job is written so
    tokens = list(_TOKEN.finditer(text))
    _refuse_odd(text, tokens)
    references = [found for token in tokens if (found := _REFERENCE.fullmatch(token[0]))]
    nearer = {found["name"] for found in references if is_nearer(found["name"])}
    others = {found["name"] for found in references if not found["optional"] or is_known(found["name"])}
    try:
        # The parser looks for what the file lacks among the variables of the environment.
        marks = {name: _MARK.format(name) for name in others}
        whole = _with_last(text, tokens, nearer)
        if characters_brought(whole, _TOKEN.finditer(whole), MAX_BROUGHT) > MAX_BROUGHT:
            raise HoconError(f"its references bring more than {MAX_BROUGHT:,} characters")
        tree = hocon.parse(whole, env=marks, read_file=_refuse_file)
    except (hocon.ParseError, hocon.ConfigError, hocon.ResolveError, RecursionError) as error:
        problem = str(error).splitlines()[0]
        raise HoconError(f"is not valid HOCON: {problem[:200]}", getattr(error, "line", 1)) from error
    lines = _lines_of_keys(text)
    for key, value in _leaves(cast("HoconValue", tree.get_value("")), ()):
        if value != _MARK.format(key):
            line = _line_of(lines, key)
            yield key.removesuffix(_LEAF), _with_references(value, line), line


def _refuse_odd(text: str, tokens: Sequence[re.Match[str]]) -> None:
    """Raise HoconError for what is not followed here, and for `:` and `=` in a text without quotes."""
    around: list[str] = []
    begin: int | None = None  # where the value of the key begins that was read last
    for found in tokens:
        problem = ""
        match found.lastgroup:
            case "include":
                problem = "`include` is not followed; put common keys into the folder's file, or name a template"
            case "append":
                problem = "`+=` is not followed, as the values before it would be lost; write the whole list"
            case "separator" if begin is not None or (around and around[-1] == "["):
                mark = f"`{found[0]}`"
                problem = f'a text with {mark} needs quotes, as "hdfs://host/folder", or no value is before {mark}'
            case "separator":
                begin = found.end()
            case "open":
                around.append(found[0])
                begin = None
            case "close":
                around = around[:-1]
                begin = None
            case "end" if found[0] == "," or (begin is not None and text[begin : found.start()].strip()):
                begin = None
            case "quiet" if found[0][0] in "#/" and begin is not None and not text[begin : found.start()].strip():
                begin = found.end()
        if problem:
            raise HoconError(problem, text.count("\n", 0, found.start()) + 1)


def _refuse_file(path: str) -> str:
    raise HoconError(f"`include` is not followed, and so {path} is not read")


def _with_last(text: str, tokens: Sequence[re.Match[str]], nearer: set[str]) -> str:
    """Return a text that sets the keys of nearer files at its end, so that its references mean these."""
    last = "".join(f'\n{name} = "{_MARK.format(name)}"' for name in sorted(nearer))
    closes = [found.start() for found in tokens if found.lastgroup == "close"]
    at = closes[-1] if _BRACED.match(text) and closes else len(text)
    return f"{text[:at]}{last}\n{text[at:]}" if last else text


def referred_in(text: str) -> set[str]:
    """Return the keys that a text in HOCON refers to."""
    return {match["name"] for match in _REFERENCE.finditer(text)}


def has_optional(text: str) -> bool:
    """Return whether a HOCON text has optional references."""
    return any(match["optional"] for match in _REFERENCE.finditer(text))


def _leaves(value: HoconValue, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of each value below a path; the path of the whole is empty."""
    if value.kind == "object":
        for name, one in value.fields.items():
            yield from _leaves(one, (*path, name))
    elif value.kind == "scalar":
        yield ".".join(path), "" if value.value_type == "null" else value.raw
    else:
        texts = [one.raw for one in value.items if one.kind == "scalar" and one.value_type != "null"]
        is_plain = len(texts) == len(value.items)
        yield ".".join(path), ",".join(texts) if is_plain else json.dumps(_plain(value))


def _plain(value: HoconValue) -> Any:
    """Return a value as JSON has it."""
    if value.kind == "object":
        return {name: _plain(one) for name, one in value.fields.items()}
    if value.kind == "array":
        return [_plain(one) for one in value.items]
    if value.value_type == "string":
        return value.raw
    try:
        return json.loads(value.raw)
    except ValueError:
        return value.raw  # as 007


def _with_references(value: str, line: int) -> str:
    if "${" in value:
        raise HoconError(
            "a reference in quotes is text in HOCON: end the quotes before `${`, and begin them behind `}`", line
        )
    return _MARKED.sub(_as_reference, value)


def _as_reference(mark: re.Match[str]) -> str:
    """Return a reference as properties files write it; a name without a dot may be an environment variable."""
    name = mark[1]
    return f"${{{name}}}" if "." in name else f"${{any:{name}}}"


def _lines_of_keys(text: str) -> dict[str, int]:
    """Return the line in which each key, and each end of a dotted key, probably is first; the parser tells no lines."""
    found: dict[str, int] = {}
    line, counted = 1, 0
    for match in _KEY.finditer(text):
        line, counted = line + text.count("\n", counted, match.start(1)), match.start(1)
        name = match[1].replace('"', "")
        for _ in range(_MOST_PARTS):
            found.setdefault(name, line)
            _, dot, name = name.partition(".")
            if not dot:
                break
    return found


def _line_of(lines: dict[str, int], key: str) -> int:
    parts = key.split(".")
    ends = (".".join(parts[begin:]) for begin in range(min(len(parts), _MOST_PARTS)))
    return next((lines[end] for end in ends if end in lines), 1)
