"""List the steps of a commit in words, from the job alone and before anything is read."""

from __future__ import annotations

from gobblin_dagster.engine.commit.all_or_none import is_all_or_none
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.storage.schemes import scheme_of


def branch_names(spec: JobSpec) -> tuple[str, ...]:
    """Return the branches that a dataset is published to; the quarantine comes last if a policy uses it."""
    names = tuple(branch.name for branch in spec.fork.branches)
    return (*names, QUARANTINE_BRANCH) if spec.has_quarantine else names


def commit_outline(spec: JobSpec) -> tuple[str, ...]:
    """Return the steps of a commit, in order, one sentence each."""
    path = spec.output.path
    renames = "://" not in path or scheme_of(path).renames
    how = "rename staged files into place" if renames else "copy staged files into place (this storage has no rename)"
    move = f"{how}: {', '.join(branch_names(spec))}"
    is_logged = spec.commit.delivery == "exactly_once"
    lines = [f"store the commit sequence (write-ahead), then {move}" if is_logged else move]
    if permissions := _permissions(spec):
        lines.append(f"set permissions: {permissions}")
    if publishers := _publishers(spec):
        lines.append(f"what publishers do in addition: {publishers}")
    if spec.commit.steps:
        lines.append(f"steps of your own: {', '.join(step.type for step in spec.commit.steps)}")
    once = "once all datasets are so far, " if is_all_or_none(spec) else ""
    lines.append(f"{once}one transaction: move the watermark, add the snapshot, end the sequence")
    lines.append("write the manifest, delete the staging folder")
    return tuple(lines)


def _permissions(spec: JobSpec) -> str:
    output = spec.output
    named = {"files": output.file_mode, "folders": output.dir_mode, "group": output.group}
    return ", ".join(f"{what} {value}" for what, value in named.items() if value)


def _publishers(spec: JobSpec) -> str:
    """Name the publishers that do more than append, with their mode."""
    found = {branch.name: spec.publisher_of(branch) for branch in spec.fork.branches}
    named = {name: f"{one.type} {one.options.get('mode', '')}".rstrip() for name, one in found.items()}
    return ", ".join(f"{what} ({name})" for name, what in named.items() if what != "append")
