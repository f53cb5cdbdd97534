"""The folders of a file store: the version of their layout, their names, and how to reach datasets.

format.json            version of the layout
former_base.json       the project's folder when paths were absolute; in stores of layout 1
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from gobblin_dagster.core.commit import canonical_json
from gobblin_dagster.core.errors import CorruptRecordError, StorageError, StoreVersionError, TransientError
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.state.files.dataset import DatasetFiles
from gobblin_dagster.state.files.records import DatasetHead

LAYOUT_VERSION = 6
"""1 stored absolute paths; 2 knew only startpoints of whole datasets, and would lose those of partitions; 3 kept all
sequences, and had one folder for parts; 4 had no events of startpoints in heads, and would lose them; 5
wrote heads that a program of layout 4, if it had opened the store before, took for its own."""
_WITHOUT_BASE = 2
"""The first version that stored paths relative to the project's folder."""
_FORMER_BASE = "former_base.json"
_STAYS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
"""Errors that a retry cannot help."""
S = TypeVar("S")
T = TypeVar("T")


def segment(text: str) -> str:
    """Return an id or job name as a folder name."""
    return DatasetUrn(text).path_segment


def _text(segment: str) -> str:
    return DatasetUrn.from_key(segment).value


class StoreFolder:
    """The folder of a store, made if it does not exist.

    Args:
        root: absolute folder of the store inside `storage`.
        storage: holds the files.
        threads: number of datasets that `each` works on at once.
        base: the project's folder, absolute; see `FileStateStore`.
        address: the folder as a person writes it, for messages; empty: `root`.

    Raises:
        StoreVersionError: the store has a newer layout; nothing was changed.
        StorageError: (all methods) the folder cannot be used.
        TransientError: (all methods) the storage cannot be used now.
    """

    def __init__(self, root: str, storage: Storage, threads: int, base: str, address: str = "") -> None:
        self.storage = storage
        self.root = root
        self._address = address or root
        self._threads = threads
        with self.errors():
            self._check_format(base)
            self.places = Places(base, self._former_base())

    @property
    def url(self) -> str:
        """Return the store's address, for messages."""
        return f"files:{self._address}"

    def path(self, *parts: str) -> str:
        """Return the path of what is in the store, by the names of its folders and its own."""
        return posixpath.join(self.root, *parts)

    def _check_format(self, base: str) -> None:
        version = self._layout_version()
        if version > LAYOUT_VERSION:
            raise StoreVersionError(store=self.url, found=str(version), known=str(LAYOUT_VERSION))
        if version < LAYOUT_VERSION:
            try:
                if version < _WITHOUT_BASE:
                    # First, so that it is there whenever the newer version is.
                    self.storage.put_if_absent(self.path(_FORMER_BASE), canonical_json({"base": base}).encode())
                self.storage.delete(self.path("format.json"))
                self._layout_version()
            except OSError as error:
                if error.errno not in _STAYS:
                    raise
                # A user who may only read, or has no room left, can still look at the store.

    def _layout_version(self) -> int:
        """Return the version of the layout, making a store where there is none."""
        path = self.path("format.json")
        try:
            # Read first, so that the store can be looked at without write permission or free space.
            content = self.storage.read(path)
        except FileNotFoundError:
            content = canonical_json({"store": "gobblin", "version": LAYOUT_VERSION}).encode()
            if not self.storage.put_if_absent(path, content):
                content = self.storage.read(path)
        try:
            return int(parse_json(content)["version"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"no version in {content[:80]!r}") from error

    def _former_base(self) -> str:
        """Return the project's folder while paths were absolute; empty where they never were."""
        path = self.path(_FORMER_BASE)
        try:
            content = self.storage.read(path)
        except FileNotFoundError:
            return ""
        try:
            return str(parse_json(content)["base"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"no folder in {content[:80]!r}") from error

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the storage into ours."""
        try:
            yield
        except OSError as error:
            if error.errno in _STAYS:
                raise StorageError(operation="use the state store", path=self.url, problem=str(error)) from error
            raise TransientError(problem=f"State store {self.url} cannot be used now: {error}.") from error

    def each(self, function: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Call a function for each item, in threads: most of the time is waiting for a disk or a network."""
        with self.errors():
            return in_parallel(function, list(items), self._threads)

    def names(self, *parts: str) -> list[str]:
        """Return the decoded names in a folder, without hidden files, which belong to other programs."""
        return [_text(name) for name in self.storage.list_names(self.path(*parts)) if not name.startswith(".")]

    def jobs(self) -> list[str]:
        """Return the names of all jobs that have a folder, sorted; `ALL_JOBS` too."""
        return sorted(self.names("jobs"))

    def dataset(self, job: str, urn: str) -> DatasetFiles:
        """Return the files of a dataset, which need not exist."""
        folder = self.path("jobs", segment(job), "datasets", segment(urn))
        return DatasetFiles(self.storage, folder, job, urn, self.places)

    def datasets(self, job: str, urns: Collection[str] | None = None) -> list[DatasetFiles]:
        """Return the files of some datasets of a job, each once; by default of all that have a folder."""
        if urns is None:
            with self.errors():
                urns = self.names("jobs", segment(job), "datasets")
        return [self.dataset(job, urn) for urn in dict.fromkeys(urns)]

    def existing(self, jobs: Collection[str], urns: Collection[str] | None) -> list[DatasetFiles]:
        """Return the files of datasets in many jobs, where they have a folder: one request for each job."""
        wanted = None if urns is None else frozenset(urns)
        return [
            dataset
            for of_job in self.each(self.datasets, jobs)
            for dataset in of_job
            if wanted is None or dataset.dataset_urn in wanted
        ]

    def heads(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[list[DatasetHead], dict[str, CorruptRecordError]]:
        """Return heads and, apart from them, why those of other datasets cannot be read."""
        damaged: dict[str, CorruptRecordError] = {}

        def head(dataset: DatasetFiles) -> DatasetHead | None:
            try:
                return dataset.head()
            except CorruptRecordError as error:
                damaged[dataset.dataset_urn] = error
                return None

        found = self.each(head, self.datasets(job, urns))
        return [one for one in found if one is not None], damaged
