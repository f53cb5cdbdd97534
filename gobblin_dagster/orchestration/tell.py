"""tell_commits: tell a Dagster instance the newest commits of a job at once, without a run and without a sensor.

The sweep does it by itself for commits that its instance has not heard of. This is for what it does not do: an asset
was wiped in Dagster, or a newer version of this package tells more about the same commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.import_target import load_target
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.dev import dagster_home
from gobblin_dagster.orchestration.events import materialization, to_dagster_run
from gobblin_dagster.orchestration.partitions import add_partitions
from gobblin_dagster.orchestration.reconcile import is_shown, last_publication
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class Told:
    """What a Dagster instance was told of one job; dataset.urns in their order."""

    assets: tuple[str, ...]
    """The assets of the job's branches, as Dagster writes their keys."""
    told: tuple[str, ...]
    """Datasets whose newest commit was told, or would be in a dry run."""
    known: tuple[str, ...]
    """Datasets whose newest commit Dagster shows already."""
    running: tuple[str, ...]
    """Datasets whose newest commit is of a run that goes on: the run tells it."""


def tell_commits(
    binding: JobBinding,
    store: StateStore,
    instance: dg.DagsterInstance,
    *,
    is_wanted: Callable[[str], bool] = lambda _: True,
    again: bool = False,
    dry_run: bool = False,
) -> Told:
    """Tell Dagster the newest commit of each dataset: one materialization per branch, and the partition if it is new.

    Checks are not told, as in the sweep: outside of a run, Dagster stores one evaluation per check and partition.

    Args:
        binding: the job.
        store: the state store of its project.
        instance: the Dagster instance.
        is_wanted: tells for a dataset.urn whether to work on it; default: all.
        again: also commits that Dagster shows already.
        dry_run: change nothing.

    Raises:
        CorruptRecordError: a commit sequence cannot be read.
    """
    told: list[str] = []
    known: list[str] = []
    running: list[str] = []
    for urn in sorted(filter(is_wanted, store.load_readable_states(binding.name)[0])):
        publication = last_publication(binding, store, urn)
        if publication is None:
            continue  # its state was set by a person, so there is nothing to tell
        run = instance.get_run_by_id(to_dagster_run(publication.run_id))
        if run is not None and not run.is_finished:
            running.append(urn)
            continue
        branches = [one for one, key in binding.keys.items() if again or not is_shown(instance, key, publication)]
        (told if branches else known).append(urn)
        if branches and not dry_run:
            add_partitions(instance, binding.partitions_name, [urn])
            for branch in branches:
                instance.report_runless_asset_event(materialization(binding, branch, publication))
    assets = tuple(key.to_user_string() for key in binding.keys.values())
    return Told(assets, tuple(told), tuple(known), tuple(running))


@contextmanager
def open_instance(root: Path) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance that `gobblin dev` uses for a project.

    Raises:
        UsageError: its folder does not exist.
    """
    home = dagster_home(root).absolute()
    if not home.is_dir():
        raise UsageError(
            problem=f"There is no Dagster instance: {home} is no folder.",
            hint="Start Dagster once with `gobblin dev`, or set DAGSTER_HOME to the folder of its `dagster.yaml`.",
        )
    former = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(home)
    try:
        opened = dg.DagsterInstance.get()
    finally:
        if former is None:
            del os.environ["DAGSTER_HOME"]
        else:
            os.environ["DAGSTER_HOME"] = former
    with opened as instance:
        yield instance


def load_translator(target: str | None) -> GobblinTranslator | None:
    """Return the translator that a target `module:Class` names; None stands for the default one.

    Raises:
        UsageError: it cannot be imported, or it is no class of translators.
    """
    if target is None:
        return None
    try:
        found = load_target(target)
    except ImportError as error:
        raise UsageError(
            problem=f"The translator {target!r} cannot be imported: {error}.",
            hint="Write `module:Class`; modules of the project's folder are found.",
        ) from error
    if not (isinstance(found, type) and issubclass(found, GobblinTranslator)):
        raise UsageError(
            problem=f"{target!r} is no translator.", hint="Name a class that inherits from `GobblinTranslator`."
        )
    return found()
