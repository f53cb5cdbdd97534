"""Snapshot manifests: one small file per snapshot, for readers that have no state store.

`<output_root>/_gobblin/manifests/<job>/<urn>/<snapshot>.json` holds the files that the snapshot added, by branch, the
paths that it no longer holds, and the number of the snapshot that it changes: the one before it or, after a rollback,
the one that was restored. Every 64th manifest and that of each rollback is whole: it lists all files of the snapshot,
so a reader reads at most 64 of them. A manifest also holds the Arrow schemas of the branches, because text files tell
no types. It is put in place after COMMIT, in one piece, so readers see whole commits only: it may be a moment behind
the store, and never shows half a commit. It is derived from the store: recovery, the next publication and `gobblin
clean` write a manifest that a crash or an error left out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gobblin_dagster.core.commit import PublishedFile, canonical_json
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, GobblinDagsterError, StorageError, UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.engine.commit.links import paths_inside
from gobblin_dagster.engine.commit.lost_files import lost_file
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.state.store import StateStore

FORMAT = "Manifest/3"
_FORMATS = ("Manifest/1", "Manifest/2", FORMAT)
"""The oldest first. Manifest/2 had no `schemas`, and those of rollbacks were not whole."""
_NOT_IN = {"Manifest/1": {"removed", "whole", "schemas"}, "Manifest/2": {"schemas"}}
"""What older versions did not write."""
WHOLE_EVERY = 64
"""Every 64th manifest lists all files, so a reader reads at most 64 manifests."""
_NAME = re.compile(r"(\d{10})\.(json|oldest)")


def manifest_dir(output_root: str, job: str, dataset_urn: str) -> str:
    """Return the folder of a dataset's manifests."""
    return internal_dir(output_root.rstrip("/"), MANIFEST_DIR, job, DatasetUrn(dataset_urn).path_segment)


def manifest_path(output_root: str, job: str, dataset_urn: str, snapshot: int) -> str:
    """Return the path of one snapshot's manifest."""
    return posixpath.join(manifest_dir(output_root, job, dataset_urn), f"{snapshot:010d}.json")


def expiry_marker(output_root: str, job: str, dataset_urn: str, oldest: int) -> str:
    """Return the path of the empty file that marks snapshots below a number as expired."""
    return posixpath.join(manifest_dir(output_root, job, dataset_urn), f"{oldest:010d}.oldest")


