"""Rows of the state stores in which workers of executors have kept watermarks; they stay when the workers are gone."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from gobblin_dagster.database.dialect import insert
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import state_places


def add_state_place(transaction: Transaction, executor: str, place: str) -> None:
    """Note that a worker of an executor keeps watermarks in a place (`state.place.state_place`)."""
    values = {"executor": executor, "place": place}
    transaction.execute(insert(transaction, state_places).values(values).on_conflict_do_nothing())


def load_state_places(transaction: Transaction) -> Mapping[str, frozenset[str]]:
    """Return the places of each executor that said any."""
    found: dict[str, set[str]] = {}
    for row in transaction.execute(select(state_places)):
        found.setdefault(row.executor, set()).add(row.place)
    return {executor: frozenset(places) for executor, places in found.items()}
