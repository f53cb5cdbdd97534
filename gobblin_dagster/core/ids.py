"""Identifiers of runs, commits and persons."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from datetime import UTC, datetime

from gobblin_dagster.core.errors import UsageError

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PERSON = "person-"


def new_run_id(now: datetime) -> str:
    """Return a run id that sorts by time and cannot collide: `20261121T080000-<64 random bits>`."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(8)}"


def check_run_id(run_id: str) -> None:
    """Raise UsageError if an id cannot name a run; it becomes the name of a folder and a key in the state store.

    Raises:
        UsageError: the id is not 1 to 100 letters, digits, `.`, `_` and `-`, with a letter or digit first.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise UsageError(
            problem=f"{run_id[:40]!r} cannot name a run.",
            hint="A run id is 1 to 100 letters (a-z, A-Z), digits, `.`, `_` and `-`, with a letter or digit first.",
        )


def new_commit_id() -> str:
    """Return 128 random bits as 32 hex digits; part of every published file name, so no name is ever reused."""
    return secrets.token_hex(16)


def new_person_id() -> str:
    """Return an id for a change that a person makes; stored in place of a run id."""
    return f"{_PERSON}{new_commit_id()[:12]}"


def who() -> str:
    """Return the person at the keyboard, `user@host`, for the history.

    Containers often run as a user id that has no name: `uid-1000@host`.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13, and from it on
        name = f"uid-{os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def is_of_person(run_id: str) -> bool:
    """Return whether an id is of `new_person_id`; ids of runs are made by `new_run_id` or by Dagster."""
    return run_id.startswith(_PERSON)


def run_began_at(run_id: str) -> datetime | None:
    """Return the second in which a run began, read from its id; None if the id does not begin with a time.

    Example:
        >>> run_began_at("20261121T080000-00ff00ff00ff00ff"), run_began_at("person-1234")
        (datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
