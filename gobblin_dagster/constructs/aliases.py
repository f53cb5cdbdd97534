"""Gobblin's class names that `type:` accepts, by kind of construct; the tables are in `spec.gobblin.classes`."""

from __future__ import annotations

from gobblin_dagster.spec.gobblin.classes import (
    CONVERTERS,
    FORKS,
    PREFIX,
    PUBLISHERS,
    ROW_POLICIES,
    SOURCES,
    TASK_POLICIES,
    WRITERS,
)

__all__ = ["CONVERTERS", "FORKS", "PREFIX", "PUBLISHERS", "ROW_POLICIES", "SOURCES", "TASK_POLICIES", "WRITERS"]
