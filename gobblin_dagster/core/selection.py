"""Which datasets a command or a run is about."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Selection:
    """Which datasets a command is about, by globs over dataset.urns; an exact urn always selects itself."""

    select: tuple[str, ...] = ()
    """Globs; empty means all."""
    exclude: tuple[str, ...] = ()
    urns: frozenset[str] | None = None
    """Exact urns (partitions of a Dagster run); None means all."""

    def matches(self, dataset_urn: str) -> bool:
        """Tell whether the dataset is selected."""
        if self.urns is not None and dataset_urn not in self.urns:
            return False
        if any(_glob(pattern, dataset_urn) for pattern in self.exclude):
            return False
        return not self.select or any(_glob(pattern, dataset_urn) for pattern in self.select)


def _glob(pattern: str, dataset_urn: str) -> bool:
    return dataset_urn == pattern or fnmatchcase(dataset_urn, pattern)
