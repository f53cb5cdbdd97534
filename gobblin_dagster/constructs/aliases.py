"""Gobblin's class names that a `type:` understands, by kind of construct; the tables stand beside Gobblin's keys."""

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
