"""Copy state from one store to another without loss: exported as JSON lines, imported by replaying every commit.

    {"format": "GobblinState/3", ...}      the first line
    {"base": {...}}                        of a dataset whose first sequences were pruned: its files up to the next line
    {"sequence": {...}}                    each committed sequence, by dataset and version; body and digest untouched
    {"startpoint": {...}}                  each waiting startpoint
    {"startpoint_event": {...}}            each event of the history of startpoints, oldest first
    {"run": {...}}                         each run's record
    {"end": 8}                             the last line: the number of lines before it

A dataset's state, its versions and its snapshots all follow from its committed sequences, so replaying them in a store
of any kind gives the same states, snapshots and history. If the first ones were pruned, the oldest one that is left
tells the state to begin with. Aborted sequences changed nothing and are left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from gobblin_dagster.core.commit import (
    WAITING,
    CommitSequence,
    FileHistory,
    PublishedFile,
    SequenceState,
    StoredSequence,
    body_digest,
    canonical_json,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UnfinishedSequenceError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import AS_STORED, Places
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.serialization import from_document, to_document
from gobblin_dagster.core.startpoint import ALL_JOBS, DamagedStartpoint, Startpoint, StartpointEvent, StartpointKey
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.maintenance.state_change import LEASE_TTL
from gobblin_dagster.state.store import StateStore

FORMAT = "GobblinState/3"
_FORMATS = (FORMAT, "GobblinState/2", "GobblinState/1")
"""Format 2 had no events of startpoints, and format 1 no bases: it held every commit."""
MAX_RUNS = 1_000_000
_ENDS = ("replaced", "removed", "expired")
"""Changes that end a startpoint, but for a commit that applied it."""
_FILE_FIELDS = tuple(each.name for each in dataclasses.fields(PublishedFile))
Key: TypeAlias = tuple[str, str]
"""Job and dataset.urn."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The content of an export."""

    all_sequences: tuple[StoredSequence, ...] = ()
    """Committed sequences; those of a dataset in order of their versions."""
    runs: tuple[RunRecord, ...] = ()
    startpoints: tuple[Startpoint, ...] = ()
    startpoint_events: tuple[StartpointEvent, ...] = ()
    """Those of a key oldest first."""
    bases: Mapping[Key, tuple[FileHistory, ...]] = field(default_factory=dict)
    """Of datasets whose first sequences are not in it: all files up to its oldest sequence, with paths as stored."""

    @property
    def sequences(self) -> dict[Key, tuple[StoredSequence, ...]]:
        """Committed sequences by dataset, oldest first."""
        return _by_dataset(self.all_sequences)

    def standing(self) -> Standing:
        """Return the newest state, and the startpoint, of each dataset."""
        states = {key: _decoded(sequences[-1]).after for key, sequences in self.sequences.items()}
        return Standing(states, {(one.job, one.dataset_urn): one for one in self.startpoints if not one.partition})


def export_state(store: StateStore, jobs: Sequence[str], is_selected: Callable[[str], bool]) -> Iterator[str]:
    """Yield the lines of an export.

    Raises:
        UnfinishedSequenceError: a sequence is unfinished or quarantined; a copy of the store could not finish it.
        CorruptRecordError: a commit is missing in a dataset's history.
    """
    number = 0
    for line in _lines(store, jobs, is_selected):
        number += 1
        yield line
    # An import of an incomplete file would move watermarks back.
    yield canonical_json({"end": number})


def _lines(store: StateStore, jobs: Sequence[str], is_selected: Callable[[str], bool]) -> Iterator[str]:
    yield canonical_json({"format": FORMAT, "jobs": list(jobs)})
    for job in jobs:
        for stored in store.load_sequences(job, WAITING):
            if is_selected(stored.dataset_urn):
                raise UnfinishedSequenceError(dataset_urn=stored.dataset_urn, sequence_id=stored.id)
        # Read before the commits: if a startpoint is consumed meanwhile, its commit says so, and it is not imported.
        startpoints, (states, _) = list(_startpoint_lines(store, job, is_selected)), store.load_readable_states(job)
        committed = [s for s in store.load_sequences(job, {SequenceState.COMMITTED}) if is_selected(s.dataset_urn)]
        # By version and not by time, because clocks of drivers may differ.
        committed.sort(key=lambda stored: (stored.dataset_urn, stored.version_read))
        _require_whole(_by_dataset(committed), states, is_selected)
        for sequences in _by_dataset(committed).values():
            if sequences[0].version_read:
                yield canonical_json({"base": _base_to_json(store, sequences[0])})
            for stored in sequences:
                yield canonical_json({"sequence": _sequence_to_json(stored)})
        yield from startpoints
        for run in reversed(store.load_runs(job, MAX_RUNS)):
            yield canonical_json({"run": to_document(run)})
    if set(store.list_jobs()) <= set(jobs):
        yield from _startpoint_lines(store, ALL_JOBS, is_selected)


