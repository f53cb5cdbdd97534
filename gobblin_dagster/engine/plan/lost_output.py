"""Find datasets whose newest files and manifest are both gone from the output: another project's, deleted, or set back.

Two projects that share a state store and a job's name take each other's watermarks for their own, and their outputs
hold half of the rows each. An output that was deleted, restored from an older copy, or is not mounted now, lacks rows
that the watermark has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.lost_files import lost_file
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.state.store import StateStore

_MOST_DATASETS = 200
"""Number of datasets without manifests that are looked at first: of each the store lists the files."""
_NEWEST = 3
"""Number of datasets, of those committed last, whose manifests are looked for: older copies of an output lack them."""
_AT_ONCE = 8


def lost_outputs(
    storage: Storage, store: StateStore, output_root: str, job: str, states: Mapping[str, DatasetState]
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would go on behind rows that are not there: the newest manifest is not.

    Costs one listing for all datasets, which finds those without any manifest, and a few requests, which find an output
    that was set back as a whole. Datasets whose files lie in a former output, or are still there, can go on: the next
    run writes their manifests.

    Args:
        storage: of the output.
        store: the state store.
        output_root: absolute path of the output.
        job: the job's name.
        states: the states of the datasets, by urn.

    Raises:
        OSError: the output cannot be read.
        TransientError: the store cannot be reached.
    """
    published = {urn: state for urn, state in states.items() if state.snapshot}
    if not published:
        return {}
    held = {*storage.list_names(internal_dir(output_root, MANIFEST_DIR, job))}
    newest = sorted(published, key=lambda urn: published[urn].updated_at)[-_NEWEST:]
    if set_back_outputs(storage, store, output_root, job, {urn: published[urn] for urn in newest}):
        return set_back_outputs(storage, store, output_root, job, published)
    bare = {urn: state for urn, state in published.items() if DatasetUrn(urn).path_segment not in held}
    return _without_files(storage, store, output_root, bare)


def set_back_outputs(
    storage: Storage, store: StateStore, output_root: str, job: str, states: Mapping[str, DatasetState]
) -> dict[str, str]:
    """Return the same as `lost_outputs`, for each dataset whose newest manifest is not there.

    Costs one request for each dataset, so it is for those that will be published.
    """
    published = {urn: state for urn, state in states.items() if state.snapshot}
    newest = [manifest_path(output_root, job, urn, state.snapshot) for urn, state in published.items()]
    sizes = in_parallel(storage.size, newest, _AT_ONCE)
    bare = {urn: state for (urn, state), size in zip(published.items(), sizes, strict=True) if size is None}
    return _without_files(storage, store, output_root, bare)


def _without_files(
    storage: Storage, store: StateStore, output_root: str, bare: Mapping[str, DatasetState]
) -> dict[str, str]:
    """Return what is wrong with those datasets, of these without a manifest, whose newest files are gone too."""

    def lost(urns: Sequence[str]) -> dict[str, str]:
        gone: dict[str, str] = {}
        for urn in urns:
            # Whoever needs the files of a damaged record tells of it; other datasets go on.
            with suppress(CorruptRecordError):
                if path := lost_file(storage, store, output_root, bare[urn]):
                    gone[urn] = path
        return gone

    urns = sorted(bare)
    found = lost(urns[:_MOST_DATASETS])
    if found:
        found |= lost(urns[_MOST_DATASETS:])
    return {
        urn: f"the state store {store.url} says that this job published snapshot {bare[urn].snapshot} of dataset "
        f"{urn!r}, but {output_root} holds neither its newest files, such as {path}, nor its newest manifest, "
        f"{manifest_path(output_root, bare[urn].job, urn, bare[urn].snapshot)}. If the output was restored from an "
        "older copy, restore its newest one. "
        f"If another project shares the store and has a job {bare[urn].job!r} too, give one of the jobs another name, "
        "or its project another store. If the output was moved or is not mounted, bring it back. If it was deleted, "
        "run `gobblin verify --repair`, which writes the manifests again: runs then go on behind the rows that are "
        "gone. To read them again, set a startpoint after that (`gobblin startpoint set --on-rewind replace`)."
        for urn, path in found.items()
    }
