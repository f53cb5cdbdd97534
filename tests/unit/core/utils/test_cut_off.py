from __future__ import annotations

import socket

import pytest

from gobblin_dagster.core.utils.cut_off import cut_off


def test_who_waits_on_a_connection_that_is_cut_off_sees_its_end() -> None:
    ours, other = socket.socketpair()
    with ours, other:
        cut_off(ours.fileno())
        assert ours.recv(1) == b""
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")
        assert ours.fileno() >= 0, "its owner closes it"
    cut_off(1 << 20)  # nothing has this number
