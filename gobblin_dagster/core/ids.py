"""Identifiers of runs and commits."""

from __future__ import annotations

import secrets
from datetime import datetime


def new_run_id(now: datetime) -> str:
    """Return a run id that sorts by time and cannot collide: `20261121T080000-<64 random bits>`."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(8)}"


def new_commit_id() -> str:
    """Return 128 random bits as 32 hex digits; part of every published file name, so no name is ever reused."""
    return secrets.token_hex(16)
