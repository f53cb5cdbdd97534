"""Checkers of the protocol's invariants on the example, for the manifest reader and for whoever lists the folder.

`check_instant` may be asked at any moment, also in the middle of a commit or over the disk that a crash left;
`check_recovered` after a run that followed the last fault. The numbers I1-I14 are those of `docs/concepts/commit.md`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gobblin_dagster.core.commit import PublishedFile, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.manifest import read_manifest
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.example import JOB, URN, Example, records


class Harm(StrEnum):
    """What a broken invariant does to a user."""

    LOST = "lost"
    """Records that will never be published (I1)."""
    DUPLICATED = "duplicated"
    """Records published twice (I2)."""
    AHEAD = "ahead"
    """A watermark or manifest that promises data that is not there, whole (I3, I12)."""
    TORN = "torn"
    """A reader saw part of a commit (I4, I9)."""
    REGRESSED = "regressed"
    """A version, snapshot or watermark went down (I5)."""
    ORPHAN = "orphan"
    """A visible file that no snapshot and no unfinished sequence names (I10)."""
    STUCK = "stuck"
    """Unfinished business after a recovery (I8, I13)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    harm: Harm
    detail: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest progress that was ever seen, which may only grow."""

    version: int = 0
    snapshot: int = 0
    manifest: int = 0


def check_instant(example: Example, seen: Seen | None = None) -> tuple[list[Violation], Seen]:
    """Check what must hold at every moment; returns the violations and the progress seen."""
    store = example.open_store()
    try:
        return _check_instant(example, store, seen or Seen())
    finally:
        store.close()


def check_recovered(example: Example, ends: Mapping[str, int], seen: Seen | None = None) -> list[Violation]:
    """Check what must hold once a run that read up to `ends` has ended well after the last fault."""
    store = example.open_store()
    try:
        violations, now = _check_instant(example, store, seen or Seen())
        state = store.load_dataset_states(JOB, [URN]).get(URN)
        expected = Counter(records(ends))
        for branch in example.branches:
            got = _visible_rows(example, branch)
            violations += _compare(f"folder reader, branch {branch}", expected, got)
        if state is None or state.committed.gaps("0") or now.manifest != state.snapshot:
            violations.append(Violation(Harm.STUCK, f"state {state}, manifest {now.manifest}"))
        if store.load_sequences(JOB):
            violations.append(Violation(Harm.STUCK, "a sequence is unfinished after recovery"))
        named = {file.path for file in store.load_snapshot(JOB, URN)}
        orphans = _visible_files(example) - named
        violations += [Violation(Harm.ORPHAN, path) for path in sorted(orphans)]
        return violations
    finally:
        store.close()


def tree_digest(example: Example) -> str:
    """Return a digest of all visible files, manifests and the dataset's state: equal before and after a replay (I6)."""
    total = hashlib.sha256()
    root = Path(example.output_root)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    store = example.open_store()
    try:
        total.update(repr(store.load_dataset_states(JOB, [URN])).encode())
    finally:
        store.close()
    return total.hexdigest()


def _check_instant(example: Example, store: StateStore, seen: Seen) -> tuple[list[Violation], Seen]:
    # Manifest first: a snapshot that is committed in between may only be missing from it, never be in it too early.
    manifest = _read_manifest(example)
    state = store.load_dataset_states(JOB, [URN]).get(URN)
    snapshot = store.load_snapshot(JOB, URN)
    violations = _check_snapshot(example, state, snapshot)
    if isinstance(manifest, Violation):
        return [*violations, manifest], seen
    newest = max((file.snapshot for file in manifest), default=0)
    if manifest != [file for file in snapshot if file.snapshot <= newest]:
        violations.append(Violation(Harm.TORN, f"the manifest of snapshot {newest} differs from the store's"))
    violations += _check_folder(example, store, snapshot)
    now = Seen(state.version if state else 0, state.snapshot if state else 0, newest)
    if now.version < seen.version or now.snapshot < seen.snapshot or now.manifest < seen.manifest:
        violations.append(Violation(Harm.REGRESSED, f"{seen} became {now}"))
    if len(store.load_sequences(JOB)) > 1:
        violations.append(Violation(Harm.STUCK, "two sequences of one dataset are unfinished"))
    return violations, now


