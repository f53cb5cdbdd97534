"""Read the file of a Gobblin job, the files that it includes, and the common files of its folders and templates.

`.pull`, `.job` and `.properties` are Java properties, `.conf`, `.json` and `.configuration` are HOCON. Each folder
from the jobs folder down to the job's may hold one `.properties` or `.configuration` file for all jobs below it. The
nearest file wins: job > its folder > ... > the jobs folder > templates. References are replaced after all files were
read, so that a common file may refer to a key of the job.

Source: gobblin-core `PullFileLoader`, `ResourceBasedJobTemplate`. Differs: two common files in a folder, one that is a
link to nothing, a key that appears twice in a file, and a missing key that a template requires are faults of the job;
all faults are reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gobblin_dagster.core.errors import EnvironmentFaultError, SpecFault
from gobblin_dagster.core.utils.regular_file import read_regular_text
from gobblin_dagster.spec.document import is_meant_as_file
from gobblin_dagster.spec.gobblin.entries import Entries, Entry
from gobblin_dagster.spec.gobblin.hocon import HoconError, has_optional, read_hocon, referred_in
from gobblin_dagster.spec.gobblin.properties import PropertiesError, read_properties

PROPERTIES = frozenset({".pull", ".job"})
HOCON = frozenset({".conf", ".json"})
COMMON = frozenset({".properties", ".configuration"})
MAX_DEPTH = 20
"""The deepest nesting of included files or inherited templates; more means a circle."""

_INCLUDES = ("include", "includeoptional")
_TEMPLATES = ("gobblin.template.uris", "gobblin.template.uri", "job.template")
_INHERIT = "gobblin.template.inherit"
_REQUIRED = "gobblin.template.required_attributes"
_SECURE = "gobblin.template.isSecure"
_OVERRIDABLE = "gobblin.template.secure.overridableProperties"


def read_entries(
    path: Path,
    root: Path,
    shown: Callable[[Path], str],
    environ: Mapping[str, str],
    refused: Callable[[Path], str] = lambda _: "",
) -> Entries:
    """Read a job's file and all that it inherits, and replace references.

    An optional reference in HOCON is left out if no file has its key, so files with such references are read twice.

    Args:
        path: the job's file.
        root: the jobs folder: the farthest folder whose common file is read, and the folder of templates.
        shown: returns the name of a file for messages.
        environ: environment variables, to know which optional references have a value.
        refused: returns why a file must not be read, or an empty text; default: all may.
    """
    entries, has_optional = _read(path, root, shown, environ, frozenset(), refused)
    if has_optional:
        entries, _ = _read(path, root, shown, environ, frozenset(entries.by_key), refused)
    entries.resolve()
    entries.lists = frozenset(name for name, value in environ.items() if "," in value)
    return entries


def _read(
    path: Path,
    root: Path,
    shown: Callable[[Path], str],
    environ: Mapping[str, str],
    known: Collection[str],
    refused: Callable[[Path], str],
) -> tuple[Entries, bool]:
    """Return all keys with their references not replaced, and whether there are optional references."""
    reading = _Reading(root, shown, environ, known, refused)
    entries = reading.entries
    entries.inherit(reading.file(path))
    for folder in _folders(path.parent, root):
        entries.inherit(_inherited(reading.common(folder)))
    reading.add_templates(entries)
    entries.faults += reading.faults
    entries.referred |= reading.referred
    return entries, reading.has_optional


def read_template_entries(path: Path, root: Path, shown: Callable[[Path], str]) -> tuple[Entries, dict[str, Entry]]:
    """Read a template and all that it inherits; references stay as they are.

    Args:
        path: the template's file, in `root` or below it.
        root: the folder of templates.
        shown: returns the name of a file for messages.

    Returns:
        The keys, and those that must be set, each with the entry that asks for it.
    """

    def refused(path: Path) -> str:
        is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
        return "" if is_inside else "is outside of the folder of templates"

    required: dict[str, Entry] = {}
    reading = _Reading(root, shown, {}, (), refused)
    reading.template(path, required)
    # Read again: now it is known which keys are set later, and which optional references mean a key that is there.
    known = {*reading.entries.by_key, *required}
    defaults = [reading.entries.by_key[name] for name in required if name in reading.entries.by_key]
    reading = _Reading(root, shown, {}, known, refused, frozenset(required))
    reading.template(path, required)
    reading.entries.inherit(defaults)
    reading.entries.faults += reading.faults
    reading.entries.referred |= reading.referred
    return reading.entries, required


def _folders(folder: Path, root: Path) -> list[Path]:
    """Return the folders whose common files are read, nearest first.

    Only the file's own folder if it is outside of `root`.
    """
    here, top = folder.resolve(), root.resolve()
    depth = len(here.relative_to(top).parts) if here.is_relative_to(top) else 0
    return [here, *here.parents][: depth + 1]


def _inherited(entries: Iterator[Entry]) -> Iterator[Entry]:
    for entry in entries:
        yield replace(entry, is_own=False)


class _Reading:
    """Reads files and collects their faults."""

    def __init__(
        self,
        root: Path,
        shown: Callable[[Path], str],
        environ: Mapping[str, str],
        known: Collection[str],
        refused: Callable[[Path], str],
        set_later: frozenset[str] = frozenset(),
    ) -> None:
        self.entries = Entries()
        """Entries of nearer files; the caller adds to it."""
        self.has_optional = False
        self.faults: list[SpecFault] = []
        self.referred: set[str] = set()
        """Keys that values in HOCON refer to."""
        self._root = root
        self._shown = shown
        self._refused = refused
        self._names = {*known, *environ}
        self._set_later = set_later
        """Keys whose own values may be replaced after the reading, so that references to them must stay."""

    def file(self, path: Path, depth: int = MAX_DEPTH) -> Iterator[Entry]:
        """Yield the keys of a file and of the files that it includes."""
        if problem := self._refused(path):
            self.faults.append(SpecFault("", problem, 1, self._shown(path)))
            return
        try:
            text = read_regular_text(path, "utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            problem = error.strerror or str(error) if isinstance(error, OSError) else f"is not UTF-8: {error}"
            self.faults.append(SpecFault("", f"cannot be read: {problem}", 1, self._shown(path)))
            return
        if path.suffix.lower() in PROPERTIES | {".properties"}:
            yield from self._properties(path, text, depth)
            return
        self.referred |= referred_in(text)
        self.has_optional |= has_optional(text)
        try:
            for key, value, line in read_hocon(text, self._names.__contains__, self._is_nearer):
                yield Entry(key, value, line, self._shown(path))
        except HoconError as error:
            self.faults.append(SpecFault("", str(error), error.line, self._shown(path)))
        except EnvironmentFaultError as error:
            self.faults.append(SpecFault("", f"cannot be read: {error}", 1, self._shown(path)))

    def _is_nearer(self, key: str) -> bool:
        return key in self.entries.by_key or key in self._set_later

    def common(self, folder: Path) -> Iterator[Entry]:
        """Yield the keys that a folder gives to all jobs in it and below."""
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in COMMON and is_meant_as_file(path))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            problem = f"a folder may have one file with common keys, got {names}; put all keys into one of them"
            self.faults.append(SpecFault("", problem, 1, self._shown(found[1])))
        for path in found[:1]:
            yield from self.file(path)

    def template(self, path: Path, required: dict[str, Entry]) -> None:
        """Add the keys of a template's file and of all that it inherits, and the keys that they need to `required`."""
        name = path.resolve().relative_to(self._root.resolve()).as_posix()
        asked = Entry("", name, 1, self._shown(path))
        self.entries.inherit(self._template(name, asked, required, MAX_DEPTH))
        self._inherit_templates(self.entries, required)

    def _inherit_templates(self, entries: Entries, required: dict[str, Entry]) -> None:
        for key in _TEMPLATES:
            if entry := entries.by_key.get(key):
                for name in reversed(_names(entry)):
                    found = list(_inherited(self._template(name, entry, required, MAX_DEPTH)))
                    self._secure(name, found, entries)
                    entries.inherit(found)

    def _secure(self, name: str, template: Sequence[Entry], entries: Entries) -> None:
        """Keep only those keys that a secure template lets a job set; keys of the job's own file are faults."""
        own = {entry.key: entry for entry in template}
        if _SECURE not in own or own[_SECURE].text.lower() != "true":
            return
        allowed = _names(own.get(_OVERRIDABLE))
        for key, entry in list(entries.by_key.items()):
            if key in allowed or key in _TEMPLATES:
                continue
            del entries.by_key[key]
            if entry.is_own:
                known = ", ".join(sorted(allowed)) or "no key"
                self.faults.append(entry.fault(f"the template {name!r} is secure and allows {known[:200]}; remove it"))

    def add_templates(self, entries: Entries) -> None:
        """Add the keys of templates; later templates win over earlier ones, and over those that they inherit."""
        required: dict[str, Entry] = {}
        self._inherit_templates(entries, required)
        for name, entry in required.items():
            if name not in entries.by_key:
                self.faults.append(entry.fault(f"the template needs {name!r}, which no file has; add it to the job"))

    def _template(self, name: str, asked: Entry, required: dict[str, Entry], depth: int) -> Iterator[Entry]:
        scheme, _, rest = name.rpartition("://")
        path = self._root / rest.lstrip("/")
        if not depth:
            self.faults.append(asked.fault(f"the template {name!r} inherits itself in a circle"))
            return
        if scheme.lower() not in ("", "resource", "fs") or not path.is_file():
            problem = f"there is no template {name!r}; expected the file {self._shown(path)}"
            self.faults.append(asked.fault(problem))
            return
        own = {entry.key: entry for entry in self.file(path)}
        parents = own.pop(_INHERIT, None)
        if needed := own.pop(_REQUIRED, None):
            required.update(dict.fromkeys(_names(needed), needed))
            self.referred.update(_names(needed))
        yield from own.values()
        for parent in reversed(_names(parents)):
            yield from self._template(parent, parents or asked, required, depth - 1)

    def _properties(self, path: Path, text: str, depth: int) -> Iterator[Entry]:
        seen: dict[str, Entry] = {}
        try:
            for item in read_properties(text):
                entry = Entry(item.key, item.text, item.line, self._shown(path), is_list=item.is_list)
                if "$${" in item.text:
                    self.faults.append(entry.fault("`$${` makes a reference text in Gobblin; write no reference"))
                is_include = item.key in _INCLUDES
                for one in self._included(path, entry, depth) if is_include else [entry]:
                    first = seen.setdefault(one.key, one)
                    if first is one:
                        yield one
                        continue
                    place = f"line {first.line}" + (f" of {first.file}" if first.file != one.file else "")
                    problem = f"the key appears twice, first in {place}; Gobblin joins both with a comma"
                    self.faults.append(one.fault(f"{problem}: write it so"))
        except PropertiesError as error:
            problem = f"is not a valid properties file: {error}"
            self.faults.append(SpecFault("", problem, error.line, self._shown(path)))

    def _included(self, path: Path, entry: Entry, depth: int) -> Iterator[Entry]:
        for name in _names(entry):
            target = path.parent / name
            if not depth:
                self.faults.append(entry.fault(f"{name!r} is included in a circle"))
            elif target.is_file():
                yield from self.file(target, depth - 1)
            elif entry.key == "include":
                self.faults.append(
                    entry.fault(f"there is no file {self._shown(target)}; use `includeoptional` if it may be missing")
                )


def _names(entry: Entry | None) -> list[str]:
    return [name.strip() for name in entry.text.split(",") if name.strip()] if entry else []
