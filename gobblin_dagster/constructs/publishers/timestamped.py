"""TimestampedPublisher: a folder for each publication."""

from __future__ import annotations

from typing import ClassVar, Literal

from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.core.traits import ALL_WIDENINGS
from gobblin_dagster.spec.job import SpecModel


class TimestampedOptions(SpecModel):
    """Options of the publisher `timestamped`."""

    name: Literal["instant", "commit"] = "instant"
    """Name of the folder. `instant`: UTC in milliseconds, `20261121T101500123Z`, which sorts by time; `commit`: the
    commit id."""
    replace: bool = False
    """True: a snapshot has only the newest folder. False: all folders."""


class TimestampedPublisher:
    """Put each publication into its own folder, below the dataset's folder.

    Source: gobblin-core `TimestampDataPublisher` (`<final>/<table>/<millis>`). Differs: the folder's name can be read
    by people, and it is below the dataset's folder; with `replace`, a snapshot has only the newest folder.
    """

    Options = TimestampedOptions
    allows_compaction: ClassVar = True
    widens: ClassVar = ALL_WIDENINGS

    def __init__(self, options: TimestampedOptions, context: ConstructContext) -> None:
        self._options = options
        self.reads_current = options.replace
        self.needs_all_units = options.replace
        self.on_again = "replace" if options.replace else "append"

    def subfolder(self, view: PublishView) -> str:
        """Return the name of this publication's folder."""
        if self._options.name == "commit":
            return view.commit_id
        return f"{view.now:%Y%m%dT%H%M%S}{view.now.microsecond // 1000:03d}Z"

    def publish(self, view: PublishView) -> Publication:
        return Publication(removed=tuple(file.path for file in view.current))
