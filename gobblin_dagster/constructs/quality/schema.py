"""Task-level policies on the schema of a branch's output."""

from __future__ import annotations

from pydantic import Field

from gobblin_dagster.constructs.types.columns import columns_text, has_column
from gobblin_dagster.constructs.types.schema_text import schema_text, type_texts
from gobblin_dagster.core.constructs import BranchView, ConstructContext
from gobblin_dagster.spec.job import SpecModel


class SchemaCompatibilityPolicy:
    """Hold if readers of earlier publications can read the new one.

    The first publication always holds. A missing column, or one with another type, fails. A new column holds only with
    `evolve`. The order of columns does not matter.

    Source: gobblin-core `SchemaCompatibilityPolicy`. Differs: Gobblin compares two texts for equality.
    """

    class Options(SpecModel):
        """Options of `type: schema_compatible`."""

        evolve: bool = True
        """Whether new columns are allowed."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._evolve = options.evolve

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        if view.previous_schema is None:
            return True, f"first schema of the branch, {len(view.schema)} columns"
        now = type_texts(schema_text(view.schema))
        before = type_texts(view.previous_schema)
        gone = [f"{name} ({kind}) is gone" for name, kind in before.items() if name not in now]
        changed = [
            f"{name} was {before[name]}, is {now[name]}" for name in before if name in now and before[name] != now[name]
        ]
        new = [f"{name} ({kind}) is new" for name, kind in now.items() if name not in before]
        differences = "; ".join([*gone, *changed, *new])
        expected = f"expected the {len(before)} columns published before" + (", or more" if self._evolve else "")
        holds = not gone and not changed and (self._evolve or not new)
        return holds, f"{expected}; got {differences or 'the same'}"


class RequiredColumnsPolicy:
    """Hold if the output has all named columns.

    Whether they have values is checked by the row-level policy `not_null`.

    Source: `MandatoryFieldExistencePolicy` in the documentation of fork operators.
    """

    class Options(SpecModel):
        """Options of `type: required_columns`."""

        columns: tuple[str, ...] = Field(min_length=1)
        """Names of columns that the output must have."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._columns = options.columns

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        missing = [name for name in self._columns if not has_column(view.schema, name)]
        expected = f"expected columns {', '.join(self._columns)}"
        if missing:
            return False, f"{expected}; missing {', '.join(missing)}; got {columns_text(view.schema)}"
        return True, f"{expected}; got all"
