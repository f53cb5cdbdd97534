"""Traits: optional attributes by which a construct or commit step declares what it can do, with their defaults.

Set an attribute on the class or on the object (`self.reads_current = ...`, or a property); the engine reads it with
`traits_of`. Abilities that need a method are protocols in `core.constructs`. The registry refuses attributes whose
names are nearly those of traits; `traits_of` refuses values of a wrong type.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from gobblin_dagster.core.errors import UsageError

Widening: TypeAlias = Literal["int_to_float", "int_to_decimal", "decimal_scale", "date_to_timestamp", "new_fields"]
"""What a published column becomes that not every format and table can hold: floats or decimals in place of whole
numbers, decimals with more digits behind the point, times in place of days, structs with more fields."""
ALL_WIDENINGS: tuple[Widening, ...] = get_args(Widening)


def _require_widenings(given: tuple[str, ...]) -> None:
    if unknown := [name for name in given if name not in ALL_WIDENINGS]:
        raise UsageError(problem=f"`widens` names {', '.join(unknown)}.", hint=f"Known are {', '.join(ALL_WIDENINGS)}.")


@dataclass(frozen=True, slots=True)
class PackageTraits:
    """Traits of every construct."""

    packages: tuple[str, ...] = ()
    """Modules of optional packages that it imports when it is used; `gobblin check` says which are not installed. How
    to install them: `core.utils.optional_packages`."""


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """Traits of a source; read on the object, on the driver."""

    full_extract: str = ""
    """How the source serves jobs that read everything in each run (`Extract.is_full`):

    - `"start_over"`: it offers all data of a dataset without committed ranges; the planner passes it empty states.
    - `"own"`: it looks at `SourceContext.extract.is_full` itself.
    - empty: it cannot; such jobs are refused."""

    holds_back: str = ""
    """Why a full extract may lack rows that exist, e.g. "`lag` leaves the newest rows to a later run"; empty if it has
    all. Publishers that delete missing rows are refused then."""

    identity: tuple[str, ...] = ()
    """Names of the options that say where the data lie, such as an URL: sources of one type whose values of these are
    equal read the same datasets, and a startpoint for all jobs is for them. Empty means all options; `("type",)` means
    that all sources of the type are one. Read on the class: it cannot be a property."""

    def __post_init__(self) -> None:
        if self.full_extract not in {"", "start_over", "own"}:
            raise UsageError(
                problem=f"The `full_extract` of a source is {self.full_extract!r}.",
                hint='Set it to "start_over" or "own", or leave it empty.',
            )


@dataclass(frozen=True, slots=True)
class FormatTraits:
    """Traits of a file format."""

    has_schema: bool = False
    """Whether files hold their schema (in a footer or header), so that plans can show changed columns."""
    fields_vary: bool = False
    """Whether rows of one file may lack columns that others have, so that plans look for new columns in all files."""


@dataclass(frozen=True, slots=True)
class WriterTraits:
    """Traits of a writer; read on its class, before a writer is made."""

    stages_files: bool = True
    """Whether it writes files. False for a writer that only prints rows: an audit expects no published rows then."""
    widens: tuple[Widening, ...] = ("decimal_scale",)
    """As of `PublisherTraits`: how the types in its files may become wider, so that old and new files are read
    together."""

    def __post_init__(self) -> None:
        _require_widenings(self.widens)


@dataclass(frozen=True, slots=True)
class PublisherTraits:
    """Traits of a publisher; read on the object, on the driver."""

    reads_current: bool = False
    """Whether it needs `PublishView.current`, which costs a query. Set it if new files replace old ones. A replay adds
    its files without calling such a publisher."""
    needs_all_units: bool = False
    """Whether a failed work unit keeps the whole dataset from being published, whatever `commit.policy` says."""
    deletes_missing: bool = False
    """Whether rows that a full extract lacks are deleted, so that the source must offer all rows that exist."""
    allows_compaction: bool = False
    """Whether `gobblin compact` may merge its files: true if only snapshots name the files."""
    publishes_files: bool = True
    """False if no file of its branch is ever published: an audit expects no rows in files then."""
    widens: tuple[Widening, ...] = ("decimal_scale",)
    """How the types of columns may become wider: readers then read older rows in the new type too. Wider types of one
    kind (`int64` for `int32`, `float64` for `float32`, more digits, finer units of time) need no name here."""
    is_in_output: bool = False
    """Whether its table lies in the folders of its branch, so that each branch of a job has another."""
    on_again: str = "append"
    """What becomes of rows that are published a second time, because a startpoint went back:

    - `"append"`: readers see them twice, unless the startpoint replaces files.
    - `"upsert"`: they take the place of the rows with their keys.
    - `"history"`: as `"upsert"`, and a row that differs from the newest version of its key begins another one. So older
      rows must not be published after newer ones, unless `extract.delta_fields` tells them apart.
    - `"replace"`: they take the place of all rows, or of those of their partitions.
    - `"drop"`: nothing is published."""
    keeps_order: bool = False
    """Whether rows find their places in whatever order they are published, so that older ones never take the place of
    newer ones."""
    published_elsewhere: str = ""
    """What else holds the branch's rows, for messages (`"an Iceberg table"`); `gobblin rollback` refuses such
    datasets."""
    places: tuple[str, ...] = ()
    """URLs of the tables or topics that it writes, without passwords: a source that says that it reads one of them
    (`ReadsPaths`) is refused. Text that `{dataset}` stands for is `dataset`."""
    keeps_rows_in: str = ""
    """Where `published_elsewhere` is: a URL without user and password, with `{dataset}` where each dataset has its own
    table; if it `is_in_output`, a path relative to the branch's folder. Plans say that another place lacks older rows.
    Empty if it is not known. Several servers, with commas between them, are one place if they share one."""

    @property
    def holders(self) -> tuple[str, ...]:
        """What holds the rows of its branch: files, a table or topic, or both; nothing if it drops them."""
        files = ("files",) if self.publishes_files and self.on_again != "drop" else ()
        return (*files, self.published_elsewhere) if self.published_elsewhere else files

    def __post_init__(self) -> None:
        _require_widenings(self.widens)
        if self.on_again not in {"append", "upsert", "history", "replace", "drop"}:
            raise UsageError(
                problem=f"The `on_again` of a publisher is {self.on_again!r}.",
                hint='Set it to "append", "upsert", "history", "replace" or "drop".',
            )


@dataclass(frozen=True, slots=True)
class StepTraits:
    """Traits of a commit step; read on the object."""

    is_undoable: bool = False
    """Whether moving the sequence's files back undoes this step too. Recovery undoes a sequence only if all of its
    steps are undoable; a person must decide about any other."""
    reads_staging: bool = True
    """Whether it may read any staged file. False if it reads only files that the sequence moves."""
    is_brief: bool = False
    """Whether it takes milliseconds a file. Datasets whose steps all are brief share transactions of the state store;
    with any other step a dataset is committed alone, so that no other waits for it."""
    loaded_bytes: int = 0
    """Bytes of the staged files whose rows it puts into a table or topic, in place of publishing these files."""
    output_paths: tuple[str, ...] = ()
    """Absolute paths of published files that it changes; a path outside of the output makes the sequence refused."""


TraitsT = TypeVar("TraitsT", PackageTraits, SourceTraits, FormatTraits, WriterTraits, PublisherTraits, StepTraits)


def traits_of(construct: object, traits: type[TraitsT], *names: str) -> TraitsT:
    """Return the traits of a construct or step, given as object or class; the default for each that is not set.

    Args:
        construct: the object or class.
        traits: the class of the traits.
        names: the traits that are wanted, by default all; the others have their defaults. A class must name them where
            others may be properties of its objects.

    Raises:
        UsageError: an attribute has another type than its default, for example a method instead of a property.

    Example:
        >>> class Mine:
        ...     reads_current = True
        >>> traits_of(Mine(), PublisherTraits).reads_current
        True
    """
    wanted = [each for each in fields(traits) if not names or each.name in names]
    found: dict[str, Any] = {each.name: getattr(construct, each.name, each.default) for each in wanted}
    for each in wanted:
        if not isinstance(found[each.name], type(each.default)):
            cls = construct if isinstance(construct, type) else type(construct)
            raise UsageError(
                problem=f"{cls.__qualname__}.{each.name} is {found[each.name]!r}, expected "
                f"{type(each.default).__name__}.",
                hint=f"Correct it, or leave it out: the default is {each.default!r}.",
            )
    return traits(**found)
