"""The keys and texts of Gobblin's files, each with its file and line, before they are interpreted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.spec.explain import nearest
from gobblin_dagster.spec.gobblin.hocon_references import A_REFERENCE

ENCRYPTED = re.compile(r"ENC\(.*\)", re.DOTALL)
"""A value encrypted with Gobblin's master password."""

_REFERENCE = re.compile(r"\$\{(?P<name>[^{}]*)\}")
_NESTED = re.compile(r"\$\{[^{}]*\$\{[^{}]*\}[^{}]*\}?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_DEPTH = 50
"""The most references inside of referred values; more mean a circle."""
MAX_BROUGHT = 10_000_000
"""The most characters that references may bring into a job, with `A_REFERENCE` for each reference: 50 keys of two
references to the next one would bring 2^50 texts."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and its text, with file and line."""

    key: str
    text: str
    line: int
    file: str
    is_own: bool = True
    """True if it is in the job's file or in a file that this includes; False if it comes from a folder or a
    template."""
    is_list: bool = False
    """Whether it has several items in a properties file."""

    def fault(self, problem: str) -> SpecFault:
        """Return a fault of this entry; the entry's text is not part of it."""
        return SpecFault(self.key, problem, self.line, self.file)


@dataclass(slots=True)
class Entries:
    """All keys of a job; keys of nearer files win."""

    by_key: dict[str, Entry] = field(default_factory=dict)
    faults: list[SpecFault] = field(default_factory=list)
    referred: set[str] = field(default_factory=set)
    """Keys that other values refer to."""
    lists: frozenset[str] = frozenset()
    """Environment variables whose values hold a comma."""
    brought: int = 0
    """Characters that references brought so far."""

    def inherit(self, further: Iterable[Entry]) -> None:
        """Add entries of a file that is farther away; existing entries win."""
        for entry in further:
            self.by_key.setdefault(entry.key, entry)

    def resolve(self) -> None:
        """Replace references in all values: `${other.key}` by its text, `${env:NAME}` by `${NAME}` (replaced later).

        `${any:NAME}` means the key NAME if there is one, else the environment variable.
        """
        raw = dict(self.by_key)
        for key, entry in raw.items():
            problems: list[str] = []
            text = self._resolved(entry, raw, problems, MAX_DEPTH)
            self.faults += [entry.fault(problem) for problem in dict.fromkeys(problems)]
            self.by_key[key] = replace(entry, text=text)

    def _resolved(self, entry: Entry, raw: Mapping[str, Entry], problems: list[str], depth: int) -> str:
        text = entry.text

        def value(match: re.Match[str]) -> str:
            name = match["name"].strip()
            if name.startswith("any:"):
                name = name.removeprefix("any:")
                name = name if name in raw else f"env:{name}"
            if name.startswith("env:"):
                variable = name.removeprefix("env:")
                if not _ENV_NAME.fullmatch(variable):
                    problems.append(f"{match[0]!r} names no environment variable")
                return f"${{{variable}}}"
            if name.startswith(("sys:", "const:")):
                problems.append(f"{match[0]!r}: there are no system properties here; use ${{env:NAME}} or a key")
            elif name not in raw:
                problems.append(f"{match[0]!r} refers to a key that no file has; {nearest_key(name, raw)}")
            elif raw[name].is_list and raw[name].file == entry.file:
                self.referred.add(name)
                problems.append(
                    f"{match[0]!r} refers to a list, of which Gobblin takes the first item alone; write the item, or "
                    "the whole list"
                )
            elif depth == 0:
                problems.append(f"{match[0]!r} refers to itself in a circle")
            elif self.brought > MAX_BROUGHT:
                problems.append(f"the references in it, and before it, bring more than {MAX_BROUGHT:,} characters")
            else:
                self.brought += A_REFERENCE + len(raw[name].text)
                self.referred.add(name)
                return self._resolved(raw[name], raw, problems, depth - 1)
            return ""

        if nested := _NESTED.search(text):
            # Gobblin replaces neither of both, and goes on with the text as it stands.
            self.referred.update(match["name"] for match in _REFERENCE.finditer(text))
            problems.append(
                f"{nested[0][:60]!r} is a reference inside of a reference; write the name of the key itself"
            )
            return ""
        parts, end = [], 0
        for match in _REFERENCE.finditer(text):
            parts += [escaped(text[end : match.start()]), value(match)]
            end = match.end()
        return "".join([*parts, escaped(text[end:])])


def escaped(text: str) -> str:
    """Return plain text as a YAML job file writes it: a dollar sign before `$` or `{` is doubled."""
    return re.sub(r"\$(?=[${]|\Z)", "$$", text)


def nearest_key(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown key."""
    hint = nearest(name, known)
    return hint if hint.startswith("did") else "check its spelling"
