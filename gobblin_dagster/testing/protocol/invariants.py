"""Checks of the protocol's invariants on the example, for readers of manifests and for readers that list the folder.

`check_instant` may be called at any moment, also in the middle of a commit or on the disk after a crash;
`check_recovered` after a run that followed the last fault. The numbers I1-I14 are those of `docs/concepts/commit.md`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gobblin_dagster.core.commit import UNFINISHED, PublishedFile, SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.places import Places
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import read_manifest
from gobblin_dagster.engine.commit.steps.permissions import PermissionStorage
from gobblin_dagster.testing.protocol.harm import Harm, Violation
from gobblin_dagster.testing.protocol.scenario import JOB, PERMISSIONS, Example, records


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest progress of a dataset seen so far, which may only grow."""

    version: int = 0
    snapshot: int = 0
    manifest: int = 0


Seen: TypeAlias = Mapping[str, Progress]
"""Progress by dataset.urn."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What store and output hold of a dataset at one moment."""

    dataset_urn: str
    manifest: list[PublishedFile] | Violation
    state: DatasetState | None
    snapshot: list[PublishedFile]
    sequences: list[StoredSequence]
    """All sequences, also ended ones."""
    visible: Mapping[str, bytes]
    """Contents of the files that a reader of the folder finds, by path."""
    places: Places

    @classmethod
    def of_all(cls, example: Example) -> list[_Facts]:
        """Return the facts of each dataset."""
        manifests = [_read_manifest(example, urn) for urn in example.urns]
        store = example.open_store()
        try:
            states = store.load_dataset_states(JOB, example.urns)
            sequences = store.load_sequences(JOB, tuple(SequenceState), example.urns)
            visible = _visible(example)
            return [
                cls(
                    urn,
                    manifest,
                    states.get(urn),
                    store.load_snapshot(JOB, urn),
                    [stored for stored in sequences if stored.dataset_urn == urn],
                    visible[urn],
                    store.places,
                )
                for urn, manifest in zip(example.urns, manifests, strict=True)
            ]
        finally:
            example.close_store(store)

    @property
    def unfinished(self) -> list[StoredSequence]:
        return [stored for stored in self.sequences if stored.state in UNFINISHED]

    def rows(self, paths: Iterable[str]) -> Counter[str]:
        return Counter(row for path in paths for row in self.visible.get(path, b"").decode().splitlines())

    def rows_in(self, folder: str) -> Counter[str]:
        return self.rows(path for path in self.visible if path.startswith(f"{folder}/"))


def check_instant(example: Example, seen: Seen | None = None) -> tuple[list[Violation], Seen]:
    """Check the invariants that hold at every moment; return the violations and the progress seen."""
    violations: list[Violation] = []
    now: dict[str, Progress] = {}
    for facts in _Facts.of_all(example):
        urn = facts.dataset_urn
        found, now[urn] = _check_instant(example, facts, (seen or {}).get(urn, Progress()))
        violations += found
    return violations, now


def check_recovered(example: Example, ends: Mapping[str, int], seen: Seen | None = None) -> list[Violation]:
    """Check the invariants that hold after a run has read up to `ends` and succeeded, after the last fault."""
    return [
        violation
        for facts in _Facts.of_all(example)
        for violation in _check_recovered(example, facts, ends, (seen or {}).get(facts.dataset_urn, Progress()))
    ]


def _check_recovered(example: Example, facts: _Facts, ends: Mapping[str, int], seen: Progress) -> list[Violation]:
    violations, now = _check_instant(example, facts, seen)
    state, snapshot = facts.state, facts.snapshot
    expected = Counter(records(ends, urn=facts.dataset_urn))
    for branch in example.branches:
        got = facts.rows(file.path for file in snapshot if file.branch == branch)
        violations += _compare(f"reader of snapshots, branch {branch}", expected, got)
        if example.shape != "at least once":
            got = facts.rows_in(f"{example.output_root}/{branch}")
            violations += _compare(f"folder reader, branch {branch}", expected, got)
    if state is None or state.committed.gaps("0") or now.manifest != state.snapshot:
        violations.append(Violation(Harm.STUCK, f"state {state}, manifest {now.manifest}"))
    if facts.unfinished:
        violations.append(Violation(Harm.STUCK, "a sequence is unfinished after recovery"))
    if example.shape != "at least once":
        orphans = facts.visible.keys() - {file.path for file in snapshot}
        violations += [Violation(Harm.ORPHAN, path) for path in sorted(orphans)]
    if example.shape == "permissions":
        violations += [
            Violation(Harm.TORN, f"{file.path} has not the mode of published files")
            for file in snapshot
            if not _has_mode(example, file)
        ]
    return violations


def tree_digest(example: Example) -> str:
    """Return a digest of all visible files, manifests and states of datasets: equal before and after a replay (I6)."""
    total = hashlib.sha256()
    for path in sorted(example.storage.walk_files(example.output_root)):
        total.update(f"{path}\0".encode() + example.storage.read(path))
    store = example.open_store()
    try:
        total.update(repr(sorted(store.load_dataset_states(JOB, example.urns).items())).encode())
    finally:
        example.close_store(store)
    return total.hexdigest()


