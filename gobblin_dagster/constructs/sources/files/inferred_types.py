"""Infer the types of a dataset's columns from a sample of the files that a run will read.

Types are inferred once per dataset, when it is planned for the first time, and stored with its first commit. Later runs
only infer types of columns that are new or had no value yet, and widen those of numbers and objects if the schema
contract allows it. A dataset that was published before, without inferred types, keeps its texts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_dagster.constructs.formats.base import InfersTypes, InputFile, WidensTypes, listed_types
from gobblin_dagster.constructs.types.json_shapes import OPEN, fields_of, shape_of_text
from gobblin_dagster.core.constructs.source import TYPES_INFERRED
from gobblin_dagster.core.traits import FormatTraits, Widening, traits_of
from gobblin_dagster.core.utils.text import count

SAMPLE_BYTES = 8 << 20
"""Bytes of a dataset's new files that are looked at; the source asks for more if its last runs failed."""
_MOST_NAMED = 10
_MOST_FILES = 64
"""Most files that are opened; each may cost requests to a remote file system."""


@dataclass(frozen=True, slots=True)
class InferredTypes:
    """Types of the columns of one dataset."""

    types: Mapping[str, str] = field(default_factory=dict)
    """All types to read with, by column name; columns without one are text, those of the type `OPEN` are left out."""
    notes: Sequence[str] = ()
    """What was inferred now, from how much, for the plan."""


def infer_types(
    file_format: InfersTypes,
    files: Sequence[str],
    known: Mapping[str, str],
    texts: Collection[str],
    *,
    sample_bytes: int = SAMPLE_BYTES,
    may_be_open: Callable[[str], bool] = lambda _: False,
) -> InferredTypes:
    """Return the types of a dataset's columns; files that cannot be read are passed over, reading them tells why.

    Args:
        file_format: opens the files.
        files: absolute paths or URLs of the files to be read, in their order.
        known: types that were inferred before, by column; they stay, unless they are `OPEN`.
        texts: columns that were published before without an inferred type; they stay texts.
        sample_bytes: bytes to look at, over all files.
        may_be_open: returns whether a column without any value may stay `OPEN`; if not, it is text. A column is also
            text if not all rows of the files were looked at, as others may have texts there.

    Raises:
        OSError: a file cannot be read now, and may be the next time.
    """
    still_open = {name for name, kind in known.items() if kind == OPEN}
    sample = file_format.sample({*known, *texts} - still_open)
    # If types are known, a file is opened for its names only, and read on if it has a new one.
    for path in _spread(files)[: _MOST_FILES if may_find_columns(file_format, known) else 1]:
        if sample.bytes_read >= sample_bytes:
            break
        sample.look(InputFile(path), max(sample_bytes // min(len(files), 8), 1))
    found = sample.types()
    empty = sample.open_columns(may_be_open) if sample.files == len(files) else None
    if empty is None:
        found = {**dict.fromkeys(still_open, "string"), **found}
    else:
        found |= dict.fromkeys(empty, OPEN)
    found = {name: kind for name, kind in found.items() if known.get(name) != kind}
    if not found:
        return InferredTypes(known)
    of_files = f" of {len(files):,}" if len(files) > sample.files else ""
    sampled = f"{count(sample.rows, 'row')} of {count(sample.files, 'file')}{of_files}"
    notes = [f"{TYPES_INFERRED}{sampled}: {listed_types(found)}.", *sample.hints()]
    return InferredTypes({**known, **found}, notes)


def may_find_columns(file_format: InfersTypes, known: Mapping[str, str]) -> bool:
    """Return whether new columns may come in any of the new files, and not in the first alone."""
    return not known or traits_of(file_format, FormatTraits, "fields_vary").fields_vary


def widen_types(
    file_format: WidensTypes,
    files: Sequence[str],
    inferred: InferredTypes,
    label: Callable[[str], str],
    *,
    allowed: Collection[Widening],
    sample_bytes: int,
    whole_files: bool = False,
) -> InferredTypes:
    """Return the types with wider ones for the values of new files that they do not hold.

    Args:
        file_format: opens the files.
        files: absolute paths or URLs of the files to be read, in their order.
        inferred: the types so far.
        label: returns the path of a file for notes.
        allowed: how types may become wider.
        sample_bytes: bytes to look at, over all files.
        whole_files: whether to read each file to its end, because a file was refused for a value behind the sample.

    Raises:
        OSError: as `infer_types`.
    """
    part = 1 if whole_files else min(len(files), 8)
    sample, because = file_format.widening(inferred.types, allowed), dict[str, str]()
    for path in _spread(files)[:_MOST_FILES]:
        if sample.bytes_read >= sample_bytes:
            break
        before = sample.types()
        sample.look(InputFile(path), max(sample_bytes // part, 1))
        because |= {name: path for name, kind in sample.types().items() if kind != before[name]}
    types = {**inferred.types, **sample.types()}
    notes = [f"{_change(name, inferred.types[name], types[name])} {label(path)}." for name, path in because.items()]
    return InferredTypes(types, (*inferred.notes, *notes))


def _change(name: str, before: str, after: str) -> str:
    known = fields_of(shape_of_text(before))
    if new := [path for path in fields_of(shape_of_text(after)) if path not in known]:
        more = f" and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
        return f"column {name!r} gets the field(s) {', '.join(new[:_MOST_NAMED])}{more}, because of"
    return f"column {name!r} widens from {before} to {after}, because of numbers in"


def _spread(files: Sequence[str]) -> list[str]:
    """Return the files in an order in which the first few lie as far from each other as they can: ends first."""
    ordered, gaps = ([files[0], files[-1]] if len(files) > 1 else list(files)), [(0, len(files) - 1)]
    for low, high in gaps:  # grows while it is read
        if high - low > 1:
            middle = (low + high) // 2
            ordered.append(files[middle])
            gaps += [(low, middle), (middle, high)]
    return ordered
