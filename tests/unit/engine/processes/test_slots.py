"""Slots that several owners share."""

from __future__ import annotations

import threading

from gobblin_dagster.engine.processes.slots import FairSlots


def asked(slots: FairSlots, owners: str) -> list[tuple[str, threading.Event]]:
    """Ask for a slot for each letter, which names an owner."""
    return [(owner, slots.ask(owner)) for owner in owners]


def given(requests: list[tuple[str, threading.Event]]) -> str:
    """Return the owners that have a slot."""
    return "".join(owner for owner, event in requests if event.is_set())


def in_order(slots: FairSlots, requests: list[tuple[str, threading.Event]]) -> str:
    """Give a slot back again and again; return the owners that have one each time."""
    order = ""
    while waiting := [one for one in requests if not one[1].is_set()]:
        slots.release()
        order += given(waiting)
    return order


def test_owners_have_slots_in_turn_whoever_asks_more() -> None:
    slots = FairSlots(2)
    assert given(asked(slots, "aa")) == "aa"
    assert in_order(slots, asked(slots, "aaaabbc")) == "abcabaa"


def test_owner_that_asks_again_comes_behind_those_that_wait() -> None:
    slots = FairSlots(1)
    slots.ask("a")
    waiting = asked(slots, "b")
    waiting += asked(slots, "a")
    assert in_order(slots, waiting) == "ba"


def test_slots_of_one_owner_are_given_in_the_order_of_the_requests() -> None:
    slots = FairSlots(1)
    slots.ask("a")
    first, second = slots.ask("a"), slots.ask("a")
    slots.release()
    assert (first.is_set(), second.is_set()) == (True, False)


def test_request_that_is_given_up_costs_no_slot_and_no_turn() -> None:
    slots = FairSlots(1)
    has, waits, last = slots.ask("a"), slots.ask("b"), slots.ask("c")
    slots.give_up("b", waits)
    assert slots.waiting == ("c",)
    slots.give_up("a", has)
    assert last.is_set(), "a slot that was given goes on"
    assert not waits.is_set()
    slots.release()
    assert slots.ask("b").is_set()
