"""Intervals between watermarks, and the committed ranges of a dataset: arithmetic, component by component.

All intervals are half-open, `[low, high)`: the low bound is the next position to read, the high bound is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from gobblin_dagster.core.errors import CorruptRecordError, RangeOverlapError, WatermarkTypeError
from gobblin_dagster.core.watermark import Position, Ranges, Watermark, same_type, typed_json
from gobblin_dagster.core.watermark.layers import Layers, add_layer, read_layers


@dataclass(frozen=True, slots=True)
class WatermarkInterval:
    """The half-open range `[low, high)` of positions that a work unit reads; both bounds have the same components.

    Source: gobblin-api `WatermarkInterval`. Differs: half-open always; the original leaves it to each source.
    """

    low: Watermark
    """Inclusive."""
    high: Watermark
    """Exclusive."""

    def __post_init__(self) -> None:
        same_type(self.low, self.high)
        if set(self.low.components()) != set(self.high.components()) or not self.low <= self.high:
            raise ValueError(f"not an interval: [{self.low}, {self.high})")

    @property
    def is_empty(self) -> bool:
        """Whether the interval holds no position."""
        return self.low == self.high

    def partition(self, width: Any) -> Iterator[WatermarkInterval]:
        """Cut the interval into parts of equal width, component by component; the last part may be shorter.

        Args:
            width: added to a position to get the next one: a number for longs, a `timedelta` for times (whole days for
                `date`, whole hours for `hour`).

        Raises:
            TypeError: a width cannot be added to positions of this type (names, files).
            ValueError: the width is not positive, or not a whole day or hour.

        Source: gobblin-core `Watermark.getIntervals`, `getDeltaNumForNextWatermark`. Differs: the end of a part is the
        beginning of the next, with no step between them.

        Example:
            >>> from gobblin_dagster.core.watermark import LongWatermark
            >>> [str(part) for part in WatermarkInterval(LongWatermark(0), LongWatermark(25)).partition(10)]
            ['[0, 10)', '[10, 20)', '[20, 25)']
        """
        make = type(self.low).from_components
        for name, low, high in self.pairs():
            at: Any = low
            while at < high:
                end = min(at + width, high)
                if end <= at:
                    raise ValueError(f"expected a positive width to go on from {make({name: at})}, got {width!r}")
                yield WatermarkInterval(make({name: at}), make({name: end}))
                at = end

    def pairs(self) -> Iterator[tuple[str, Position, Position]]:
        """Yield (component, low, high)."""
        high = self.high.components()
        for name, low in self.low.components().items():
            yield name, low, high[name]

    def __str__(self) -> str:
        return f"[{self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class CommittedRanges:
    """The positions of a dataset that were published, as disjoint sorted ranges per component.

    A failed work unit leaves a gap between two ranges; the next run plans the gap again and nothing else twice. The
    *watermark* is the end of the first range: everything before it was published.

    Source: none; the original keeps one high watermark per work unit and loses gaps (see docs/concepts/commit.md).
    """

    watermark_type: type[Watermark]
    ranges: Ranges
    layers: Layers | None = field(default=None, compare=False, repr=False)
    """How they, or those that they come from, are stored; None for ranges that were never stored, or not in layers."""

    def add(self, interval: WatermarkInterval, dataset_urn: str = "") -> CommittedRanges:
        """Return the ranges with `interval` added and neighbours merged.

        Raises:
            RangeOverlapError: a part of the interval is committed already; it would be published twice.
            WatermarkTypeError: the interval is of another type.
        """
        return self.add_all([interval], dataset_urn)

    def add_all(self, intervals: Iterable[WatermarkInterval], dataset_urn: str = "") -> CommittedRanges:
        """Return the ranges with all intervals added; raises like `add`."""
        ranges = dict(self.ranges)
        for interval in intervals:
            if type(interval.low) is not self.watermark_type:
                raise WatermarkTypeError(expected=self.watermark_type.type_name, got=interval.low.type_name)
            for name, low, high in interval.pairs():
                if low != high:
                    ranges[name] = self._merged(ranges.get(name, ()), low, high, interval, dataset_urn)
        return CommittedRanges(self.watermark_type, self.watermark_type.settled(ranges), self.layers)

    def anchored(self, low: Watermark) -> CommittedRanges:
        """Return the ranges with an empty range at `low` for each component that has none yet.

        If the first work unit fails and the second succeeds, the empty range keeps the gap between them visible.
        """
        ranges = dict(self.ranges)
        for name, position in low.anchors().items():
            ranges.setdefault(name, ((position, position),))
        return CommittedRanges(self.watermark_type, ranges, self.layers)

    def minus(self, other: CommittedRanges) -> CommittedRanges:
        """Return the positions of these ranges that are not in `other`; empty ranges and components are left out.

        Example:
            >>> from gobblin_dagster.core.watermark import LongWatermark
            >>> whole = CommittedRanges(LongWatermark, {"": ((0, 10),)})
            >>> str(whole.minus(CommittedRanges(LongWatermark, {"": ((0, 3), (5, 6))})))
            '[3, 5) [6, 10)'
        """
        ranges: dict[str, tuple[tuple[Any, Any], ...]] = {}
        for name, parts in self.ranges.items():
            left: list[tuple[Any, Any]] = list(parts)
            for low, high in other.ranges.get(name, ()):
                left = [piece for start, end in left for piece in ((start, min(end, low)), (max(start, high), end))]
                left = [(start, end) for start, end in left if start < end]
            if left := [(start, end) for start, end in left if start < end]:
                ranges[name] = tuple(left)
        return CommittedRanges(self.watermark_type, ranges)

    def up_to(self, mark: Watermark) -> CommittedRanges:
        """Return the positions before a watermark; components that it does not have stay whole."""
        ends: Mapping[str, Any] = mark.components()
        ranges = {
            name: tuple((low, min(high, ends.get(name, high))) for low, high in parts if low < ends.get(name, high))
            for name, parts in self.ranges.items()
        }
        return CommittedRanges(self.watermark_type, {name: parts for name, parts in ranges.items() if parts})

    def _merged(
        self,
        known: tuple[tuple[Any, Any], ...],
        low: Any,
        high: Any,
        interval: WatermarkInterval,
        dataset_urn: str,
    ) -> tuple[tuple[Position, Position], ...]:
        for start, end in known:
            if start < end and low < end and start < high:
                raise RangeOverlapError(dataset_urn=dataset_urn, interval=str(interval), committed=str(self))
        merged: list[tuple[Any, Any]] = []
        for start, end in sorted([*known, (low, high)]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return tuple(merged)

    @property
    def watermark(self) -> Watermark | None:
        """The end of the first range of each component; None if nothing was committed."""
        if not self.ranges:
            return None
        return self.watermark_type.summary({name: parts[0][1] for name, parts in self.ranges.items()})

    @property
    def high(self) -> Watermark | None:
        """The end of the last range of each component; equal to `watermark` if there is no gap."""
        if not self.ranges:
            return None
        return self.watermark_type.summary({name: parts[-1][1] for name, parts in self.ranges.items()})

    def gaps(self, component: str = "") -> tuple[tuple[Position, Position], ...]:
        """Return the gaps between the committed ranges of one component, as `[low, high)` pairs."""
        parts = self.ranges.get(component, ())
        return tuple((one[1], two[0]) for one, two in pairwise(parts))

    def contains(self, position: Position, component: str = "") -> bool:
        """Return whether a position was committed."""
        parts: Any = self.ranges.get(component, ())
        return any(low <= position < high for low, high in parts)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        kind = self.watermark_type
        if kind.is_layered:
            known = self.layers or Layers((), {})
            changed = known.changed(self.ranges)
            stored: dict[str, Any] = {"layers": add_layer(known.packed, _to_json(kind, changed))}
        else:
            stored = kind.encode(_to_json(kind, dict(sorted(self.ranges.items()))))
        return {"type": kind.type_name, "version": kind.version, "ranges": stored}

    @classmethod
    def from_json(cls, raw: Any) -> CommittedRanges:
        """Read what `to_json` wrote; raises like `watermark_from_json`."""
        kind, body = typed_json(raw, "ranges")
        try:
            if kind.is_layered:
                # Older versions stored all ranges in one packed text, which is a first layer.
                layers = _layers_of(kind, tuple(body["layers"] if "layers" in body else [body["packed"]]))
                return cls(kind, layers.ranges, layers)
            return cls(kind, _from_json(kind, kind.decode(body)))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptRecordError(what="Stored committed ranges", problem=str(error)) from error

    def __str__(self) -> str:
        return self.watermark_type.describe(self.ranges)


def _to_json(kind: type[Watermark], ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Return ranges as JSON by component; None stays None."""
    encode = kind.position_to_json
    return {
        name: parts if parts is None else [[encode(low), encode(high)] for low, high in parts]
        for name, parts in ranges.items()
    }


def _from_json(kind: type[Watermark], stored: Mapping[str, Any]) -> Ranges:
    decode = kind.position_from_json
    return {name: tuple((decode(low), decode(high)) for low, high in parts) for name, parts in stored.items()}


@lru_cache(maxsize=2)
def _layers_of(kind: type[Watermark], packed: tuple[str, ...]) -> Layers:
    """Read layers; kept, because a plain-file store loads the state of a dataset several times for one commit."""
    return Layers(packed, _from_json(kind, read_layers(packed)))
