"""RoutedFlow: the properties by which a flow says where its data are and where they are to go, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_dagster.core.utils.url_text import stays_inside
from gobblin_dagster.service.topology.model import ANY, ANYTHING, Dataset

SOURCE = "gobblin.flow.sourceIdentifier"
"""Gobblin's property with the data node that a flow begins at."""
DESTINATIONS = "gobblin.flow.destinationIdentifier"
"""Gobblin's property with the data nodes that a flow leads to, with commas between them."""
INPUT = "gobblin.flow.input.dataset.descriptor."
OUTPUT = "gobblin.flow.output.dataset.descriptor."
"""Gobblin's properties about the dataset at the source and at the destinations begin so."""
SUB_PATHS = "gobblin.flow.dataset.subPaths"
COMBINE = "gobblin.flow.dataset.combine"
PATH = "flow.path"
"""Edges from the source to the destination, by name and in order; the flow takes this way and no other."""
EXCLUDED = "flow.excludedEdges"
"""Edges that the flow must not take, by name."""

MAX_DESTINATIONS = 100
MAX_SUB_PATHS = 100

_FIELDS = {
    "platform": "platform",
    "path": "path",
    "format": "format",
    "codec": "codec",
    "encrypt.algorithm": "encryption",
}
"""Gobblin's words for the fields of a dataset."""
_IGNORED = frozenset({"class"})
"""Gobblin's name of the Java class of a descriptor."""


def is_routed(properties: Mapping[str, str], template_uris: str = "") -> bool:
    """Tell whether a flow says where its data are to go, and leaves the way to the service.

    A flow that names templates may set a source or a destination for those who list flows; one that sets both is
    taken as routed, and refused for its templates.
    """
    named = [key for key in (SOURCE, DESTINATIONS) if key in properties]
    return len(named) == 2 if template_uris.strip() else bool(named)


@dataclass(frozen=True, slots=True)
class RoutedFlow:
    """What a flow says of its way."""

    source: str
    destinations: tuple[str, ...]
    dataset: Dataset = ANYTHING
    wanted: Dataset = ANYTHING
    sub_paths: tuple[str, ...] = ()
    is_combined: bool = False
    """Whether one job carries all sub-paths; else each has jobs of its own, side by side."""
    path: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[tuple[str, Dataset], ...]:
        """Sub-path and dataset of each part that has jobs of its own."""
        if not self.sub_paths:
            return (("", self.dataset),)
        paths = [_below(self.dataset.path, one) for one in self.sub_paths]
        if self.is_combined:
            return (("", self.dataset._replace(path=",".join(paths))),)
        return tuple((one, self.dataset._replace(path=path)) for one, path in zip(self.sub_paths, paths, strict=True))


def read_routed_flow(properties: Mapping[str, str]) -> tuple[RoutedFlow, list[str]]:
    """Return what a flow says, and all that is wrong with it."""
    reasons: list[str] = []
    source = properties.get(SOURCE, "").strip()
    if not source:
        reasons.append(f"the flow names no source; set {SOURCE}")
    destinations = _names(properties, DESTINATIONS, MAX_DESTINATIONS, reasons)
    if not destinations:
        reasons.append(f"the flow names no destination; set {DESTINATIONS}")
    sub_paths = _names(properties, SUB_PATHS, MAX_SUB_PATHS, reasons)
    reasons += [
        f"{SUB_PATHS}: {one[:80]!r} is no relative path without `..`" for one in sub_paths if not stays_inside(one)
    ]
    path = _names(properties, PATH, MAX_SUB_PATHS, reasons)
    if path and len(destinations) > 1:
        reasons.append(f"{PATH} leads to one destination; the flow names {len(destinations)}")
    combine = properties.get(COMBINE, "false")
    if combine not in ("true", "false"):
        reasons.append(f"{COMBINE} is {combine[:80]!r}; expected true or false")
    flow = RoutedFlow(
        source,
        destinations,
        _dataset(properties, INPUT, reasons),
        _dataset(properties, OUTPUT, reasons),
        sub_paths,
        combine == "true",
        path,
        frozenset(_names(properties, EXCLUDED, 10_000, reasons)),
    )
    return flow, reasons


def _names(properties: Mapping[str, str], key: str, most: int, reasons: list[str]) -> tuple[str, ...]:
    names = [name.strip() for name in properties.get(key, "").split(",") if name.strip()]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= most else []
    if twice:
        reasons.append(f"{key} names {twice[0][:80]!r} twice")
    if len(names) > most:
        reasons.append(f"{key} has {len(names)} names; at most {most} are allowed")
    return tuple(names[:most])


def _dataset(properties: Mapping[str, str], prefix: str, reasons: list[str]) -> Dataset:
    fields = {}
    for key, value in properties.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or name in _IGNORED:
            continue
        if name in _FIELDS:
            fields[_FIELDS[name]] = value.strip() or ANY
        else:
            reasons.append(f"{key} is not known; known are {', '.join(prefix + one for one in _FIELDS)}")
    return Dataset(**fields)


def _below(path: str, sub_path: str) -> str:
    return sub_path if path == ANY else f"{path.rstrip('/')}/{sub_path}"
