"""Startpoints and their history in a file store.

    jobs/<job>/startpoints/<id>                     the dataset.urn that has, or had, this startpoint
    jobs/<job>/startpoint_events/<urn>/<time>-...   what happened to startpoints, for the history; the newest events
                                                    are in the head
    jobs/<job>/startpoint_events/<urn>/.begun       there before the first event of the dataset

The startpoints themselves are in the heads of their datasets, so that a commit that used them also deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    DamagedStartpoint,
    Startpoint,
    StartpointChange,
    StartpointEvent,
    StartpointKey,
    events_of,
)
from gobblin_dagster.state.files import changes
from gobblin_dagster.state.files.folder import StoreFolder, segment
from gobblin_dagster.state.files.records import DatasetHead, decode, encode

log = logging.getLogger(__name__)


def _event_order(key: tuple[str, str]) -> tuple[str, int, str]:
    """Return what orders events by their file and dataset: an import may bring more than ten, and 9 is before 10.

    Files of layout 4 end with the startpoint's id in place of a number.
    """
    begin, _, index = key[0].removesuffix(".json").rpartition("-")
    return begin, int(index) if index.isdigit() else 0, key[1]


class StartpointFiles:
    """Read and write the startpoints of a store.

    Args:
        folder: the store's folder.
        clock: gives the times of events.
    """

    def __init__(self, folder: StoreFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def save(self, startpoint: Startpoint) -> None:
        """Set a startpoint, in place of the one of its key."""
        self._store(startpoint, lambda _: True, "set", startpoint.who)

    def fan_out(self, copy: Startpoint, run_id: str) -> bool:
        """Store a copy unless its key has a newer startpoint; return whether the key has the copy now."""
        return self._store(copy, copy.replaces, "fanned out", run_id)

    def _store(
        self, startpoint: Startpoint, may_replace: Callable[[Startpoint], bool], change: StartpointChange, who: str
    ) -> bool:
        def save(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            if found is not None and not may_replace(found):
                return None
            return changes.save_startpoint(head, startpoint), events_of(
                change, startpoint, found, self._clock.now(), who
            )

        with self._folder.errors():
            self._mark(startpoint)
        is_stored, found = self._change(startpoint, save)
        if is_stored and found is not None and found.id != startpoint.id:
            self.forget(startpoint.job, [found.id])
        return is_stored

    def pin(self, startpoint: Startpoint, run_id: str) -> bool:
        """Replace the startpoint with this key and id; return False if there is none."""

        def pin(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            if found is None or found.id != startpoint.id:
                return None
            events = events_of("fanned out", startpoint, found, self._clock.now(), run_id)
            return changes.save_startpoint(head, startpoint), events

        return self._change(startpoint, pin)[0]

    def load(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        """Return startpoints by dataset and partition; for all jobs damaged ones too (`DamagedStartpoint`).

        Damage to a head of a job itself is told by whoever loads the states, which are in the same heads.
        """
        with self._folder.errors():
            names = self._folder.names(*_markers(job))
            marked = self._folder.each(self._marked, [self._marker(job, name) for name in names])
        wanted = {urn for urn in marked if urn is not None and (urns is None or urn in urns)}
        heads, damaged = self._folder.heads(job, wanted)
        if job == ALL_JOBS:
            heads += [_damaged_head(urn, error) for urn, error in damaged.items()]
        return [one for head in sorted(heads, key=lambda head: head.dataset_urn) for one in head.all_startpoints]

    def delete(self, startpoint: Startpoint, who: str, change: StartpointChange = "removed") -> bool:
        """Delete the startpoint with this key and id; return whether there was one."""

        def delete(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            event = StartpointEvent(startpoint, change, self._clock.now(), who)
            if found is None or not event.may_delete(found):
                return None
            return changes.delete_startpoint(head, startpoint.partition), [event]

        is_there, found = self._change(startpoint, delete)
        if is_there or found is None or found.id != startpoint.id:
            self.forget(startpoint.job, [startpoint.id])
        return is_there

    def _change(
        self,
        startpoint: Startpoint,
        apply: Callable[[DatasetHead, Startpoint | None], tuple[DatasetHead, list[StartpointEvent]] | None],
    ) -> tuple[bool, Startpoint | None]:
        """Change the startpoint of a key.

        Args:
            startpoint: has the key.
            apply: takes the head and the startpoint that the key holds; returns the next head and the events of the
                change, or None if nothing is to be changed.

        Returns:
            Whether `apply` changed anything, and what the key held before.
        """
        is_changed, found = False, None

        def change(head: DatasetHead, number: int) -> DatasetHead | None:
            nonlocal is_changed, found
            found = changes.startpoint_of(head, startpoint.partition)
            changed = apply(head, found)
            is_changed = changed is not None
            if changed is None:
                return None
            for one in changed[0].all_startpoints:
                if isinstance(one, DamagedStartpoint):
                    raise one.error  # the change is one of a partition: the damage would be written as a position
            return self._with_events(head, *changed, number)

        def if_damaged(error: CorruptRecordError) -> DatasetHead:
            if startpoint.job != ALL_JOBS:
                raise error  # the head holds a dataset's state too, which `gobblin state restore` mends
            return _damaged_head(startpoint.dataset_urn, error)

        with self._folder.errors():
            self._folder.dataset(startpoint.job, startpoint.dataset_urn).change(change, if_damaged)
        return is_changed, found

    def bring(
        self, job: str, dataset_urn: str, startpoints: Sequence[Startpoint], events: Sequence[StartpointEvent]
    ) -> None:
        """Add startpoints whose keys are free, and events, as they are in another store."""

        def bring(head: DatasetHead, number: int) -> DatasetHead:
            # The later one of a key counts.
            brought = changes.with_startpoints(head, [*startpoints, *head.all_startpoints])
            return self._with_events(head, brought, events, number)

        with self._folder.errors():
            for startpoint in startpoints:
                self._mark(startpoint)
            self._folder.dataset(job, dataset_urn).change(bring)

    def _with_events(
        self, before: DatasetHead, after: DatasetHead, events: Sequence[StartpointEvent], number: int
    ) -> DatasetHead:
        """Return the head after a change with the change's events, and write those of the head before it to files."""
        if not events:
            return after
        self.archive_events(before)
        # Before the first event: `load_events` reads only heads of datasets that have this file.
        self._folder.storage.put_if_absent(self._event_path(after.job, after.dataset_urn, ".begun"), b"")
        return changes.with_events(after, events, number)

    def _mark(self, startpoint: Startpoint) -> None:
        """Write the marker of a startpoint, before its head: `load` reads only heads that have a marker."""
        marker = self._marker(startpoint.job, startpoint.id)
        self._folder.storage.put_if_absent(marker, startpoint.dataset_urn.encode())

    def _marker(self, job: str, startpoint_id: str) -> str:
        return self._folder.path(*_markers(job), segment(startpoint_id))

    def _marked(self, marker: str) -> str | None:
        try:
            return self._folder.storage.read(marker).decode()
        except FileNotFoundError:
            return None  # deleted by a commit after it was listed

    def forget(self, job: str, ids: Collection[str]) -> None:
        """Delete the markers of startpoints that a commit deleted; a marker that stays only costs one more read."""
        for startpoint_id in ids:
            with suppress(OSError):
                self._folder.storage.delete(self._marker(job, startpoint_id))

    def _event_path(self, job: str, urn: str, *name: str) -> str:
        return self._folder.path("jobs", segment(job), "startpoint_events", segment(urn), *name)

    def archive_events(self, head: DatasetHead) -> None:
        """Write the events of a head to files, before another head takes its place without them."""
        for noted in head.startpoint_events:
            path = self._event_path(head.job, head.dataset_urn, noted.file_name)
            self._folder.storage.put_if_absent(path, encode(noted.event))

    def load_events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        """Return the history, oldest first; a damaged event hides no other."""
        with self._folder.errors():
            begun = self._folder.names("jobs", segment(job), "startpoint_events")
        wanted = [urn for urn in begun if urns is None or urn in urns]
        # The heads first: events that go to files meanwhile are then found twice instead of never.
        heads, _ = self._folder.heads(job, wanted)
        found = {(noted.file_name, head.dataset_urn): noted.event for head in heads for noted in head.startpoint_events}
        with self._folder.errors():
            keys = [
                (name, urn)
                for urn in wanted
                for name in self._folder.storage.list_names(self._event_path(job, urn))
                if not name.startswith(".") and (name, urn) not in found
            ]
        paths = [self._event_path(job, urn, name) for name, urn in keys]
        contents = self._folder.each(self._folder.storage.read, paths)
        for key, content, path in zip(keys, contents, paths, strict=True):
            try:
                found[key] = decode(StartpointEvent, content, path)
            except CorruptRecordError as error:
                log.warning("The event %s is damaged, and left out: %s", path, error.problem)
        return [found[key] for key in sorted(found, key=_event_order)]


def _damaged_head(urn: str, error: CorruptRecordError) -> DatasetHead:
    """Return what stands for a dataset's head of startpoints for all jobs that cannot be read.

    Its one startpoint stands for all that were in it, those of partitions too, whose ids nobody knows.
    """
    problem = f"{error.what} cannot be read: {error.problem}"
    damaged = DamagedStartpoint.of(StartpointKey(urn, "", ALL_JOBS), "damaged", problem)
    return DatasetHead(ALL_JOBS, urn, startpoint=damaged)


def _markers(job: str) -> tuple[str, str, str]:
    return "jobs", segment(job), "startpoints"
