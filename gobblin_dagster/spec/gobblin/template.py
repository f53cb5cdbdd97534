"""Read Gobblin's templates: files of keys in which some are left for the user of the template to set.

A template names the keys that it needs in `gobblin.template.required_attributes`, and refers to keys that it does not
have. It inherits from others by `gobblin.template.uri`, `gobblin.template.uris` and `gobblin.template.inherit`.

Source: gobblin-runtime `HOCONInputStreamFlowTemplate`, `ResourceBasedJobTemplate`. Differs: only keys that the template
asks for can be set, and what was set cannot refer to other keys or to the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.spec.document import Loc
from gobblin_dagster.spec.gobblin.document import to_yaml
from gobblin_dagster.spec.gobblin.entries import Entries, Entry
from gobblin_dagster.spec.gobblin.files import read_template_entries
from gobblin_dagster.spec.gobblin.job import GobblinJob, convert
from gobblin_dagster.spec.job import JobSpec

_REFERENCE = re.compile(r"\$\{\s*(?:any:)?([^{}:?]+?)\s*\}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
"""A name that means a variable of the environment, if it has no key; HOCON has no other sign for it."""
_WRITTEN = re.compile(r"\$\$|\$\{(?P<name>[^{}]*)\}")
"""What `Entries.resolve` leaves in a text: doubled dollar signs, and references to variables."""


@dataclass(frozen=True, slots=True)
class GobblinTemplate:
    """A template with all that it inherits."""

    entries: Mapping[str, Entry]
    """Its keys, references not replaced."""
    referred: frozenset[str]
    """Keys that are only there to be referred to."""
    parameters: Mapping[str, str | None]
    """Keys that may be set, with the template's own values; None: it has none, and the key must be set."""
    faults: tuple[SpecFault, ...]

    def job(self, values: Mapping[str, str]) -> GobblinJob:
        """Return the job that the template becomes, or its faults; `values` are texts without references, by key."""
        return _converted(self._entries(values))

    def keys(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return all keys with `values` in them, as Gobblin reads them; variables stay references, `${env:NAME}`."""
        entries = self._entries(values)
        entries.resolve()
        return {
            name: _WRITTEN.sub(_as_gobblins, entry.text)
            for name, entry in entries.by_key.items()
            if not name.startswith("gobblin.template.")
        }

    def _entries(self, values: Mapping[str, str]) -> Entries:
        entries = Entries(dict(self.entries), list(self.faults), set(self.referred) | set(values))
        for name, value in values.items():
            entries.by_key[name] = Entry(name, value, 1, "the flow")
        return entries

    def places_of(self, job: GobblinJob, name: str) -> list[Loc]:
        """Return the places of a job into which a parameter's value goes, alone or inside of a text."""
        keys = {name}
        while more := {key for key, entry in self.entries.items() if keys & _referred_by(entry.text)} - keys:
            keys |= more
        return [loc for loc, entry in job.origins.items() if entry.key in keys]


def read_template(path: Path, root: Path, shown: Callable[[Path], str]) -> GobblinTemplate:
    """Read a template of Gobblin's; faults are collected, never raised.

    Args:
        path: the file; `.pull`, `.job` and `.properties` are Java properties, all others HOCON.
        root: the folder of templates, from which names of inherited ones start.
        shown: returns the name of a file for messages.
    """
    entries, required = read_template_entries(path, root, shown)
    wanted: dict[str, str | None] = {}
    for name in required:
        entry = entries.by_key.get(name)
        wanted[name] = entry.text if entry and entry.text and not _referred_by(entry.text) else None
    for entry in entries.by_key.values():
        unset = _referred_by(entry.text) - set(entries.by_key) - set(wanted)
        wanted.update(dict.fromkeys(sorted(name for name in unset if not _VARIABLE.fullmatch(name))))
    return GobblinTemplate(entries.by_key, frozenset(entries.referred), wanted, tuple(entries.faults))


def job_of_keys(keys: Mapping[str, str], where: str) -> GobblinJob:
    """Return the job that keys of Gobblin's become, or its faults; keys that are not known count as referred to.

    Services of Gobblin's send many that tell of the flow.

    Args:
        keys: texts by key; `${other.key}` and `${env:NAME}` are references.
        where: names the keys' origin in faults.
    """
    return _converted(Entries({name: Entry(name, text, 1, where) for name, text in keys.items()}, referred=set(keys)))


def _converted(entries: Entries) -> GobblinJob:
    entries.resolve()
    converted = convert(entries)
    converted.data = {name: converted.data[name] for name in JobSpec.model_fields if name in converted.data}
    return converted


def _as_gobblins(found: re.Match[str]) -> str:
    return "$" if found["name"] is None else f"${{env:{found['name']}}}"


def job_yaml(job: GobblinJob) -> str:
    """Return a converted job as YAML."""
    return to_yaml(job.data)


def _referred_by(text: str) -> set[str]:
    return {found[1] for found in _REFERENCE.finditer(text)}