def _check_snapshot(example: Example, state: DatasetState | None, snapshot: list[PublishedFile]) -> list[Violation]:
    """Compare the snapshot's records with those that the committed ranges promise, branch by branch."""
    expected: Counter[str] = Counter()
    if state is not None:
        for partition, parts in state.committed.ranges.items():
            for low, high in parts:
                if isinstance(low, int) and isinstance(high, int):
                    expected.update(records({partition: high}, {partition: low}))
    violations = []
    newest = max((file.snapshot for file in snapshot), default=0)
    if newest != (state.snapshot if state else 0):
        violations.append(Violation(Harm.AHEAD, f"snapshot {newest} under state {state}"))
    for branch in example.branches:
        rows: Counter[str] = Counter()
        for file in snapshot:
            if file.branch == branch:
                lines = _rows_of(file)
                if lines is None:
                    violations.append(Violation(Harm.AHEAD, f"{file.path} is not there as published"))
                else:
                    rows.update(lines)
        violations += _compare(f"snapshot, branch {branch}", expected, rows)
    return violations


def _check_folder(example: Example, store: StateStore, snapshot: list[PublishedFile]) -> list[Violation]:
    """Check the weaker promise to readers of the folder: no record twice, nothing whose owner is unknown."""
    owned = {file.path for file in snapshot}
    for stored in store.load_sequences(JOB, states=tuple(SequenceState)):
        if stored.state in {SequenceState.PREPARED, SequenceState.ABORTING, SequenceState.QUARANTINED}:
            owned |= {file.path for file in decode_sequence(stored).files}
    violations = [Violation(Harm.ORPHAN, path) for path in sorted(_visible_files(example) - owned)]
    for branch in example.branches:
        twice = [row for row, count in _visible_rows(example, branch).items() if count > 1]
        if twice:
            violations.append(
                Violation(Harm.DUPLICATED, f"folder reader, branch {branch}: {len(twice)}, e.g. {twice[0]}")
            )
    return violations


def _read_manifest(example: Example) -> list[PublishedFile] | Violation:
    try:
        return read_manifest(LocalStorage(), example.output_root, JOB, URN)
    except CorruptRecordError as error:
        return Violation(Harm.TORN, str(error))


def _rows_of(file: PublishedFile) -> list[str] | None:
    """Return the rows of a published file; None where it is not there with the bytes and rows that were prepared."""
    path = Path(file.path)
    if not path.is_file():
        return None
    content = path.read_bytes()
    rows = content.decode().splitlines()
    as_published = (len(content), hashlib.sha256(content).hexdigest(), len(rows))
    return rows if as_published == (file.size_bytes, file.sha256, file.rows) else None


def _visible_files(example: Example, branch: str = "") -> set[str]:
    """Return what a reader of the folder sees: no name that begins with `_` or `.`."""
    root = Path(example.output_root, branch)
    return {
        str(path)
        for path in root.rglob("*")
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(example.output_root).parts)
    }


def _visible_rows(example: Example, branch: str) -> Counter[str]:
    return Counter(row for path in _visible_files(example, branch) for row in Path(path).read_text().splitlines())


def _compare(who: str, expected: Counter[str], got: Counter[str]) -> Iterable[Violation]:
    """Compare multisets: fewer is lost, more is a duplicate or a record from nowhere."""
    missing, surplus = expected - got, got - expected
    if missing:
        yield Violation(Harm.LOST, f"{who}: {missing.total()} records are missing, e.g. {min(missing)}")
    if surplus:
        yield Violation(Harm.DUPLICATED, f"{who}: {surplus.total()} records too many, e.g. {min(surplus)}")
