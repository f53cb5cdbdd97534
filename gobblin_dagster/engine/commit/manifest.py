"""Snapshot manifests: one small file per snapshot, for readers that have no state store.

`<output_root>/_gobblin/manifests/<job>/<urn>/<snapshot>.json` holds the files that the snapshot added, by branch, and
the number of the snapshot that it adds to: the one before it or, after a rollback, the one gone back to. It is put in
place after COMMIT, whole, so a reader sees whole commits only: it may lag behind the store for a moment, and never shows
half a commit. It derives from the store: recovery and the next publication write one that a crash left out.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gobblin_dagster.core.commit import PublishedFile, canonical_json
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.commit.roots import MANIFEST_DIR, internal_dir
from gobblin_dagster.state.store import StateStore

FORMAT = "Manifest/1"
_NAME = re.compile(r"(\d{10})\.json")


def manifest_dir(output_root: str, job: str, dataset_urn: str) -> str:
    """Return the folder of a dataset's manifests."""
    return internal_dir(output_root.rstrip("/"), MANIFEST_DIR, job, DatasetUrn(dataset_urn).path_segment)


def manifest_path(output_root: str, job: str, dataset_urn: str, snapshot: int) -> str:
    """Return the path of one snapshot's manifest."""
    return posixpath.join(manifest_dir(output_root, job, dataset_urn), f"{snapshot:010d}.json")


def write_manifest(
    storage: Storage,
    store: StateStore,
    *,
    output_root: str,
    job: str,
    dataset_urn: str,
    snapshot: int,
    added: Sequence[PublishedFile] | None = None,
) -> None:
    """Write the manifest of a committed snapshot, after those that are missing below it; done twice, it changes nothing.

    Args:
        storage: where the output is.
        store: where manifests are derived from.
        output_root: absolute.
        job: the job's name.
        dataset_urn: the dataset.
        snapshot: number of a committed snapshot, from 1.
        added: the files that the snapshot added; None reads them from the store.

    Raises:
        OSError: the storage refused; the commit stands all the same.
    """
    root = output_root.rstrip("/")
    # Ascending and without a hole: whoever sees number n finds all before it.
    is_hole = snapshot > 1 and storage.size(manifest_path(root, job, dataset_urn, snapshot - 1)) is None
    if added is not None and not is_hole:
        contents = {snapshot: (snapshot - 1, added)}
    else:
        contents = _contents(store, job, dataset_urn, range(1 if is_hole else snapshot, snapshot + 1))
    for number, (previous, files) in contents.items():
        path = manifest_path(root, job, dataset_urn, number)
        storage.put_if_absent(path, _encode(root, job, dataset_urn, number, previous, files))


def _contents(
    store: StateStore, job: str, dataset_urn: str, numbers: Sequence[int]
) -> dict[int, tuple[int, Sequence[PublishedFile]]]:
    """Return what the store says of snapshots that can still be read: the one before, and the files added."""
    state = store.load_dataset_states(job, [dataset_urn])[dataset_urn]
    previous = {one.snapshot: one.to for one in state.rollbacks}
    contents: dict[int, tuple[int, list[PublishedFile]]] = {
        number: (previous.get(number, number - 1), []) for number in numbers if state.is_held(number)
    }
    # The newest snapshot, and the last before each rollback: together they hold every file.
    ends = [numbers[-1], *(number - 1 for number in previous if numbers[0] < number <= numbers[-1])]
    for file in {file.path: file for end in ends for file in store.load_snapshot(job, dataset_urn, end)}.values():
        if file.snapshot in contents:
            contents[file.snapshot][1].append(file)
    return dict(contents)


def fill_manifests(
    storage: Storage, store: StateStore, output_root: str, job: str, states: Mapping[str, DatasetState]
) -> list[str]:
    """Write the newest manifests that a crash between COMMIT and manifest left out; one `size` call per dataset.

    Returns:
        The urns of datasets whose manifest was missing.
    """
    missing = [
        state
        for state in states.values()
        if state.snapshot and storage.size(manifest_path(output_root, job, state.dataset_urn, state.snapshot)) is None
    ]
    for state in missing:
        write_manifest(
            storage, store, output_root=output_root, job=job, dataset_urn=state.dataset_urn, snapshot=state.snapshot
        )
    return [state.dataset_urn for state in missing]


def read_manifest(
    storage: Storage, output_root: str, job: str, dataset_urn: str, snapshot: int | None = None
) -> list[PublishedFile]:
    """Return the files of a snapshot, without a state store.

    Args:
        storage: where the output is.
        output_root: absolute; may have been moved as a whole since.
        job: the job's name.
        dataset_urn: the dataset.
        snapshot: number; None takes the newest.

    Returns:
        Files ordered by branch and path; empty where nothing was published.

    Raises:
        UsageError: that snapshot does not exist.
        CorruptRecordError: a manifest is damaged, or one of the chain was deleted.
    """
    known = list_manifests(storage, output_root, job, dataset_urn)
    if snapshot is not None and snapshot not in known:
        newest = f"the newest is {known[-1]}" if known else "nothing was published"
        raise UsageError(problem=f"Dataset {dataset_urn!r} has no snapshot {snapshot}: {newest}.")
    number = snapshot if snapshot is not None else max(known, default=0)
    files: list[PublishedFile] = []
    while number:
        body = _read(storage, manifest_path(output_root, job, dataset_urn, number), number)
        files += _files(output_root, number, body)
        number = body["previous"]
    return sorted(files, key=lambda file: (file.branch, file.path))


def list_manifests(storage: Storage, output_root: str, job: str, dataset_urn: str) -> list[int]:
    """Return the numbers of the snapshots that have a manifest, in order."""
    names = storage.list_names(manifest_dir(output_root, job, dataset_urn))
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def _encode(
    root: str, job: str, dataset_urn: str, snapshot: int, previous: int, files: Sequence[PublishedFile]
) -> bytes:
    branches: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(files, key=lambda one: (one.branch, one.path)):
        entry = {
            "path": file.path.removeprefix(root + "/"),
            "size_bytes": file.size_bytes,
            "sha256": file.sha256,
            "rows": file.rows,
        }
        branches.setdefault(file.branch, []).append(entry)
    body = {
        "format": FORMAT,
        "job": job,
        "dataset_urn": dataset_urn,
        "snapshot": snapshot,
        "previous": previous,
        "branches": branches,
    }
    return canonical_json(body).encode()


def _read(storage: Storage, path: str, number: int) -> dict[str, Any]:
    try:
        body = json.loads(storage.read(path))
    except (FileNotFoundError, ValueError) as error:
        raise CorruptRecordError(what=f"Manifest {path}", problem=str(error)) from error
    expected = {"format": FORMAT, "snapshot": number}
    if not isinstance(body, dict) or any(body.get(key) != value for key, value in expected.items()):
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"expected {expected}, got {str(body)[:80]!r}")
    # An older one than the one before: a rollback.
    if not isinstance(body.get("previous"), int) or not 0 <= body["previous"] < number:
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"previous is {body.get('previous')!r}")
    return body


def _files(output_root: str, number: int, body: dict[str, Any]) -> list[PublishedFile]:
    try:
        return [
            PublishedFile(
                branch=branch,
                path=posixpath.join(output_root.rstrip("/"), entry["path"]),
                size_bytes=entry["size_bytes"],
                sha256=entry["sha256"],
                rows=entry["rows"],
                snapshot=number,
            )
            for branch, entries in body["branches"].items()
            for entry in entries
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptRecordError(what=f"Manifest of snapshot {number}", problem=repr(error)) from error