def _check_instant(example: Example, facts: _Facts, seen: Progress) -> tuple[list[Violation], Progress]:
    violations = _check_snapshot(example, facts)
    manifest, state = facts.manifest, facts.state
    if isinstance(manifest, Violation):
        return [*violations, manifest], seen
    newest = max((file.snapshot for file in manifest), default=0)
    if manifest != [file for file in facts.snapshot if file.snapshot <= newest]:
        violations.append(Violation(Harm.TORN, f"the manifest of snapshot {newest} differs from the store's"))
    if example.shape != "at least once":
        violations += _check_folder(example, facts)
    now = Progress(state.version if state else 0, state.snapshot if state else 0, newest)
    if now.version < seen.version or now.snapshot < seen.snapshot or now.manifest < seen.manifest:
        violations.append(Violation(Harm.REGRESSED, f"{seen} became {now}"))
    if len(facts.unfinished) > 1:
        violations.append(Violation(Harm.STUCK, "two sequences of one dataset are unfinished"))
    return violations, now


def _check_snapshot(example: Example, facts: _Facts) -> list[Violation]:
    """Compare the snapshot's records with those of the committed ranges, branch by branch."""
    expected: Counter[str] = Counter()
    if facts.state is not None:
        for partition, parts in facts.state.committed.ranges.items():
            for low, high in parts:
                if isinstance(low, int) and isinstance(high, int):
                    expected.update(records({partition: high}, {partition: low}, facts.dataset_urn))
    violations = []
    newest = max((file.snapshot for file in facts.snapshot), default=0)
    if newest != (facts.state.snapshot if facts.state else 0):
        violations.append(Violation(Harm.AHEAD, f"snapshot {newest} under state {facts.state}"))
    for branch in example.branches:
        files = [file for file in facts.snapshot if file.branch == branch]
        whole = [file.path for file in files if _is_as_published(file, facts.visible.get(file.path))]
        violations += [
            Violation(Harm.AHEAD, f"{file.path} is not there as published") for file in files if file.path not in whole
        ]
        violations += _compare(f"snapshot, branch {branch}", expected, facts.rows(whole))
    return violations


def _check_folder(example: Example, facts: _Facts) -> list[Violation]:
    """Check the weaker promise to readers of the folder: no record twice, and no file that nobody owns."""
    owned = {file.path for file in facts.snapshot}
    for stored in facts.sequences:
        if stored.state in {SequenceState.PREPARED, SequenceState.ABORTING, SequenceState.QUARANTINED}:
            owned |= {file.path for file in decode_sequence(stored, facts.places).files}
    violations = [Violation(Harm.ORPHAN, path) for path in sorted(facts.visible.keys() - owned)]
    for branch in example.branches:
        rows = facts.rows_in(f"{example.output_root}/{branch}")
        if len(rows) < rows.total():
            twice = [row for row, count in rows.items() if count > 1]
            detail = f"folder reader, branch {branch}: {len(twice)}, e.g. {twice[0]}"
            violations.append(Violation(Harm.DUPLICATED, detail))
    return violations


def _read_manifest(example: Example, urn: str) -> list[PublishedFile] | Violation:
    try:
        return read_manifest(example.storage, example.output_root, JOB, urn)
    except CorruptRecordError as error:
        return Violation(Harm.TORN, str(error))


def _visible(example: Example) -> dict[str, dict[str, bytes]]:
    """Read each dataset's files with names that do not begin with `_` or `.`, as readers of folders do.

    Files that belong to no dataset count as those of the first one.
    """
    root = example.output_root
    found: dict[str, dict[str, bytes]] = {urn: {} for urn in example.urns}
    for path in example.storage.walk_files(root):
        if not any(part[0] in "._" for part in path.removeprefix(f"{root}/").split("/")):
            urn = next((urn for urn in example.urns if f"/{urn}/" in path), example.urns[0])
            found[urn][path] = example.storage.read(path)
    return found


def _is_as_published(file: PublishedFile, content: bytes | None) -> bool:
    """True if a file exists with the prepared bytes and rows."""
    if content is None:
        return False
    found = (len(content), hashlib.sha256(content).hexdigest(), len(content.splitlines()))
    return found == (file.size_bytes, file.sha256, file.rows)


def _has_mode(example: Example, file: PublishedFile) -> bool:
    storage = example.storage
    return isinstance(storage, PermissionStorage) and storage.has_permissions(file.path, PERMISSIONS.file_mode, None)


def _compare(who: str, expected: Counter[str], got: Counter[str]) -> Iterable[Violation]:
    """Compare multisets: missing records are lost, surplus ones are duplicates or come from nowhere."""
    if dict.__eq__(expected, got):
        return
    missing, surplus = expected - got, got - expected
    if missing:
        yield Violation(Harm.LOST, f"{who}: {missing.total()} records are missing, e.g. {min(missing)}")
    if surplus:
        yield Violation(Harm.DUPLICATED, f"{who}: {surplus.total()} records too many, e.g. {min(surplus)}")
