"""Fork operators that distribute rows: by the hash of a key, by a repeatable sample, or in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, field_validator

from gobblin_dagster.constructs.digests import KeyDigests, mixed, seed_of, shares
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import SpecModel


class HashForkOperator:
    """Give each row to one branch by its key: rows with the same key go to the same branch, in every run and process.

    Raises:
        UsageError: weights and branches differ.
        ConvertError: a key column is missing.

    Source: none; in Gobblin this is a `ForkOperator` of the user.
    """

    class Options(SpecModel):
        """Options of `type: hash`."""

        by: tuple[str, ...] = Field(min_length=1)
        """Key columns; null is a key like any other."""
        weights: dict[str, float] | None = None
        """Share of the keys by branch name, in any unit; default: equal shares."""
        seed: int = 0
        """A different seed distributes the keys differently."""

        @field_validator("weights")
        @classmethod
        def _positive(cls, weights: dict[str, float] | None) -> dict[str, float] | None:
            if weights is not None and (min(weights.values(), default=0) < 0 or sum(weights.values()) <= 0):
                raise ValueError("expected weights of 0 or more, and one above 0")
            return weights

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        weights = options.weights or dict.fromkeys(branches, 1.0)
        _require_all("weight", weights, "hash", context, branches)
        self._digests = KeyDigests(options.by, "fork operator 'hash'", context)
        self._seed = seed_of(options.seed)
        ends = np.cumsum([weights[name] for name in branches])
        self._ends = ends / ends[-1]

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        self._digests.check(schema)
        return (True,) * len(self._ends)

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        places = shares(mixed(self._digests.of(batch), self._seed))
        return _masks(np.searchsorted(self._ends, places, side="right"), len(self._ends))


class SampleForkOperator:
    """Give each branch its share of the rows, independently: a row may go to several branches, or to none.

    Which rows depends on their position in the work unit, or on their key; a retry takes the same ones.

    Raises:
        UsageError: ratios and branches differ.
        ConvertError: a key column is missing.

    Source: none; in Gobblin this is a `ForkOperator` of the user.
    """

    class Options(SpecModel):
        """Options of `type: sample`."""

        ratios: dict[str, float] = Field(min_length=1)
        """Share of the rows by branch name, 0-1; 1 takes all."""
        by: tuple[str, ...] = ()
        """Key columns: rows with the same key go together. Default: decide by position."""
        seed: int = 0
        """A different seed takes different rows."""

        @field_validator("ratios")
        @classmethod
        def _shares(cls, ratios: dict[str, float]) -> dict[str, float]:
            wrong = [f"{name}: {ratio:g}" for name, ratio in ratios.items() if not 0 <= ratio <= 1]
            if wrong:
                raise ValueError(f"expected ratios from 0 to 1, got {', '.join(wrong)}")
            return ratios

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        _require_all("ratio", options.ratios, "sample", context, branches)
        self._ratios = [options.ratios[name] for name in branches]
        # One seed per branch: with the same seed, a smaller sample would be part of a larger one.
        self._seeds = [seed_of(options.seed, context.dataset_urn, name) for name in branches]
        self._digests = KeyDigests(options.by, "fork operator 'sample'", context) if options.by else None
        self._rows = 0

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        if self._digests is not None:
            self._digests.check(schema)
        return (True,) * len(self._ratios)

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        if self._digests is None:
            numbers = np.arange(self._rows, self._rows + batch.num_rows, dtype=np.uint64)
        else:
            numbers = self._digests.of(batch)
        self._rows += batch.num_rows
        pairs = zip(self._ratios, self._seeds, strict=True)
        return [pa.array(shares(mixed(numbers, seed)) < ratio) for ratio, seed in pairs]


class RoundRobinForkOperator:
    """Give the rows of a work unit to the branches in turn, beginning with the first branch.

    Source: none; in Gobblin this is a `ForkOperator` of the user.
    """

    class Options(SpecModel):
        """`type: round_robin` has no options."""

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        self._branches = len(branches)
        self._rows = 0

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        return (True,) * self._branches

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        turns = np.arange(self._rows, self._rows + batch.num_rows) % self._branches
        self._rows += batch.num_rows
        return _masks(turns, self._branches)


def _masks(owners: npt.NDArray[np.int64], branches: int) -> list[pa.BooleanArray]:
    return [pa.array(owners == at) for at in range(branches)]


def _require_all(
    what: str, given: dict[str, float], operator: str, context: ConstructContext, branches: Sequence[str]
) -> None:
    if set(given) != set(branches):
        raise UsageError(
            problem=f"Fork operator {operator!r} of job {context.job!r} expects one {what} per branch: "
            f"without {what}: {', '.join(sorted(set(branches) - set(given))) or 'none'}; "
            f"without branch: {', '.join(sorted(set(given) - set(branches))) or 'none'}.",
        )
