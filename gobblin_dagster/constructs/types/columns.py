"""Checks of columns that several constructs share, with the same messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import is_text, parts_of
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.utils.duplicates import repeated

MAX_NAMES = 40
"""Most column names in a message."""
HIDDEN_PREFIX = "__gobblin_"
"""Prefix of columns that constructs add for their own use; users do not see them."""


def columns_text(schema: pa.Schema) -> str:
    """Return at most MAX_NAMES column names, separated by commas."""
    names = [name for name in schema.names if not name.startswith(HIDDEN_PREFIX)]
    more = f", … ({len(names)} in all)" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def has_column(schema: pa.Schema, name: str) -> bool:
    """Return whether there is a column, by a look into an index; `schema.names` makes a list of all each time."""
    return bool(schema.get_field_index(name) >= 0)


def require_columns(names: Iterable[str], schema: pa.Schema, construct: str, context: ConstructContext) -> None:
    """Raise ConvertError if a column is missing; the message has the missing and the existing columns."""
    missing = [name for name in names if not has_column(schema, name)]
    if missing:
        raise convert_error(
            f"expected column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}; "
            f"found: {columns_text(schema) or 'none'}",
            construct,
            context,
        )


def require_text(
    names: Sequence[str], schema: pa.Schema, construct: str, context: ConstructContext, hint: str = ""
) -> None:
    """Raise ConvertError if a column is missing or is not text; `hint` is added to the message."""
    require_columns(names, schema, construct, context)
    for name in names:
        if not is_text(schema.field(name).type):
            problem = f"column {name!r}: expected text, got {schema.field(name).type}"
            raise convert_error(f"{problem}; {hint}" if hint else problem, construct, context)


def refuse_twice(names: Sequence[str], construct: str, context: ConstructContext, hint: str = "") -> None:
    """Raise ConvertError if a result would have two columns with the same name; `hint` is added to the message."""
    if twice := repeated(names):
        problem = f"more than one column would be named {', '.join(map(repr, twice))}"
        raise convert_error(f"{problem}; {hint}" if hint else problem, construct, context)


def refuse_twice_inside(schema: pa.Schema, construct: str, context: ConstructContext) -> None:
    """Raise ConvertError if a struct, at any depth of a column, has two fields of one name: no reader takes it."""
    for field in schema:
        for kind in parts_of([field.type]):
            if pa.types.is_struct(kind) and (twice := repeated(part.name for part in kind)):
                names = ", ".join(map(repr, twice))
                problem = f"column {field.name!r}: a struct has more than one field named {names}; rename or drop one"
                raise convert_error(problem, construct, context)


def convert_error(problem: str, construct: str, context: ConstructContext, file: str | None = None) -> ConvertError:
    """Return a ConvertError that names dataset, branch and construct."""
    return ConvertError(
        dataset_urn=context.dataset_urn, construct=construct, problem=problem, branch=context.branch, file=file
    )
