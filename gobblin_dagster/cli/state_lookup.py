"""Finding datasets in the state store, for all commands of `gobblin state`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.project import Project

DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset.urn.")]
JobOption = Annotated[str | None, typer.Option(help="Name of the job; needed where several jobs have the dataset.")]


def load_states(
    project: Project, jobs: list[str] | None, urns: list[str] | None = None
) -> dict[str, dict[str, DatasetState]]:
    """Return states by job and dataset.urn; default: all jobs of the project and those that the store remembers."""
    with closing(project.open_store()) as store:
        names = jobs or sorted({*(job.job for job in project.jobs), *store.list_jobs()})
        return {name: store.load_dataset_states(name, urns) for name in names}


def one_state(project: Project, dataset: str, job: str | None) -> DatasetState:
    """Return the state of a dataset; raises UsageError where there is none or several jobs have it."""
    found = load_states(project, [job] if job else None, [dataset])
    states = [states[dataset] for states in found.values() if dataset in states]
    if len(states) == 1:
        return states[0]
    where = ", ".join(state.job for state in states)
    raise UsageError(
        problem=f"Dataset {dataset!r} is in several jobs: {where}."
        if states
        else f"Nothing is published of {dataset!r}.",
        hint="Name one with --job." if states else "`gobblin state list` shows what is published.",
    )
