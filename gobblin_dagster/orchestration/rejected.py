"""Tell in Dagster where rejected rows came from and why, but never what stands in them.

Dagster's database is often open to more people than the data, and keeps events for ever. So the metadata name policy,
rule, file and row, and the command that shows the rows to people who may read the quarantine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pyarrow as pa

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.snapshots.rejected_rows import QuarantinedRow, first_quarantined
from gobblin_dagster.spec.job import PRE_FORK, JobSpec

SHOWN = 5
"""Number of rejected rows that the metadata of a commit tell of."""


def rejected_examples(job: JobSpec, dataset_urn: str, files: Sequence[PublishedFile]) -> str:
    """Return the origins of the first rejected rows of a commit as Markdown; empty if they cannot be read.

    The reason is told for policies of the job alone: it is their rule. A converter's reason often quotes the row.

    Args:
        job: the job that made the commit.
        dataset_urn: its dataset.
        files: all files that the commit published.
    """
    try:
        rows = first_quarantined(dataset_urn, files, SHOWN)
    except (GobblinDagsterError, OSError, pa.ArrowException):  # the commit is told without them
        return ""
    if not rows:
        return ""
    # With the stage: a converter of another stage may have the name of a policy.
    stages = [(PRE_FORK, job.row_policies), *((branch.name, branch.row_policies) for branch in job.fork.branches)]
    rules = {(stage, policy.name) for stage, policies in stages for policy in policies}
    lines = ["| rejected by | reason | file | row |", "|---|---|---|--:|"]
    lines += [_line(row, row.reason if (row.stage, row.policy) in rules else "") for row in rows]
    command = f"gobblin quarantine show {shlex.quote(dataset_urn)} --job {shlex.quote(job.job)}"
    return "\n".join([*lines, "", f"`{command}` shows the rows."])


def _line(row: QuarantinedRow, reason: str) -> str:
    cells = [row.policy, reason, row.source_file, "" if row.source_row is None else str(row.source_row)]
    return "| " + " | ".join(" ".join(hidden(cell).split()).replace("|", "\\|") for cell in cells) + " |"
