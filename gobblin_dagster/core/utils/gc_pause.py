"""Pause Python's cycle collector while code makes very many values that are all kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the cycle collector inside this block.

    Searching a structure that only grows for cycles took a third of the planning time of 100,000 known files.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
