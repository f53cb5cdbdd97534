"""Detect that a job was renamed: another one published the same datasets to the same place, and does so no more.

Both may run at the same time. So each of them looks at what the other one has committed, and at what it is committing,
once its own commit is stored: then at least one of the two sees the other one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from itertools import islice

from gobblin_dagster.core.commit import WAITING, CommitStep, PublishedFile, SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, GobblinDagsterError, StorageError
from gobblin_dagster.core.same_place import PlaceIdentity, do_meet
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import LedgerKeeper, branch_places, ledger_keepers, make_publishers
from gobblin_dagster.engine.snapshots.lost_store import MOST_COMMITS, PublishedJob, branch_folder, table_commits
from gobblin_dagster.spec.job import JobSpec

_LOOKS = 10
"""Most files of a former job that are looked for in an output that may be its own by another name."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a job knows of a dataset that it would publish."""

    since: datetime | None = None
    """When it committed the dataset last, or a person said by a startpoint where it begins; None: never."""
    committed: CommittedRanges | None = None
    """What it published, or had put behind it; None if that does not matter."""
    begins: bool = False
    """Whether it never committed the dataset."""
    prepared: datetime | None = None
    """When its own commit was stored, if that was left: commits that were left before it give way."""


def published_by_former_jobs(
    opened: PublishedJob, project: Project, others: Iterable[str], known: Mapping[str, Known], *, is_of_flow: bool
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows twice: another job published them to the same place.

    Jobs of the project that publish to one place side by side do so on purpose; but no flow begins beside another one
    that publishes the same rows there.

    Args:
        opened: the job.
        project: its project.
        others: names of jobs that the state store knows.
        known: the datasets.
        is_of_flow: whether the job is one of a flow.

    Raises:
        StorageError, StepRefusedError, EnvironmentFaultError: the state store, a table or topic, or the settings of a
            publisher cannot be read.
        TransientError: a store is away.
    """
    place, found = _Place(opened, project), dict[str, str]()
    waiting: dict[str, dict[str, StoredSequence]] = {}
    for one in opened.store.load_sequences(None, WAITING, list(known)):
        if one.job != opened.job.job:
            waiting.setdefault(one.job, {}).setdefault(one.dataset_urn, one)
    for name in sorted({*others, *waiting}):
        left = [urn for urn in known if urn not in found]
        states, _ = opened.store.load_readable_states(name, left)
        for urn in left:
            what = place.unfinished(waiting.get(name, {}).get(urn), known[urn])
            if not what and urn in states and place.holds_more(states[urn], known[urn]):
                what = f"published this dataset up to {states[urn].watermark} to the same place"
            mark = states[urn].watermark if urn in states else None
            if not what:
                continue
            why = _why(place, name, what, mark, is_of_flow=is_of_flow)
            if not why and is_of_flow and known[urn].begins and place.has_twin(name):
                why = _why_twin(place, name, what, mark)
            if why:
                found[urn] = why
    return found


def _why(place: _Place, name: str, what: str, mark: Watermark | None, *, is_of_flow: bool) -> str:
    """Return why a job must not publish after another one, or beside it; empty if it may."""
    if not place.is_home_of(name):
        gone = "which this project does not have here any more"
        if place.project.is_as_ordered:
            gone = "which no flow had here when this job was ordered"
        command = place.project.startpoint_command(is_of_flow=is_of_flow)
        of_flow = "the flow or its template" if is_of_flow else "the job"
        of_job = "another job, here or in another project that shares the store"
        other = "another flow, or has another template on purpose" if is_of_flow else of_job
        return (
            f"job {name!r}, {gone}, {what}. If {of_flow} was renamed, these rows would come twice: "
            f"give it its former name again. If it is {other}, {command} says where it begins ({_begins(mark)})."
        )
    if not place.is_home_of(place.opened.job.job):
        return (
            f"job {name!r} {what}, and the project does not have this job for it any more: its flow was changed or "
            "deleted since. If that one took its place, these rows would come twice."
        )
    return ""


def _why_twin(place: _Place, name: str, what: str, mark: Watermark | None) -> str:
    """Return why a flow must not begin beside another one that publishes the same rows."""
    command = place.project.startpoint_command(is_of_flow=True)
    return (
        f"job {name!r} of another flow, which has the same source and the same steps, {what}. These rows would come "
        "twice: delete one of the two flows. If this one is to take its place, delete that one first; then "
        f"{command} says where it begins ({_begins(mark)})."
    )


def _begins(mark: Watermark | None) -> str:
    goes_on = f"{mark}: it goes on from there; " if mark is not None else ""
    return f"{goes_on}`oldest`: its rows are published beside those"


class _Place:
    """The place that a job publishes to, and what other jobs have there."""

    def __init__(self, opened: PublishedJob, project: Project) -> None:
        self.opened, self.project = opened, project
        self.is_home_of = cache(self._is_home_of)
        self.has_twin = cache(partial(project.has_twin, opened.job.job))
        self._asked: dict[tuple[str, str, int], Collection[str | None]] = {}

    @cached_property
    def _keepers(self) -> list[LedgerKeeper]:
        return ledger_keepers(self.opened.job, self.opened.context)

    def unfinished(self, stored: StoredSequence | None, known: Known) -> str:
        """Say what another job is publishing here, or was when it was killed; empty if nothing."""
        if stored is None or not self._is_sent_here(stored):
            return ""
        lease = self.opened.store.load_leases(stored.job).get(stored.dataset_urn)
        if lease is not None and lease.is_held(self.project.clock.now()):
            return f"is publishing this dataset to the same place now (run {stored.run_id}; wait until it has ended)"
        since = known.prepared or known.since
        if since is not None and stored.created_at <= since:
            return ""
        return f"has a commit of this dataset to the same place that is not finished (sequence {stored.id})"

    def holds_more(self, state: DatasetState, known: Known) -> bool:
        """Return whether another job has published here since, and something else than this one has."""
        opened, urn, since = self.opened, state.dataset_urn, known.since
        if since is None and self._holds_files(opened.store.load_snapshot(state.job, urn), state.job, urn):
            return True
        if since is not None and state.updated_at <= since:
            return False
        if known.committed is not None and not _more(state.settled, known.committed):
            return False
        committed = opened.store.load_sequences(state.job, [SequenceState.COMMITTED], [urn], MOST_COMMITS)
        return any(self._is_sent_here(one) for one in committed if since is None or one.created_at > since)

    def _is_sent_here(self, stored: StoredSequence) -> bool:
        """Return whether a commit has files or rows for the places of this job."""
        try:
            sequence = decode_sequence(stored, self.opened.store.places, skip_unknown_steps=True)
        except CorruptRecordError:
            return False
        if self._holds_files(sequence.files, stored.job, stored.dataset_urn):
            return True
        steps = [step for step, _ in table_commits(self.opened, stored)]
        return any(self._is_aimed_here(step, stored) for step in steps)

    def _is_aimed_here(self, step: CommitStep, stored: StoredSequence) -> bool:
        """Return whether a step has rows for a table or topic of this job, whatever words name it."""
        from gobblin_dagster.constructs.publishers.tables import AimsSteps  # noqa: PLC0415 - as in `table_commits`

        for number, keeper in enumerate(self._keepers):
            if not keeper.suffers_again or not isinstance(keeper.publisher, AimsSteps):
                continue
            aimed = keeper.publisher.aimed(step, branch_folder(self.opened, keeper.branches[0], stored.dataset_urn))
            if aimed == step:
                return True
            if aimed is None:
                continue
            here, there = _place_of(aimed), _place_of(step)
            if here is not None and there is not None and here.is_same(there):
                return True
            may_be = here is None or there is None or here.may_be(there)
            if may_be and stored.id in self._noted(number, stored):
                return True
        return False

    def _noted(self, number: int, stored: StoredSequence) -> Collection[str | None]:
        """Return the newest commits of a dataset that a target has of another job, if nothing else can tell.

        The target is asked for jobs alone that the project has no more: of others it is known where they publish.
        """
        name, urn = stored.job, stored.dataset_urn
        if self.project.has(name):
            return ()
        if (name, urn, number) not in self._asked:
            former = self.opened.job.model_copy(update={"job": name})
            publisher = ledger_keepers(former, self.opened.context)[number].publisher
            folder = branch_folder(self.opened, self._keepers[number].branches[0], urn)
            noted = publisher.newest_commits({urn: folder}).get(urn, ())
            self._asked[name, urn, number] = {one.commit_id for one in noted}
        return self._asked[name, urn, number]

    def _holds_files(self, files: Iterable[PublishedFile], name: str, urn: str) -> bool:
        """Return whether one of the files of a job is in a folder of this job."""
        folders = [branch_folder(self.opened, branch.name, urn) for branch in self.opened.job.fork.branches]
        theirs = {posixpath.dirname(file.path): file for file in files}
        if any(f"{one}/".startswith(f"{folder}/") for one in theirs for folder in folders):
            return True
        ours = [PlaceIdentity.of(folder) for folder in folders] if theirs else []
        there = {PlaceIdentity.of(one): file for one, file in theirs.items()}
        if any(folder.holds(one) for one in there for folder in ours):
            return True
        found = {
            posixpath.join(root, one.path.removeprefix(folder.path).strip("/"), posixpath.basename(file.path)): file
            for one, file in there.items()
            for root, folder in zip(folders, ours, strict=True)
            if folder.may_hold(one)
        }
        # A server may have several names (DNS, a service of HDFS). Its files tell, as no two commits share their names.
        # Of jobs that the project has, it is known where they publish.
        return bool(found) and not self.project.has(name) and any(map(self._is_there, islice(found.items(), _LOOKS)))

    def _is_there(self, published: tuple[str, PublishedFile]) -> bool:
        path, file = published
        try:
            return self.opened.storage.size(path) == file.size_bytes
        except OSError as error:
            raise StorageError.of(error, "look for", path) from error

    def _is_home_of(self, name: str) -> bool:
        """Return whether the project has a job now that publishes here, as far as that is known."""
        return self.project.has(name, lambda job: job is not None and self._meets(job))

    def _meets(self, job: JobSpec) -> bool:
        try:
            theirs = self._homes(job)
        except GobblinDagsterError:  # a package or a variable is not here: nobody knows
            return True
        return do_meet(self._own_homes, theirs)

    @cached_property
    def _own_homes(self) -> Collection[str]:
        return self._homes(self.opened.job)

    def _homes(self, job: JobSpec) -> list[str]:
        context = self.project.run_context(job, self.opened.context.run_id)
        homes = branch_places(job, context, make_publishers(job, context, "any"))
        return [place for home in homes.values() for place in home.values() if place]


def _place_of(step: CommitStep) -> PlaceIdentity | None:
    """Return the table or topic of a step; None if that is not known here."""
    from gobblin_dagster.constructs.publishers.tables import HasPlace  # noqa: PLC0415 - as in `table_commits`

    place = step.place if isinstance(step, HasPlace) else ""
    # A step of a user's own may call anything so.
    return PlaceIdentity.of(place) if isinstance(place, str) and place else None


def _more(theirs: CommittedRanges, ours: CommittedRanges) -> bool:
    """Return whether a job has committed positions that another one has not."""
    return theirs.watermark_type is not ours.watermark_type or bool(theirs.minus(ours).ranges)
