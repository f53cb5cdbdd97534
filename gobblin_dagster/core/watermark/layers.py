"""Layers: how ranges of very many components are stored, so that a commit writes what it changed and little more.

The first layer holds all components that there were once, each later one those that changed since. A layer is a text
that stays the same from commit to commit, so a state store writes it once (`state.parts`). A layer that is not larger
than twice what comes after it becomes one with it: there are never more layers than about log2 of the size, and each
component is written about as often.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.core.watermark.base import Ranges


@dataclass(frozen=True, slots=True)
class Layers:
    """Ranges as they were loaded."""

    packed: tuple[str, ...]
    """The layers, oldest first."""
    ranges: Ranges
    """What they say together."""

    def changed(self, ranges: Ranges) -> dict[str, Any]:
        """Return the components of other ranges that differ, and None for those that are gone."""
        known = self.ranges
        changed: dict[str, Any] = {name: parts for name, parts in ranges.items() if known.get(name) != parts}
        return changed | {name: None for name in known if name not in ranges}


def pack(values: Mapping[str, Any]) -> str:
    """Return values by component as one text."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode())).decode()


def unpack(packed: str) -> dict[str, Any]:
    """Undo `pack`; raises ValueError or TypeError."""
    try:
        values = parse_json(zlib.decompress(base64.b64decode(packed, validate=True)))
    except zlib.error as error:
        raise ValueError(f"the packed files are damaged: {error}") from error
    if not isinstance(values, dict):
        raise TypeError(f"expected files by name, got {str(values)[:80]!r}")
    return values


def add_layer(layers: Sequence[str], changed: Mapping[str, Any]) -> list[str]:
    """Return layers that also say what changed, given as JSON by component; None for a component that is gone."""
    if not changed:
        return list(layers)
    kept, newest = list(layers), pack(changed)
    while kept and len(kept[-1]) <= 2 * len(newest):
        changed = {**unpack(kept.pop()), **changed}
        newest = pack(changed)
    if not kept:
        newest = pack({name: value for name, value in changed.items() if value is not None})
    return [*kept, newest]


def read_layers(layers: Sequence[str]) -> dict[str, Any]:
    """Return the values by component that layers say together; raises as `unpack`."""
    values: dict[str, Any] = {}
    for layer in layers:
        values |= unpack(layer)
    return {name: value for name, value in values.items() if value is not None}
