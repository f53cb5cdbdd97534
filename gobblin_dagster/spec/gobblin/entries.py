"""What stands in Gobblin's files before it means anything: keys and texts, each with the place it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.spec.explain import nearest

SECRET_KEY = re.compile(r"(?i)password|passwd|secret|credential|token|api\.?key|private\.?key|\bencrypt\.")
"""Keys whose values are never shown, and must come from the environment."""
ENCRYPTED = re.compile(r"ENC\(.*\)", re.DOTALL)
"""A value encrypted with Gobblin's master password."""

_REFERENCE = re.compile(r"\$\{(?P<name>[^{}]*)\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_DEPTH = 50
"""References inside referred values; more are a circle."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's text and where it stands."""

    key: str
    text: str
    line: int
    file: str
    is_own: bool = True
    """Whether it stands in the job's file or one that it includes; else it is inherited from a folder or a template."""

    def fault(self, problem: str) -> SpecFault:
        """Return a fault of this entry; its text is not repeated."""
        return SpecFault(self.key, problem, self.line, self.file)


@dataclass(slots=True)
class Entries:
    """All keys of a job, nearest file first, and what is wrong with the writing."""

    by_key: dict[str, Entry] = field(default_factory=dict)
    faults: list[SpecFault] = field(default_factory=list)
    referred: set[str] = field(default_factory=set)
    """Keys that other values refer to."""

    def inherit(self, further: Iterable[Entry]) -> None:
        """Add entries of a file that is farther away: what is there already wins."""
        for entry in further:
            self.by_key.setdefault(entry.key, entry)

    def resolve(self) -> None:
        """Replace references in all values: `${other.key}` by its text, `${env:NAME}` by `${NAME}`, which is read later.

        `${any:NAME}` is the one if there is such a key, else the other.
        """
        raw = dict(self.by_key)
        for key, entry in raw.items():
            problems: list[str] = []
            text = self._resolved(entry.text, raw, problems, MAX_DEPTH)
            self.faults += [entry.fault(problem) for problem in dict.fromkeys(problems)]
            self.by_key[key] = Entry(key, text, entry.line, entry.file, entry.is_own)

    def _resolved(self, text: str, raw: Mapping[str, Entry], problems: list[str], depth: int) -> str:
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
                problems.append(f"{match[0]!r} refers to a key that is nowhere; {nearest_key(name, raw)}")
            elif depth == 0:
                problems.append(f"{match[0]!r} refers to itself in a circle")
            else:
                self.referred.add(name)
                return self._resolved(raw[name].text, raw, problems, depth - 1)
            return ""

        parts, end = [], 0
        for match in _REFERENCE.finditer(text):
            parts += [escaped(text[end : match.start()]), value(match)]
            end = match.end()
        return "".join([*parts, escaped(text[end:])])


def escaped(text: str) -> str:
    """Return plain text as a job file writes it, where `$$` stands for a dollar sign before another or a brace."""
    return re.sub(r"\$(?=[${]|\Z)", "$$", text)


def nearest_key(name: str, known: Iterable[str]) -> str:
    """Return a hint for a key that is not known."""
    hint = nearest(name, known)
    return hint if hint.startswith("did") else "check its spelling"
