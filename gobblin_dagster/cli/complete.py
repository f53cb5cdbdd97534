"""Names that the shell completes: jobs of the project, and datasets of its state store.

Completion shows nothing where a command would show an error. `gobblin --install-completion` sets it up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import typer


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the project's jobs that begin so."""
    from gobblin_dagster.spec.load import load_jobs, load_project  # noqa: PLC0415 - `--help` needs no pydantic

    def names() -> list[str]:
        root = _root(ctx)
        project = load_project(root)
        # The name needs no secrets, and a command that finds one may be slow.
        unasked = {**dict.fromkeys(project.secrets, "x"), **os.environ}
        return [job.spec.job for job in load_jobs(root, project, environ=unasked)[0]]

    return _beginning(names, incomplete)


def dataset_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the published datasets that begin so, of the job in `--job` or of all."""
    from gobblin_dagster.spec.load import load_project  # noqa: PLC0415 - `--help` needs no pydantic
    from gobblin_dagster.state import open_store  # noqa: PLC0415 - `--help` needs no store

    def names() -> list[str]:
        root = _root(ctx)
        with closing(open_store(load_project(root).state, root)) as store:
            job = ctx.params.get("job")
            jobs = [job] if isinstance(job, str) else store.list_jobs()
            return sorted({urn for one in jobs for urn in store.load_readable_states(one)[0]})

    return _beginning(names, incomplete)


def _root(ctx: typer.Context) -> Path:
    from gobblin_dagster.spec.load import find_project  # noqa: PLC0415 - `--help` needs no pydantic

    return find_project(Path(ctx.find_root().params.get("project") or ""))


def _beginning(names: Callable[[], list[str]], incomplete: str) -> list[str]:
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a message would break the line that somebody types
        return []
