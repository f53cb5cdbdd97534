"""FairSlots: gives a number of slots to several owners in turn, so that one with much to do keeps no other waiting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable


class FairSlots:
    """Slots for threads of several owners: the owners have them in turn, the threads of one in the order they asked.

    Args:
        number: number of slots.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[threading.Event]] = {}
        """What was asked for and not given, by owner; the first owner has the next slot."""

    @property
    def waiting(self) -> tuple[Hashable, ...]:
        """Owners that wait for a slot; the first one has the next."""
        with self._lock:
            return tuple(self._waiting)

    def ask(self, owner: Hashable) -> threading.Event:
        """Ask for a slot, and return the event that is set once it is given."""
        given = threading.Event()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(given)
            self._give()
        return given

    def give_up(self, owner: Hashable, asked: threading.Event) -> None:
        """Ask no longer; a slot that was given goes to the next one."""
        with self._lock:
            if asked.is_set():
                self._free += 1
                self._give()
                return
            self._waiting[owner].remove(asked)
            if not self._waiting[owner]:
                del self._waiting[owner]

    def release(self) -> None:
        """Give a slot back."""
        with self._lock:
            self._free += 1
            self._give()

    def _give(self) -> None:
        while self._free and self._waiting:
            owner = next(iter(self._waiting))
            asked = self._waiting.pop(owner)
            asked.popleft().set()
            self._free -= 1
            if asked:
                self._waiting[owner] = asked  # behind the other owners
