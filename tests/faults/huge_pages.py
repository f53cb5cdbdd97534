"""Forks in milliseconds: a process of 800 MB has 200,000 pages of 4 kB, and a fork copies an entry for each.

That costs 50 ms a fork on a virtual machine, and hundreds of schedules fork. Pages of 2 MB need 400 entries.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

HUGE_BYTES = 2 * 1024 * 1024
_MADV_COLLAPSE = 25
"""Of Linux 6.1 and later; another kernel refuses it, and the pages stay as they are."""
_MAPS = Path("/proc/self/smaps")
_OWN_MEMORY = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 *(?:\[heap\])?\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB\n", re.M
)


def make_pages_huge() -> None:
    """Put the memory that this process has in use into huge pages, where the system can."""
    if not _MAPS.exists():
        return
    libc = ctypes.CDLL(None)
    for first, end in _ranges(_MAPS.read_text()):
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _MADV_COLLAPSE)


def _ranges(maps: str) -> Iterator[tuple[int, int]]:
    """Yield (first address, end) of the parts that huge pages fit in; those of which little is in use stay small."""
    for first, end, size, used in _OWN_MEMORY.findall(maps):
        aligned = -(-int(first, 16) // HUGE_BYTES) * HUGE_BYTES, int(end, 16) // HUGE_BYTES * HUGE_BYTES
        if int(used) * 2 > int(size) and aligned[0] < aligned[1]:
            yield aligned
