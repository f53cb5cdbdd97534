"""The place of a state store tells whether two programs use the same one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gobblin_dagster.state.place import state_place

HOST = socket.gethostname()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:///.gobblin/state.db", f"sqlite:{HOST}:/shop/.gobblin/state.db"),
        ("sqlite:////var/state.db", f"sqlite:{HOST}:/var/state.db"),
        ("files:state", f"files:{HOST}:/shop/state"),
        ("files:s3://bucket/state", "s3:bucket:/state"),
        ("postgresql://me:secret@db.example/state", "postgresql:db.example:5432/state"),
        ("postgres://you@DB.example:5432/state?password=secret", "postgresql:db.example:5432/state"),
        ("postgresql+psycopg2://me@localhost:6000/state", f"postgresql:{HOST}:6000/state"),
        ("postgresql://me:s#c/r?t@db.example/state", "postgresql:db.example:5432/state"),
    ],
)
def test_place_names_machine_and_file_or_server_and_database(url: str, place: str) -> None:
    assert state_place(url, Path("/shop")) == place
