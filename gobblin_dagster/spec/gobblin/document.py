"""Read a Gobblin job file as a `Document`: by way of equal YAML, with faults reported at Gobblin's own keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gobblin_dagster.core.errors import SpecFault
from gobblin_dagster.spec.document import Document, Loc, plain_scalars, read_document, show_loc
from gobblin_dagster.spec.gobblin.entries import Entry
from gobblin_dagster.spec.gobblin.job import read_job
from gobblin_dagster.spec.gobblin.lookup import first_key, places_of
from gobblin_dagster.spec.gobblin.values import Plain
from gobblin_dagster.spec.job import JobSpec

_HOCON = (".conf", ".json", ".configuration")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(slots=True)
class GobblinDocument(Document):
    """A job, and the Gobblin keys that its parts come from."""

    yaml: str = ""
    """The same job as the text of a YAML job file, with references to variables not replaced."""
    origins: dict[Loc, Entry] = field(default_factory=dict)
    """Gobblin key by place in the job."""

    def line(self, loc: Loc) -> int:
        origin = self._origin(loc)
        return origin.line if origin else 1

    def fault(self, loc: Loc, problem: str, line: int | None = None) -> SpecFault:
        origin = self._origin(loc)
        place = show_loc(loc)
        key = first_key(place)
        if origin is None or (problem == "is missing" and key):
            return SpecFault(f"{key} ({place})" if key else place, problem, origin.line if origin else None)
        return SpecFault(f"{origin.key} ({place})", _as_written(problem, origin.file), origin.line, origin.file)

    def _origin(self, loc: Loc) -> Entry | None:
        while loc and loc not in self.origins:
            loc = loc[:-1]
        return self.origins.get(loc)


def read_gobblin(
    path: Path,
    root: Path,
    own_classes: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    shown: Callable[[Path], str],
    refused: Callable[[Path], str],
) -> GobblinDocument:
    """Read a Gobblin job file; faults are collected, never raised. Arguments as in `read_job`."""
    job = read_job(path, root, own_classes, environ, shown, refused)
    if unreadable := [fault for fault in job.faults if not fault.path and fault.file == shown(path)]:
        return GobblinDocument(found=unreadable)  # without its keys, faults of single keys would be wrong
    text = to_yaml({name: job.data[name] for name in JobSpec.model_fields if name in job.data})
    document = read_document(text.encode(), environ, has_defaults=False)
    found = GobblinDocument(
        document.data,
        faults=document.faults,
        written=document.written,
        values=document.values,
        names=document.names,
        yaml=text,
        origins=job.origins,
    )
    found.found, found.warnings = job.faults, job.warnings
    found.broken = {loc for fault in job.faults for loc in places_of(fault.path)}
    return found


def _as_written(problem: str, file: str) -> str:
    """Return a problem with variables named as in the file: `${env:NAME}`, but `${NAME}` in HOCON."""
    return problem if file.lower().endswith(_HOCON) else _REFERENCE.sub(r"${env:\1}", problem)


class _Dumper(yaml.SafeDumper):
    """Writes a text without quotes if YAML 1.2's core rules read it back unchanged."""


_Dumper.yaml_implicit_resolvers = plain_scalars()
_Dumper.add_representer(Plain, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text)))
_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"' if "${" in text else None)
)


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return a job document as YAML; references to variables are in quotes, unless their values are to be parsed."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
