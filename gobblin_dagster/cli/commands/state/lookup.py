"""Arguments of commands that work on one dataset."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gobblin_dagster.cli.complete import dataset_names, job_names
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.state.lookup import find_named, find_state

if TYPE_CHECKING:
    from gobblin_dagster.engine.project import Project

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="The dataset.urn.", autocompletion=dataset_names)
]
NamedArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="The dataset.urn, or its last part if no other dataset ends so.",
        autocompletion=dataset_names,
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(help="Name of the job; needed if several jobs have the dataset.", autocompletion=job_names),
]


def one_state(project: Project, dataset: str, job: str | None) -> DatasetState:
    """Return the state of a dataset of a project; raises as `find_state`."""
    with closing(project.open_store()) as store:
        return find_state(store, dataset, job)


def named_state(project: Project, dataset: str, job: str | None) -> DatasetState:
    """Return the state of a dataset that may be named by its last part; raises as `find_named`."""
    with closing(project.open_store()) as store:
        return find_named(store, dataset, job)
