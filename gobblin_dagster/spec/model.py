"""SpecModel: the base of all declarations."""

from __future__ import annotations

from pydantic import ConfigDict

from gobblin_dagster.spec.numbers import ExactNumbers


class SpecModel(ExactNumbers):
    """A frozen declaration that refuses unknown keys, infinite numbers, and booleans for numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
