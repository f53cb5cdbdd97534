"""Logins of browsers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gobblin_dagster.service.security.access import OWNER
from gobblin_dagster.service.security.sessions import SESSION_TIME, TICKET_TIME, Sessions


class Day:
    def __init__(self) -> None:
        self.at = datetime(2026, 11, 22, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def day() -> Day:
    return Day()


@pytest.fixture
def sessions(day: Day) -> Sessions:
    return Sessions("secret", day.now)


def test_cookie_is_known_on_each_node_until_its_time_is_over(sessions: Sessions, day: Day) -> None:
    header = f"other=1; {sessions.name}={sessions.cookie(OWNER)}"
    other_node = Sessions("secret", day.now)
    assert (sessions.known(header), other_node.known(header)) == (OWNER, OWNER)
    day.at += SESSION_TIME + timedelta(seconds=1)
    assert sessions.known(header) is None


def test_cookie_of_another_token_is_unknown_and_has_another_name(sessions: Sessions, day: Day) -> None:
    other = Sessions("new", day.now)
    assert other.name != sessions.name
    assert sessions.known(f"{sessions.name}={other.cookie(OWNER)}") is None


@pytest.mark.parametrize("value", ["", "x", ".", "x.y", "é.é", '"', "a=b.c", "\x00.\x00", "." * 5000])
def test_broken_cookie_is_nobodys(sessions: Sessions, value: str) -> None:
    assert sessions.known(f"{sessions.name}={value}") is None
    assert sessions.known(value) is None


def test_cookies_that_nobody_needs_are_not_read(sessions: Sessions) -> None:
    own = f"{sessions.name}={sessions.cookie(OWNER)}"
    assert sessions.known("a=b; " * 100 + own) == OWNER
    assert sessions.known("a=b; " * 200_000 + own) is None, "it would take a second and a half"


def test_changed_cookie_is_nobodys(sessions: Sessions) -> None:
    value = sessions.cookie(OWNER)
    for at in range(0, len(value), 7):
        changed = value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
        assert sessions.known(f"{sessions.name}={changed}") is None, changed


def test_ticket_counts_once_and_not_for_ever(sessions: Sessions, day: Day) -> None:
    ticket = sessions.ticket(OWNER)
    assert sessions.use_ticket("guessed") is None
    assert sessions.use_ticket(ticket) == OWNER
    assert sessions.use_ticket(ticket) is None
    late = sessions.ticket(OWNER)
    day.at += TICKET_TIME + timedelta(seconds=1)
    assert sessions.use_ticket(late) is None
