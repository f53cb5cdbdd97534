"""FormerPath: notice what another `path` does to a dataset that was read with a former one.

Positions are dates, or names of files below the first folders of `path`, the ones without a placeholder. If `path`
changes, a file may get another name or date, and be read twice or never; and files that did not match before, at
positions that are committed, are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gobblin_dagster.constructs.sources.files.discovery import Label
from gobblin_dagster.constructs.sources.files.listing import Examples, FoundFile
from gobblin_dagster.constructs.sources.files.pattern import Hidden, PathPattern
from gobblin_dagster.core.dataset_state import PLACE, DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark

_BELOW = "path below its first folders"
_HIDDEN = "hidden names of the path"
_MEND = (
    "Give the source the `path` that it had, and what is new a job of its own. Or let `gobblin state reset` forget the "
    "positions: the next run reads all files, or from where `gobblin startpoint set` says after it."
)


class FormerPath:
    """Compares the pattern that a dataset was read with, as its state tells, with the pattern of now."""

    def __init__(self, pattern: PathPattern, root: str, key: Label, label: Label) -> None:
        """Make one for a source.

        Args:
            pattern: the pattern of now.
            root: its root, for messages.
            key: returns a file's name, its path below the root of the pattern.
            label: returns a file's path for messages.
        """
        self._now, self._root, self._key, self._label = pattern, root, key, label
        self._formers: dict[tuple[str, str], PathPattern | None] = {}
        # Made once, because the plan asks for each of thousands of datasets.
        self.origin: Mapping[str, str] = {
            _BELOW: pattern.text_below_root(),
            _HIDDEN: str(pattern.hidden),
            PLACE: root,
        }
        """The `DatasetOffer.origin` of datasets that are read with the pattern of now."""

    def problem(self, state: DatasetState | None, files: Sequence[FoundFile]) -> str:
        """Return why files cannot be read on from the stored positions; empty if they can, or if nobody knows.

        Args:
            state: the dataset's state; states of earlier versions do not say what the path was.
            files: all files of the dataset that the pattern of now matches.
        """
        former = self._former(state)
        if state is None or former is None:
            return ""
        place = state.origin.get(PLACE, self._root)
        is_by_name = state.committed.watermark_type is not TimestampWatermark
        if is_by_name and place != self._root and former.dataset_level != self._now.dataset_level:
            return (
                "files are known by their names below the first folders of `path`. These were "
                f"{place} when the dataset was committed, and are {self._root} now: a file would have another name, "
                f"and be read twice or never. {_MEND}"
            )
        if former.date_format in ("", self._now.date_format):
            return ""
        for file in files:
            start = self._start_by(former, file)
            if start is not None and start != file.start:
                return (
                    f"{self._label(file.path)} is of the date {TimestampWatermark(file.start)} now, and was of "
                    f"{TimestampWatermark(start)} by `path` as it was when the dataset was committed: files would "
                    f"be read twice or never. {_MEND}"
                )
        return ""

    def notes(
        self, state: DatasetState | None, files: Sequence[FoundFile], is_committed: Callable[[FoundFile], bool | None]
    ) -> list[str]:
        """Return a note on files at committed positions that did not match before, or lie in another place.

        Args:
            state: the dataset's state.
            files: all files of the dataset.
            is_committed: tells whether a file's position is committed.
        """
        former = self._former(state)
        place = state.origin.get(PLACE, self._root) if state is not None else self._root
        if state is None or (former is None and place == self._root):
            return []
        passed, updated = Examples(), state.updated_at.timestamp()
        for file in files:
            if file.changed_at > updated or not is_committed(file):
                continue  # told as a late one, or read now
            is_known = place == self._root and former is not None and self._start_by(former, file) is not None
            if not is_known:
                passed.add(self._label(file.path))
        if not passed.count:
            return []
        if place != self._root:
            return [
                f"`path` began with the folder {place} when the dataset was committed, and begins with {self._root} "
                f"now. {passed.count} file(s) there lie at positions that are committed, and count as read: {passed}. "
                "If they are others than those that were read, give them a job of their own."
            ]
        return [
            f"{passed.count} file(s) did not match `path` as it was when the dataset was committed "
            f"(`{state.origin[_BELOW]}`), and lie at positions that are committed; they are not read: {passed}. To "
            "load their rows, give them a job of their own."
        ]

    def _start_by(self, former: PathPattern, file: FoundFile) -> datetime | None:
        return former.start_below_root(self._key(file.path).split("/"))

    def _former(self, state: DatasetState | None) -> PathPattern | None:
        """Return the pattern below its root that a dataset was read with; None if it is the one of now, or unknown."""
        known = (state.origin.get(_BELOW, ""), state.origin.get(_HIDDEN, "")) if state is not None else ("", "")
        if not known[0] or known == (self.origin[_BELOW], self.origin[_HIDDEN]):
            return None
        if known not in self._formers:
            try:
                self._formers[known] = PathPattern.parse(known[0], self._now.timezone.key, Hidden(known[1]))
            except ValueError:  # of a later version
                self._formers[known] = None
        return self._formers[known]
