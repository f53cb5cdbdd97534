"""Say that datasets may be known ones under other names, whose rows would be published again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.plan.model import DatasetPlan


def with_name_notes(datasets: Sequence[DatasetPlan], states: Mapping[str, DatasetState]) -> tuple[DatasetPlan, ...]:
    """Return the plans of all datasets of a job with notes on new ones, if the source has none of those it published.

    Nothing tells a dataset of another name from a new one. That all are gone at once comes of an edit of the job file,
    such as another `path` or database, rather than of the source.

    Args:
        datasets: all that the source has.
        states: all that the job has committed.
    """
    published = sorted(urn for urn, state in states.items() if any(state.totals.branch_rows.values()))
    if not published or states.keys() & {one.dataset_urn for one in datasets}:
        return tuple(datasets)
    note = (
        f"it is new. This job has published {count(len(published), 'dataset')}, such as {published[0]!r}, and the "
        "source has none now: if they have other names, their rows are published again, beside the older ones; "
        "`gobblin startpoint set` says where a dataset begins."
    )
    return tuple(
        dataclasses.replace(one, notes=(*one.notes, note)) if one.has_work and not one.startpoints else one
        for one in datasets
    )
