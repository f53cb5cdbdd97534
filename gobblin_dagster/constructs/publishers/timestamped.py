"""A folder for each publication."""

from __future__ import annotations

from typing import ClassVar, Literal

from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.spec.job import SpecModel


class TimestampedOptions(SpecModel):
    """Options of the publisher `timestamped`."""

    name: Literal["instant", "commit"] = "instant"
    """`instant`: UTC to the millisecond, `20261121T101500123Z`, so that names sort by time. `commit`: the commit id."""
    replace: bool = False
    """True: a snapshot holds the newest folder alone. False: all folders."""


class TimestampedPublisher:
    """Puts each publication into a folder of its own, below the dataset's.

    Source: gobblin-core `TimestampDataPublisher` (`<final>/<table>/<millis>`). Differs: the folder is named for people and
    lies below the dataset's; `replace` makes the newest folder all that a snapshot holds.
    """

    Options = TimestampedOptions
    allows_compaction: ClassVar = True

    def __init__(self, options: TimestampedOptions, context: ConstructContext) -> None:
        self._options = options
        self.reads_current = options.replace
        self.needs_all_units = options.replace

    def subfolder(self, view: PublishView) -> str:
        """Return the folder of this publication."""
        if self._options.name == "commit":
            return view.commit_id
        return f"{view.now:%Y%m%dT%H%M%S}{view.now.microsecond // 1000:03d}Z"

    def publish(self, view: PublishView) -> Publication:
        return Publication(removed=tuple(file.path for file in view.current))
