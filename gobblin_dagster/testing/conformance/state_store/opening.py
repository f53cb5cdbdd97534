"""How tests open the state store under test: the same one as often as they like, with a clock that they move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.base import Conformance, to_override
from gobblin_dagster.testing.conformance.state_store.values import START


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.instant = START

    def now(self) -> datetime:
        """Return the instant where it stands."""
        return self.instant

    def advance(self, by: timedelta) -> None:
        """Move it forward."""
        self.instant += by


class StoreMaker:
    """Opens one store as often as a test likes, and closes what is left open."""

    def __init__(self, open_one: Callable[[Clock], StateStore]) -> None:
        self.clock = ManualClock()
        self._open_one = open_one
        self._opened: list[StateStore] = []

    def open(self) -> StateStore:
        """Open the store once more."""
        self._opened.append(self._open_one(self.clock))
        return self._opened[-1]

    def close_all(self) -> None:
        """Close every opening, those that the test has closed too."""
        for store in self._opened:
            store.close()


class OpensStore(Conformance):
    """Tests that work on a state store."""

    protocol = "gobblin_dagster.state.StateStore"

    @pytest.fixture
    def open_one(self, tmp_path: Path) -> Callable[[Clock], StateStore]:
        """Return a function that opens the same store, empty at first, each time it is called.

        It takes the clock, for stores without one of their own. `close` must be allowed twice.
        """
        to_override(self, "a fixture `open_one`", "a function that takes a clock and opens the store under test")

    @pytest.fixture
    def maker(self, open_one: Callable[[Clock], StateStore]) -> Iterator[StoreMaker]:
        """Return what opens the store; all openings are closed after the test."""
        stores = StoreMaker(open_one)
        yield stores
        stores.close_all()

    @pytest.fixture
    def store(self, maker: StoreMaker) -> StateStore:
        """Return the store, opened once."""
        return maker.open()
