"""The run history in a file store.

jobs/<job>/runs/<started>-<run id>/<n>.json     one run; the highest number counts
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Collection, Iterator
from datetime import UTC
from itertools import islice

from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.run_record import RunRecord, is_run
from gobblin_dagster.state.files.folder import StoreFolder, segment
from gobblin_dagster.state.files.log import VersionLog
from gobblin_dagster.state.files.records import decode, encode

logger = logging.getLogger(__name__)


def save(folder: StoreFolder, record: RunRecord) -> None:
    """Write the newest version of a run's record."""
    # The name begins with the time, so that the newest runs are found without reading the others.
    name = f"{record.started_at.astimezone(UTC):%Y%m%dT%H%M%S%f}-{segment(record.run_id)}"
    with folder.errors():
        VersionLog(folder.storage, posixpath.join(_runs(folder, record.job), name)).write(encode(record))


def prune(folder: StoreFolder, job: str, keep: int) -> None:
    """Delete the records of all runs but the newest."""
    with folder.errors():
        for name in sorted(folder.storage.list_names(_runs(folder, job)), reverse=True)[keep:]:
            folder.storage.delete_tree(posixpath.join(_runs(folder, job), name))


def load(folder: StoreFolder, job: str | None, limit: int) -> list[RunRecord]:
    """Return the newest records of a job, or of all, newest first."""
    with folder.errors():
        places = [_runs(folder, name) for name in (folder.jobs() if job is None else [job])]
        found = [(name, place) for place in places for name in folder.storage.list_names(place)]
        return list(islice(_read(folder, found), limit))


def find(folder: StoreFolder, job: str, run_ids: Collection[str]) -> list[RunRecord]:
    """Return the records of some runs of a job (`is_run`), newest first."""
    segments = {segment(run_id) for run_id in run_ids}
    if not segments:
        return []
    with folder.errors():
        place = _runs(folder, job)
        names = folder.storage.list_names(place)
        return list(_read(folder, [(name, place) for name in names if is_run(name.partition("-")[2], segments)]))


def _read(folder: StoreFolder, found: list[tuple[str, str]]) -> Iterator[RunRecord]:
    """Read records by the names and parents of their folders, newest first."""
    for name, place in sorted(found, reverse=True):
        log = VersionLog(folder.storage, posixpath.join(place, name))
        number, content = log.read_newest()
        if number:  # if a run was killed while it wrote its first record, its folder is empty
            try:
                yield decode(RunRecord, content, log.path(number))
            except CorruptRecordError as error:  # it hides no other
                logger.warning("The record of a run is damaged, and left out: %s", error)


def _runs(folder: StoreFolder, job: str) -> str:
    return folder.path("jobs", segment(job), "runs")