def write_manifest(
    storage: Storage,
    store: StateStore,
    *,
    output_root: str,
    job: str,
    dataset_urn: str,
    snapshot: int,
    added: Sequence[PublishedFile] | None = None,
    removed: Sequence[str] = (),
    schemas: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the manifest of a committed snapshot, after missing ones below it; a second call changes nothing.

    Args:
        storage: the storage of the output.
        store: the manifests are derived from it.
        output_root: absolute path.
        job: the job's name.
        dataset_urn: the dataset.
        snapshot: number of a committed snapshot, from 1.
        added: the files that the snapshot added; None reads added and removed files from the store.
        removed: paths that it no longer holds.
        schemas: newest Arrow schema by branch, as text; read from the store if `added` is None.

    Raises:
        OSError: the storage refused; the commit is valid all the same.
    """
    root = output_root.rstrip("/")
    # Ascending and without a gap: a reader that sees number n finds all before it.
    first = snapshot
    while first > 1 and storage.size(manifest_path(root, job, dataset_urn, first - 1)) is None:
        first -= 1
    if added is not None and first == snapshot and snapshot % WHOLE_EVERY:
        contents: Iterable[list[_Content]] = [[_Content(snapshot, snapshot - 1, added, removed, schemas)]]
    else:
        contents = _contents(store, job, dataset_urn, range(first, snapshot + 1))
    for content, *_ in contents:
        path = manifest_path(root, job, dataset_urn, content.number)
        storage.put_if_absent(
            path, _encode(root, job, dataset_urn, _as_named(storage, root, job, dataset_urn, content))
        )
    if first < snapshot:
        # An output without older manifests got those of expired snapshots too, because newer ones change them.
        oldest = store.load_dataset_states(job, [dataset_urn])[dataset_urn].oldest_snapshot
        if first < oldest:
            storage.put_if_absent(expiry_marker(root, job, dataset_urn, oldest), b"")


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a manifest."""

    number: int
    previous: int
    """Number of the snapshot that it changes."""
    files: Sequence[PublishedFile]
    """Added files; all files if the manifest is whole."""
    removed: Sequence[str] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False


def _as_named(storage: Storage, root: str, job: str, dataset_urn: str, content: _Content) -> _Content:
    """Return the content with paths that lead into the output as such, and else as the manifests below list them.

    The store keeps absolute paths: after an output was moved or copied as a whole, they still point to its former
    place, where there may be a link to the new one.
    """
    inside = f"{root}/"

    def is_inside(content: _Content) -> bool:
        return all(path.startswith(inside) for path in (*content.removed, *(file.path for file in content.files)))

    if is_inside(content) or is_inside(content := _with_paths(content, paths_inside(storage, root))):
        return content
    try:
        below = (
            read_manifest(storage, root, job, dataset_urn, content.previous, former_roots=None)
            if content.previous
            else []
        )
    except (CorruptRecordError, UsageError):
        return content  # no readable manifest below lists any file
    named = {file.path.removeprefix(inside): file.path for file in below}

    def here(path: str) -> str:
        parts = path.split("/")
        ends = ("/".join(parts[first:]) for first in range(len(parts)))
        return next((named[end] for end in ends if end in named), path)

    return _with_paths(content, here)


def _with_paths(content: _Content, change: Callable[[str], str]) -> _Content:
    files = [replace(file, path=change(file.path)) for file in content.files]
    return replace(content, files=files, removed=[change(path) for path in content.removed])


def _contents(store: StateStore, job: str, dataset_urn: str, numbers: Sequence[int]) -> Iterator[list[_Content]]:
    """Yield the content of the manifests of snapshots that can still be read, from the store.

    Of each snapshot the content that is written comes first; others that are as good, as older versions wrote them,
    follow.
    """
    state = store.load_dataset_states(job, [dataset_urn])[dataset_urn]
    went_back = {one.snapshot: one.to for one in state.rollbacks}
    last: tuple[int, list[PublishedFile]] = (0, [])
    for number in filter(state.is_held, numbers):
        held = store.load_snapshot(job, dataset_urn, number)
        previous = went_back.get(number, number - 1)
        if previous != last[0]:
            last = (previous, store.load_snapshot(job, dataset_urn, previous))
        gone = {file.path for file in last[1]} - {file.path for file in held}
        added = [file for file in held if file.snapshot == number]
        changes = _Content(number, previous, added, sorted(gone), state.schemas)
        whole = replace(changes, files=held, removed=(), is_whole=True)
        if number % WHOLE_EVERY == 0:
            yield [whole]
        else:
            # After a rollback two chains would follow each other.
            yield [whole, changes] if number in went_back else [changes]
        last = (number, held)


def fill_manifests(
    storage: Storage, store: StateStore, output_root: str, job: str, states: Mapping[str, DatasetState]
) -> list[str]:
    """Write the newest manifests that a crash between COMMIT and manifest left out; one `size` call per dataset.

    Returns:
        The urns of datasets with a missing manifest.

    Raises:
        StorageError: the files are gone too: written now, the manifest would hide that the output was set back.
        OSError: the storage refused.
    """
    missing = [
        state
        for state in states.values()
        if state.snapshot and storage.size(manifest_path(output_root, job, state.dataset_urn, state.snapshot)) is None
    ]
    for state in missing:
        if path := lost_file(storage, store, output_root, state):
            raise StorageError(
                operation=f"write the manifest of snapshot {state.snapshot}, which lists",
                path=path,
                problem="the file is gone, and so are all that this commit added: the output was deleted, or restored "
                "from an older copy. Restore its newest one; or `gobblin verify --repair` writes the manifest, and "
                "runs then go on behind the rows that are gone",
                dataset_urn=state.dataset_urn,
            )
        write_manifest(
            storage, store, output_root=output_root, job=job, dataset_urn=state.dataset_urn, snapshot=state.snapshot
        )
    return [state.dataset_urn for state in missing]


def write_missing_manifests(
    states: Mapping[str, DatasetState], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> tuple[dict[str, DatasetState], dict[str, Exception]]:
    """Write missing manifests; if one cannot be written, the others still are.

    Returns:
        The datasets with a manifest that was missing and is written now, and the errors of datasets that failed, by
        urn.
    """
    written: dict[str, DatasetState] = {}
    faults: dict[str, Exception] = {}
    for urn, state in states.items():
        try:
            if fill_manifests(storage, store, output_root, job, {urn: state}):
                written[urn] = state
        except OSError as error:
            operation = f"write the manifest of snapshot {state.snapshot}, at"
            faults[urn] = StorageError.of(error, operation, output_root, urn)
        except GobblinDagsterError as error:
            faults[urn] = error
    return written, faults


def derive_manifests(
    storage: Storage, store: StateStore, output_root: str, job: str, dataset_urn: str, numbers: Sequence[int]
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number, contents) of the manifests of these snapshots, from the store, if they can still be read.

    The first content is the one to write; an existing manifest may also be one of the others.
    """
    root = output_root.rstrip("/")
    for contents in _contents(store, job, dataset_urn, numbers):
        named = (_as_named(storage, root, job, dataset_urn, content) for content in contents)
        yield contents[0].number, [_encode(root, job, dataset_urn, content) for content in named]


@dataclass(frozen=True, slots=True)
class ComparedManifest:
    """What a manifest says, and how it differs from what the store says."""

    fault: str = ""
    """How it differs from all of its expected contents; empty if it does not."""
    version: int = 0
    """The version of its form; a newer one is greater."""
    schemas: Mapping[str, str] | None = None
    """Arrow schemas by branch, as text; None if an older version wrote it."""


def compare_manifest(content: bytes, expected: Sequence[bytes], output_root: str, number: int) -> ComparedManifest:
    """Compare the manifest of a snapshot with its expected contents; it should be one of them."""
    try:
        body, *wanted = (_parse(one, f"of snapshot {number}", number) for one in (content, *expected))
        facts = _facts(output_root, number, body)
        is_expected = facts in [_facts(output_root, number, one) for one in wanted]
    except CorruptRecordError as error:
        return ComparedManifest(f"it cannot be read: {error.problem}")
    fault = "" if is_expected else "it lists other files than the state store does, or is that of another dataset"
    return ComparedManifest(fault, _FORMATS.index(body["format"]), body.get("schemas"))


def files_in(content: bytes, output_root: str, number: int) -> list[PublishedFile]:
    """Return the files that the manifest of a snapshot lists itself.

    Raises:
        CorruptRecordError: the manifest is damaged.
    """
    return _files(output_root, number, _parse(content, f"of snapshot {number}", number))


def _facts(output_root: str, number: int, body: dict[str, Any]) -> tuple[Any, ...]:
    files = sorted(_files(output_root, number, body), key=lambda file: (file.branch, file.path))
    named = body.get("job"), body.get("dataset_urn")
    return files, sorted(body.get("removed", ())), body["previous"], bool(body.get("whole")), named


def read_manifest(
    storage: Storage,
    output_root: str,
    job: str,
    dataset_urn: str,
    snapshot: int | None = None,
    *,
    former_roots: Collection[str] | None = (),
) -> list[PublishedFile]:
    """Return the files of a snapshot, without a state store.

    Args:
        storage: the storage of the output.
        output_root: absolute path; the output may have been moved there as a whole.
        job: the job's name.
        dataset_urn: the dataset.
        snapshot: number of the snapshot; None means the newest.
        former_roots: other folders that may hold its files; None allows any.

    Returns:
        Files ordered by branch and path; empty if nothing was published.

    Raises:
        UsageError: the snapshot does not exist, or has expired.
        CorruptRecordError: a manifest is damaged, one of the chain was deleted, or one lists a file outside of the
            roots.
    """
    known = list_manifests(storage, output_root, job, dataset_urn)
    if snapshot is not None and snapshot not in known:
        newest = f"the newest is {known[-1]}" if known else "nothing was published"
        why = "it has expired" if known and snapshot < known[0] else newest
        raise UsageError(problem=f"Dataset {dataset_urn!r} has no snapshot {snapshot}: {why}.")
    number = snapshot if snapshot is not None else max(known, default=0)
    files: list[PublishedFile] = []
    removed: set[str] = set()
    while number:
        body = _read_of(storage, output_root, job, dataset_urn, number)
        files += [file for file in _files(output_root, number, body) if file.path not in removed]
        removed |= {posixpath.join(output_root.rstrip("/"), path) for path in body.get("removed", ())}
        number = 0 if body.get("whole") else body["previous"]
    if former_roots is not None:
        _require_inside(files, (output_root, *former_roots), manifest_dir(output_root, job, dataset_urn))
    if len({file.path for file in files}) < len(files):
        where = manifest_dir(output_root, job, dataset_urn)
        raise CorruptRecordError(what=f"A manifest in {where}", problem="a file is listed twice")
    return sorted(files, key=lambda file: (file.branch, file.path))


def read_schemas(storage: Storage, output_root: str, job: str, dataset_urn: str) -> dict[str, str]:
    """Return the newest Arrow schema by branch, as text, from the newest manifest.

    It is empty if nothing was published, or if the newest manifest was written by an older version.

    Raises:
        CorruptRecordError: the manifest is damaged.
    """
    known = list_manifests(storage, output_root, job, dataset_urn)
    if not known:
        return {}
    body = _read_of(storage, output_root, job, dataset_urn, known[-1])
    return dict(body.get("schemas", {}))


def _require_inside(files: Iterable[PublishedFile], roots: Sequence[str], where: str) -> None:
    """Refuse files outside of the roots: the writer of a manifest must not choose what its readers open."""
    outside = next((file.path for file in files if not any(_is_inside(file.path, root) for root in roots)), None)
    if outside is not None:
        raise CorruptRecordError(
            what=f"A manifest in {where}",
            problem=f"it names {outside}, which lies outside of {' and '.join(roots)}. If the output was there before, "
            "pass that folder as one of `former_roots`; else `gobblin verify --repair` writes the manifest again",
        )


def _is_inside(path: str, root: str) -> bool:
    rest = path.removeprefix(root.rstrip("/") + "/")
    return rest != path and posixpath.normpath(rest) == rest and not rest.startswith(("/", "../")) and rest != ".."


def list_manifests(storage: Storage, output_root: str, job: str, dataset_urn: str) -> list[int]:
    """Return the numbers of the snapshots that have a manifest and have not expired, in order.

    Raises:
        CorruptRecordError: all snapshots are marked as expired, which `gobblin clean` never does.
    """
    numbers, markers = list_all_manifests(storage, output_root, job, dataset_urn)
    oldest, newest = max(markers, default=1), max(numbers, default=0)
    if markers and oldest > newest:
        raise CorruptRecordError(
            what=f"Marker {expiry_marker(output_root.rstrip('/'), job, dataset_urn, oldest)}",
            problem=f"it marks snapshots below {oldest} as expired, but the newest manifest is of snapshot {newest}. "
            "`gobblin verify --repair` deletes a false marker, and writes missing manifests",
        )
    return [number for number in numbers if number >= oldest]


def list_all_manifests(storage: Storage, output_root: str, job: str, dataset_urn: str) -> tuple[list[int], list[int]]:
    """Return the numbers of a dataset's manifests, of expired snapshots too, and those of its markers, in order."""
    names = storage.list_names(manifest_dir(output_root, job, dataset_urn))
    found = [match for match in map(_NAME.fullmatch, names) if match]
    numbers, markers = ([int(match[1]) for match in found if match[2] == ending] for ending in ("json", "oldest"))
    return sorted(numbers), sorted(markers)


def files_of_strangers(storage: Storage, output_root: str, jobs: Collection[str]) -> set[str]:
    """Return the files that manifests of other jobs in the output list: jobs of another project, which has its store.

    Damaged manifests are left out.

    Args:
        storage: the storage of the output.
        output_root: absolute path.
        jobs: names of the jobs whose manifests are left out.
    """
    root, found = output_root.rstrip("/"), set[str]()
    folder = internal_dir(root, MANIFEST_DIR)
    for job in sorted({*storage.list_names(folder)} - {*jobs}):
        for path in storage.walk_files(posixpath.join(folder, job)):
            name = _NAME.fullmatch(posixpath.basename(path))
            if name is None or name[2] != "json":
                continue
            with suppress(CorruptRecordError):
                number = int(name[1])
                found.update(file.path for file in _files(root, number, _read(storage, path, number)))
    return found


def _encode(root: str, job: str, dataset_urn: str, content: _Content) -> bytes:
    branches: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(content.files, key=lambda one: (one.branch, one.path)):
        entry: dict[str, Any] = {
            "path": file.path.removeprefix(root + "/"),
            "size_bytes": file.size_bytes,
            "sha256": file.sha256,
            "rows": file.rows,
        }
        if content.is_whole:
            entry["snapshot"] = file.snapshot
        branches.setdefault(file.branch, []).append(entry)
    body = {
        "format": FORMAT,
        "job": job,
        "dataset_urn": dataset_urn,
        "snapshot": content.number,
        "previous": content.previous,
        "branches": branches,
        "removed": [path.removeprefix(root + "/") for path in content.removed],
        "schemas": dict(content.schemas),
        "whole": content.is_whole,
    }
    return canonical_json(body).encode()


def _read_of(storage: Storage, output_root: str, job: str, dataset_urn: str, number: int) -> dict[str, Any]:
    """Read a manifest of a dataset; refuse that of another one, which somebody put in its place."""
    path = manifest_path(output_root, job, dataset_urn, number)
    body = _read(storage, path, number)
    if (body.get("job"), body.get("dataset_urn")) != (job, dataset_urn):
        problem = f"it is that of dataset {str(body.get('dataset_urn'))[:80]!r} of job {str(body.get('job'))[:80]!r}"
        raise CorruptRecordError(what=f"Manifest {path}", problem=problem)
    return body


def _read(storage: Storage, path: str, number: int) -> dict[str, Any]:
    try:
        content = storage.read(path)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise CorruptRecordError(what=f"Manifest {path}", problem=str(error)) from error
    return _parse(content, path, number)


def _parse(content: bytes, path: str, number: int) -> dict[str, Any]:
    try:
        body = parse_json(content)
    except ValueError as error:
        raise CorruptRecordError(what=f"Manifest {path}", problem=str(error)) from error
    if not isinstance(body, dict) or body.get("format") not in _FORMATS or body.get("snapshot") != number:
        expected = f"format {FORMAT} of snapshot {number}"
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"expected {expected}, got {str(body)[:80]!r}")
    # `previous` may be older than the snapshot before: a rollback.
    if not _is_count(body.get("previous")) or body["previous"] >= number:
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"previous is {str(body.get('previous'))[:80]!r}")
    removed = body.get("removed", [])
    if not isinstance(removed, list) or not all(map(_is_path, removed)):
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"removed is {str(removed)[:80]!r}")
    if not isinstance(body.get("whole", False), bool):
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"whole is {str(body['whole'])[:80]!r}")
    branches = body.get("branches")
    if not isinstance(branches, dict) or not all(isinstance(entries, list) for entries in branches.values()):
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"branches are {str(branches)[:80]!r}")
    wrong = [entry for entries in branches.values() for entry in entries if not _is_file(entry, number)]
    if wrong:
        problem = f"expected path, size_bytes, rows and sha256 of a file, got {str(wrong[0])[:200]!r}"
        raise CorruptRecordError(what=f"Manifest {path}", problem=problem)
    if newer := sorted(_NOT_IN.get(body["format"], set()) & body.keys()):
        problem = f"format {body['format']} has no {', '.join(newer)}"
        raise CorruptRecordError(what=f"Manifest {path}", problem=problem)
    schemas = body.get("schemas", None if body["format"] == FORMAT else {})
    if not isinstance(schemas, dict) or not all(isinstance(text, str) for text in schemas.values()):
        raise CorruptRecordError(what=f"Manifest {path}", problem=f"schemas are {str(schemas)[:80]!r}")
    return body


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _is_file(entry: object, number: int) -> bool:
    return (
        isinstance(entry, dict)
        and _is_path(entry.get("path"))
        and _is_count(entry.get("size_bytes"))
        and _is_count(entry.get("rows"))
        and isinstance(entry.get("sha256"), str)
        and _is_count(entry.get("snapshot", number))
    )


def _files(output_root: str, number: int, body: dict[str, Any]) -> list[PublishedFile]:
    return [
        PublishedFile(
            branch=branch,
            path=posixpath.join(output_root.rstrip("/"), entry["path"]),
            size_bytes=entry["size_bytes"],
            sha256=entry["sha256"],
            rows=entry["rows"],
            snapshot=entry.get("snapshot", number),
        )
        for branch, entries in body["branches"].items()
        for entry in entries
    ]
