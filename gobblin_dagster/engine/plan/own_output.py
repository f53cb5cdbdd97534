"""Find datasets of which a run would read what its own job has published.

`validation` compares the paths of a job file. A link inside of the source's folders, or the output's folder mounted
there too, is seen only at the files themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.traits import PublisherTraits, traits_of
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec

_PUBLISHED = re.compile(r"[0-9a-f]{32}-")
"""In the name of each published file, also of merged and compacted ones: the id of its commit."""
_OF_TABLE = re.compile(r"part-[0-9]{5}-")
"""How names begin of files that a library writes into a table in the folders of its branch."""


def own_output(job: JobSpec, context: RunContext, datasets: Iterable[DatasetPlan]) -> dict[str, str]:
    """Return, by dataset.urn, why datasets cannot be read: one of their files was published by the job itself.

    Args:
        job: the job.
        context: of the run; only local folders of its output are compared.
        datasets: with the work units of the run.
    """
    output_root = context.output_root
    if "://" in output_root:
        return {}
    branches = [*(branch.name for branch in job.fork.branches), QUARANTINE_BRANCH]
    ours = {_identity(Path(output_root, job.dataset_folder(name, "d")).parent) for name in branches} - {None}

    @cache
    def is_ours(folder: str) -> bool:
        real = Path(os.path.realpath(folder))
        return any(_identity(above) in ours for above in (real, *real.parents))

    @cache
    def has_table() -> bool:
        specs = map(job.publisher_of, job.fork.branches)
        made = (registry.create(ConstructKind.PUBLISHER, spec, context.construct_context(job)) for spec in specs)
        return any(traits_of(publisher, PublisherTraits).is_in_output for publisher in made)

    def is_published(path: str) -> bool:
        name = path.rpartition("/")[2]
        return bool(_PUBLISHED.search(name)) or (bool(_OF_TABLE.match(name)) and has_table())

    problems = {}
    base_dir = context.construct_context(job).base_dir
    for dataset in datasets if ours else ():
        published = filter(is_published, _paths(dataset, base_dir))
        if path := next((path for path in published if is_ours(os.path.dirname(path))), None):  # noqa: PTH120 - as text
            problems[dataset.dataset_urn] = (
                f"file {path}: this job has published it, and would read it again and again; take away the link or "
                "mount that leads from the source's folders to the output, or choose another `output.path`"
            )
    return problems


def _paths(dataset: DatasetPlan, base_dir: str) -> Iterator[str]:
    """Yield the local files of a dataset's work units, as the source `files` names them."""
    for unit in dataset.work_units:
        files: Any = unit.read.get("files", ())
        local = (file["path"] for file in files if "://" not in file["path"])
        yield from (os.path.join(base_dir, path) for path in local)  # noqa: PTH118 - keeps the text


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what a folder is known by, whatever path or mount leads to it; None if it is not there."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
