"""Which datasets a command or a run works on."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Selection:
    """The datasets that a command works on, chosen by globs over dataset.urns.

    A glob that equals a urn, letter by letter, matches this urn even if it holds `*`, `?` or `[`.
    """

    select: tuple[str, ...] = ()
    """Globs; empty means all."""
    exclude: tuple[str, ...] = ()
    """Globs; a dataset that matches one is left out."""
    urns: frozenset[str] | None = None
    """Exact urns (partitions of a Dagster run); None means all."""

    def matches(self, dataset_urn: str) -> bool:
        """Return whether the dataset is selected."""
        if self.urns is not None and dataset_urn not in self.urns:
            return False
        if any(_glob(pattern, dataset_urn) for pattern in self.exclude):
            return False
        return not self.select or any(_glob(pattern, dataset_urn) for pattern in self.select)


def _glob(pattern: str, dataset_urn: str) -> bool:
    return dataset_urn == pattern or fnmatchcase(dataset_urn, pattern)