def _startpoint_lines(store: StateStore, job: str, is_selected: Callable[[str], bool]) -> Iterator[str]:
    for startpoint in store.list_startpoints(job):
        if is_selected(startpoint.dataset_urn):
            if isinstance(startpoint, DamagedStartpoint):
                raise startpoint.error
            yield canonical_json({"startpoint": to_document(startpoint)})
    for event in store.load_startpoint_events(job):
        if is_selected(event.startpoint.dataset_urn):
            yield canonical_json({"startpoint_event": to_document(event)})


def _require_whole(
    known: Mapping[Key, Sequence[StoredSequence]],
    states: Mapping[str, DatasetState],
    is_selected: Callable[[str], bool],
) -> None:
    for urn, state in states.items():
        if not is_selected(urn):
            continue
        sequences = known.get((state.job, urn), ())
        # There may be newer sequences, if a run commits meanwhile; the oldest ones may be pruned.
        if not sequences or sequences[-1].version_read < state.version - 1 or _has_hole(sequences):
            problem = f"it has version {state.version} and {len(sequences)} commit sequences, which are not its newest"
            raise CorruptRecordError(what=f"The history of dataset {urn!r} of job {state.job!r}", problem=problem)


def _has_hole(sequences: Sequence[StoredSequence]) -> bool:
    first = sequences[0].version_read
    return [one.version_read for one in sequences] != list(range(first, first + len(sequences)))


def _base_to_json(store: StateStore, oldest: StoredSequence) -> dict[str, Any]:
    upto = _decoded(oldest).after.snapshot
    files = [
        {
            **dataclasses.asdict(one.file),
            "path": store.places.to_stored(one.file.path),
            "removed": [number for number in one.removed if number <= upto],
        }
        for one in store.load_history(oldest.job, oldest.dataset_urn)
        if one.file.snapshot <= upto
    ]
    files.sort(key=lambda file: (file["snapshot"], file["branch"], file["path"]))
    digest = body_digest(canonical_json(files))
    return {"job": oldest.job, "dataset_urn": oldest.dataset_urn, "files": files, "digest": digest}


def _base_from_json(raw: Any, number: int) -> tuple[Key, tuple[FileHistory, ...]]:
    try:
        if body_digest(canonical_json(raw["files"])) != raw["digest"]:
            raise CorruptRecordError(what="The export", problem=f"line {number} does not match its digest")
        files = tuple(
            FileHistory(PublishedFile(**{name: file[name] for name in _FILE_FIELDS}), tuple(file["removed"]))
            for file in raw["files"]
        )
        return (raw["job"], raw["dataset_urn"]), files
    except (KeyError, TypeError) as error:
        raise CorruptRecordError(what="The export", problem=f"line {number} is not a base: {error!r}") from error


def read_export(lines: Iterable[str]) -> Exported:
    """Read an export whole, checking every digest.

    Raises:
        CorruptRecordError: it is not an export, a line is damaged, lines are missing at the end, or a commit is missing
            in a dataset's history.
    """
    rows = _decoded_lines(lines)
    header = _parsed(next(rows, ""), 1)
    if header.get("format") not in _FORMATS:
        raise CorruptRecordError(what="The export", problem=f"expected format {FORMAT!r}, got {header.get('format')!r}")
    sequences: list[StoredSequence] = []
    runs: list[RunRecord] = []
    startpoints: list[Startpoint] = []
    events: list[StartpointEvent] = []
    bases: dict[Key, tuple[FileHistory, ...]] = {}
    number, end = 1, 0
    for number, line in enumerate(rows, start=2):
        record = _parsed(line, number)
        if "sequence" in record:
            sequences.append(_sequence_from_json(record["sequence"], number))
        elif "base" in record:
            key, files = _base_from_json(record["base"], number)
            bases[key] = files
        elif "startpoint" in record:
            found = from_document(Startpoint, record["startpoint"], older_formats=Startpoint.older_formats)
            startpoints.append(found)
        elif "startpoint_event" in record:
            events.append(from_document(StartpointEvent, record["startpoint_event"]))
        elif "run" in record:
            runs.append(from_document(RunRecord, record["run"]))
        elif "end" in record:
            end = record["end"]
        else:
            raise CorruptRecordError(
                what="The export", problem=f"line {number} is neither base, sequence, startpoint, event nor run"
            )
    if end != number - 1:
        raise CorruptRecordError(
            what="The export", problem=f"it breaks off after line {number}, or lines of it are lost; export again"
        )
    for (job, urn), parts in _by_dataset(sequences).items():
        if _has_hole(parts) or bool(parts[0].version_read) != ((job, urn) in bases):
            raise CorruptRecordError(what="The export", problem=f"the history of {urn!r} of job {job!r} has a hole")
    return Exported(tuple(sequences), tuple(runs), tuple(startpoints), tuple(events), bases)


