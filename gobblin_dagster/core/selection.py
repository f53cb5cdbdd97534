"""Which datasets a command or a run works on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gobblin_dagster.core.utils.text import count

_MOST_NAMED = 5


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

    def why_empty(self, offered: Collection[str]) -> str:
        """Say which option left out which of the datasets, if none is selected.

        Example:
            >>> Selection(("a*",), ("*1",)).why_empty(["a1", "b1"])
            "of 2 datasets, --select 'a*' takes 1 (a1), and --exclude '*1' leaves out all of these"
        """
        if not offered:
            return "the source has no dataset"
        chosen = [urn for urn in offered if not self.select or any(_glob(one, urn) for one in self.select)]
        wanted = f"--select {_quoted(self.select)}"
        total = count(len(offered), "dataset")
        if not chosen:
            return f"of {total}, {wanted} takes none ({_some(offered)})"
        left_out = f"--exclude {_quoted(self.exclude)} leaves out all"
        if not self.select:
            return f"{left_out} of {total} ({_some(chosen)})"
        return f"of {total}, {wanted} takes {len(chosen):,} ({_some(chosen)}), and {left_out} of these"


def _quoted(patterns: Collection[str]) -> str:
    return " ".join(map(repr, patterns))


def _some(urns: Collection[str]) -> str:
    first = sorted(urns)[:_MOST_NAMED]
    return ", ".join([*first, *(["..."] if len(urns) > len(first) else [])])


def _glob(pattern: str, dataset_urn: str) -> bool:
    return dataset_urn == pattern or fnmatchcase(dataset_urn, pattern)
