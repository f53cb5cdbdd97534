"""`dg scaffold defs gobblin_dagster.orchestration.GobblinJobComponent NAME`: a `defs.yaml` that loads at once."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg
from pydantic import BaseModel, Field

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.load import find_project

_JOB = {
    "job": "letters",
    "description": "An example: change the path, the columns and the names",
    "source": {"type": "files", "path": "data/{dataset}/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}},
    "extract": {"namespace": "shop", "table": "letters"},
    "output": {"path": "lake"},
}
_ROWS = "day,letters\n2024-01-01,26\n"


class ScaffoldParams(BaseModel):
    """The questions that `dg scaffold defs` asks, as options of the command."""

    project: str | None = Field(default=None, description="Folder with a gobblin.yaml; default: the nearest one.")
    job: str | None = Field(default=None, description="Name of one of its jobs; default: all jobs.")


class JobScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Names an existing project; if there is none, writes an example job with a file to read."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """Return the options of the command."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the component's `defs.yaml`; raises UsageError if the folder of `project` has no gobblin.yaml."""
        folder = request.target_path.parent if request.append else request.target_path
        root = _project(request.params.project, folder)
        if root is None:
            _write_rows(folder)
            dg.scaffold_component(request, {"job": _JOB})
            return
        attributes = {"project": os.path.relpath(root, folder)}
        dg.scaffold_component(request, attributes | ({"job": request.params.job} if request.params.job else {}))


def _project(named: str | None, folder: Path) -> Path | None:
    if named is not None:
        root = Path(named).resolve()
        if not (root / "gobblin.yaml").is_file():
            raise UsageError(problem=f"{root} has no gobblin.yaml.", hint="`gobblin init` makes a project.")
        return root
    try:
        return find_project(folder).resolve()
    except UsageError:
        return None


def _write_rows(folder: Path) -> None:
    file = folder / "data" / "en" / "2024-01-01.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_ROWS, encoding="utf-8")
