"""Traits: what a construct says of itself in plain attributes, all of them optional, with their defaults.

A construct or commit step sets an attribute of its class or of the object (`self.reads_current = ...`, or a property);
whoever needs to know asks `traits_of`, and nothing else reads them. What takes more than a value is a protocol in
`core.constructs`. A construct's name that nearly is one of these is refused by the registry, a value of another type here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from gobblin_dagster.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """Traits of a source."""

    full_extract: str = ""
    """For jobs whose every run reads everything (`Extract.is_full`): `"start_over"` where the source offers all that
    there is for a dataset whose committed ranges are empty, `"own"` where it looks at `SourceContext.extract.is_full` itself.
    Empty, such jobs are refused."""

    def __post_init__(self) -> None:
        if self.full_extract not in {"", "start_over", "own"}:
            raise UsageError(
                problem=f"A source's `full_extract` is {self.full_extract!r}.",
                hint='It is "start_over", "own" or empty.',
            )


@dataclass(frozen=True, slots=True)
class FormatTraits:
    """Traits of a file format."""

    has_schema: bool = False
    """Files carry their schema (a footer, a header): plans show what changes."""


@dataclass(frozen=True, slots=True)
class WriterTraits:
    """Traits of a writer; of its class, for they are asked before one is made."""

    stages_files: bool = True
    """False: rows are only shown, so an audit counts none."""


@dataclass(frozen=True, slots=True)
class PublisherTraits:
    """Traits of a publisher."""

    reads_current: bool = False
    """`PublishView.current` is filled (one query more), and rows of a replay are not its concern."""
    needs_all_units: bool = False
    """Where a work unit failed nothing is published, whatever `commit.policy` says."""
    allows_compaction: bool = False
    """Nobody but readers of snapshots names its files, so `gobblin compact` may merge them."""
    publishes_files: bool = True
    """False: no file of its branch is ever published, so an audit counts none."""
    published_elsewhere: str = ""
    """What else holds the branch's rows (`"an Iceberg table"`); their datasets are not rolled back."""


@dataclass(frozen=True, slots=True)
class StepTraits:
    """Traits of a commit step."""

    is_undoable: bool = False
    """Undoing the moves of its sequence undoes the step too. A sequence with any other step is never undone by itself."""
    reads_staging: bool = True
    """It may read any staged file. False: none but those that the sequence moves."""
    output_paths: tuple[str, ...] = ()
    """Absolute paths of published files that it changes; a sequence with a path outside of its output is refused."""


TraitsT = TypeVar("TraitsT", SourceTraits, FormatTraits, WriterTraits, PublisherTraits, StepTraits)


def traits_of(construct: object, traits: type[TraitsT]) -> TraitsT:
    """Return what a construct says of itself.

    Raises:
        UsageError: an attribute is of another type than its default, as a method is where a property was meant.

    Example:
        >>> class Mine:
        ...     reads_current = True
        >>> traits_of(Mine(), PublisherTraits).reads_current
        True
    """
    found: dict[str, Any] = {each.name: getattr(construct, each.name, each.default) for each in fields(traits)}
    for each in fields(traits):
        if not isinstance(found[each.name], type(each.default)):
            cls = construct if isinstance(construct, type) else type(construct)
            raise UsageError(
                problem=f"{cls.__qualname__}.{each.name} is {found[each.name]!r}, no {type(each.default).__name__}.",
                hint=f"Left out, it counts as {each.default!r}.",
            )
    return traits(**found)