def _decoded_lines(lines: Iterable[str]) -> Iterator[str]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise CorruptRecordError(what="The export", problem=f"it is not UTF-8 text: {error.reason}") from error


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise CorruptRecordError(what="The export", problem=f"line {number} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise CorruptRecordError(what="The export", problem=f"line {number} is not a JSON object")
    return record


def _by_dataset(sequences: Iterable[StoredSequence]) -> dict[Key, tuple[StoredSequence, ...]]:
    found: dict[Key, list[StoredSequence]] = {}
    for sequence in sequences:
        found.setdefault((sequence.job, sequence.dataset_urn), []).append(sequence)
    return {key: tuple(parts) for key, parts in found.items()}


def _decoded(stored: StoredSequence, places: Places = AS_STORED) -> CommitSequence:
    """Decode a sequence without its custom steps: they are copied as text, so their classes need not be installed."""
    return decode_sequence(stored, places, skip_unknown_steps=True)


def _sequence_to_json(stored: StoredSequence) -> dict[str, Any]:
    values = {each.name: getattr(stored, each.name) for each in dataclasses.fields(stored)}
    return values | {"state": stored.state.value, "created_at": stored.created_at.isoformat()}


def _sequence_from_json(raw: Any, number: int) -> StoredSequence:
    if not isinstance(raw, dict):
        raise CorruptRecordError(what="The export", problem=f"line {number} is not a sequence")
    try:
        stored = from_document(StoredSequence, {**raw, "format": StoredSequence.format_name})
    except CorruptRecordError as error:
        raise CorruptRecordError(
            what="The export", problem=f"line {number} is not a sequence: {error.problem}"
        ) from error
    if stored.state is not SequenceState.COMMITTED:
        raise CorruptRecordError(what="The export", problem=f"line {number} is a sequence that is {stored.state}")
    _decoded(stored)  # checks the digest
    return stored


# -- import ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The changes that an import would make."""

    missing: tuple[StoredSequence, ...]
    """Sequences to replay, in order."""
    unchanged: tuple[Key, ...]
    """Datasets that are equal in the store and in the export."""
    conflicts: tuple[Key, ...]
    """Datasets with other commits in the store than in the export; they are not changed."""
    runs: tuple[RunRecord, ...]
    startpoints: tuple[Startpoint, ...] = ()
    """Startpoints of datasets without one, unless a commit in the store or in the export has consumed them."""
    startpoint_events: tuple[StartpointEvent, ...] = ()
    """Events of startpoints that the store does not have."""
    ahead: tuple[Key, ...] = ()
    """Datasets with all commits of the export and later ones in the store; they are not changed."""
    bases: Mapping[str, tuple[FileHistory, ...]] = field(default_factory=dict)
    """By id of each sequence in `missing` that a dataset's history begins with, though it is not the first one: all
    files up to it."""

    @property
    def has_changes(self) -> bool:
        """True if an import would change anything."""
        return bool(self.missing or self.runs or self.startpoints or self.startpoint_events)

    @property
    def datasets(self) -> tuple[Key, ...]:
        """Datasets that would be created or get more commits."""
        return tuple(dict.fromkeys((s.job, s.dataset_urn) for s in self.missing))

    @property
    def startpoints_by_dataset(self) -> dict[Key, tuple[list[Startpoint], list[StartpointEvent]]]:
        """Startpoints and their events by job, or `ALL_JOBS`, and dataset."""
        found: dict[Key, tuple[list[Startpoint], list[StartpointEvent]]] = {}
        for one in self.startpoints:
            found.setdefault((one.job, one.dataset_urn), ([], []))[0].append(one)
        for event in self.startpoint_events:
            found.setdefault((event.startpoint.job, event.startpoint.dataset_urn), ([], []))[1].append(event)
        return found


def plan_import(store: StateStore, exported: Exported) -> ImportPlan:
    """Compare an export with a store; the rest of an interrupted import is planned."""
    there = exported.sequences
    told = {(one.job, one.dataset_urn) for one in exported.startpoints}
    told |= {(event.startpoint.job, event.startpoint.dataset_urn) for event in exported.startpoint_events}
    jobs = sorted({job for job, _ in there.keys() | told} - {ALL_JOBS} | {run.job for run in exported.runs})
    here: dict[Key, tuple[StoredSequence, ...]] = {}
    for job in jobs:
        ours = sorted(store.load_sequences(job, {SequenceState.COMMITTED}), key=lambda stored: stored.version_read)
        here |= _by_dataset(ours)
    missing: set[str] = set()
    bases: dict[str, tuple[FileHistory, ...]] = {}
    unchanged, conflicts = [], []
    # Of datasets without a commit the export may hold startpoints, which were applied or removed since.
    ahead = sorted(told & here.keys() - there.keys())
    for key, theirs in there.items():
        # Each side may have pruned its first sequences, so only versions that both have can be compared.
        known_ids = {sequence.version_read: sequence.id for sequence in here.get(key, ())}
        their_ids = {sequence.version_read: sequence.id for sequence in theirs}
        shared = known_ids.keys() & their_ids.keys()
        newest, their_newest = max(known_ids, default=-1), max(their_ids)
        if known_ids and (not shared or any(known_ids[version] != their_ids[version] for version in shared)):
            conflicts.append(key)
        elif newest < their_newest:
            missing |= {their_ids[version] for version in their_ids if version > newest}
            if not known_ids and key in exported.bases:
                bases[theirs[0].id] = exported.bases[key]
        elif newest > their_newest:
            ahead.append(key)
        else:
            unchanged.append(key)
    known = {(run.job, run.run_id) for job in jobs for run in store.load_runs(job, MAX_RUNS)}
    startpoints = _missing_startpoints(store, exported, here, [*ahead, *conflicts])
    return ImportPlan(
        missing=tuple(_by_time([sequence for sequence in exported.all_sequences if sequence.id in missing])),
        unchanged=tuple(unchanged),
        conflicts=tuple(conflicts),
        runs=tuple(run for run in exported.runs if (run.job, run.run_id) not in known),
        startpoints=startpoints,
        startpoint_events=_missing_events(store, exported, startpoints, [*ahead, *conflicts]),
        ahead=tuple(ahead),
        bases=bases,
    )


def _missing_startpoints(
    store: StateStore,
    exported: Exported,
    here: Mapping[Key, Sequence[StoredSequence]],
    left_alone: Collection[Key],
) -> tuple[Startpoint, ...]:
    missing = []
    jobs = {one.job for one in exported.startpoints}
    taken = {one.key for job in jobs for one in store.list_startpoints(job)}
    # Counted, and not by their times: events of other machines, with other clocks, came along.
    told = [event for job in jobs for event in store.load_startpoint_events(job)]
    begins = Counter((one.startpoint.key, one.startpoint.id) for one in told if one.change == "set")
    ends = Counter((one.startpoint.key, one.startpoint.id) for one in told if one.change in _ENDS)
    for one in exported.startpoints:
        key = (one.job, one.dataset_urn)
        commits = (*here.get(key, ()), *exported.sequences.get(key, ()))
        is_consumed = any(one.id in _decoded(stored).startpoints for stored in commits)
        is_ended = ends[one.key, one.id] >= max(1, begins[one.key, one.id])
        if key not in left_alone and one.key not in taken and not is_ended and not is_consumed:
            missing.append(one)
    return tuple(missing)


def _missing_events(
    store: StateStore, exported: Exported, startpoints: Sequence[Startpoint], left_alone: Collection[Key]
) -> tuple[StartpointEvent, ...]:
    jobs = {event.startpoint.job for event in exported.startpoint_events}
    known = {_event_key(event) for job in jobs for event in store.load_startpoint_events(job)}
    missing = [
        event
        for event in exported.startpoint_events
        if (event.startpoint.job, event.startpoint.dataset_urn) not in left_alone and _event_key(event) not in known
    ]
    told = {(event.startpoint.key, event.startpoint.id) for event in missing}
    # Exports of format 2 have no history.
    added = [StartpointEvent(one, "set", store.now(), one.who) for one in startpoints if (one.key, one.id) not in told]
    return (*missing, *added)


def _event_key(event: StartpointEvent) -> tuple[StartpointKey, str, str, datetime]:
    return event.startpoint.key, event.startpoint.id, event.change, event.at


def _by_time(sequences: Sequence[StoredSequence]) -> list[StoredSequence]:
    """Return sequences by time; the versions of a dataset always stay in order."""
    newest: dict[Key, datetime] = {}
    at: dict[str, datetime] = {}
    for sequence in sequences:
        key = (sequence.job, sequence.dataset_urn)
        at[sequence.id] = newest[key] = max(sequence.created_at, newest.get(key, sequence.created_at))
    return sorted(sequences, key=lambda sequence: at[sequence.id])


def run_import(store: StateStore, plan: ImportPlan) -> None:
    """Replay the missing sequences, each in one transaction; after an interruption, a further import goes on.

    Raises:
        DatasetBusyError: a run holds a lease of one of the datasets; nothing was imported.
    """
    owner = LeaseOwner.current(f"import-{new_commit_id()[:12]}")
    by_job: dict[str, list[str]] = {}
    for job, urn in plan.datasets:
        by_job.setdefault(job, []).append(urn)
    with ExitStack() as stack:
        keepers = {job: stack.enter_context(LeaseKeeper(store, job, owner, LEASE_TTL)) for job in by_job}
        busy = [lease for job, urns in by_job.items() for lease in keepers[job].acquire(urns).busy.values()]
        if not busy:
            for stored in plan.missing:
                epoch, effect = keepers[stored.job].epoch(stored.dataset_urn), _decoded(stored, store.places).effect
                if (base := plan.bases.get(stored.id)) is not None:
                    store.adopt(stored, epoch, effect.after, [_at_its_place(one, store.places) for one in base])
                else:
                    store.record(stored, epoch, effect)
            for (job, urn), (startpoints, events) in plan.startpoints_by_dataset.items():
                store.import_startpoints(job, urn, startpoints, events)
            for run in plan.runs:
                store.save_run(run)
    if busy:  # raised here, so that the other leases are given back: nothing was done under them
        raise busy_error(busy[0])


def _at_its_place(one: FileHistory, places: Places) -> FileHistory:
    return dataclasses.replace(one, file=dataclasses.replace(one.file, path=places.from_stored(one.file.path)))


# -- diff --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Difference:
    """A dataset whose state or startpoint differs between a store and an export; None if one of them has none."""

    job: str
    dataset_urn: str
    here: DatasetState | None
    there: DatasetState | None
    startpoint_here: Startpoint | None = None
    startpoint_there: Startpoint | None = None

    @property
    def is_other_origin(self) -> bool:
        """True if both have a state, but the ids of what was read differ."""
        return self.here is not None and self.there is not None and self.here.identity != self.there.identity


@dataclass(frozen=True, slots=True)
class Standing:
    """States and startpoints of datasets, by job and urn."""

    states: Mapping[Key, DatasetState]
    startpoints: Mapping[Key, Startpoint] = field(default_factory=dict)


def diff_states(here: Standing, there: Standing) -> list[Difference]:
    """Return the datasets with other commits or startpoints, in order of job and dataset.

    Times and run ids are not compared.
    """
    differences = []
    for key in sorted({*here.states, *there.states, *here.startpoints, *there.startpoints}):
        ours, theirs = here.states.get(key), there.states.get(key)
        wishes = here.startpoints.get(key), there.startpoints.get(key)
        if _position(ours) != _position(theirs) or _wish(wishes[0]) != _wish(wishes[1]):
            differences.append(Difference(*key, ours, theirs, *wishes))
    return differences


def _position(state: DatasetState | None) -> object:
    return None if state is None else (state.committed, state.settled, state.snapshot, state.identity)


def _wish(startpoint: Startpoint | None) -> object:
    return None if startpoint is None else (startpoint.position, startpoint.pinned)
