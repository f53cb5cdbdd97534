from __future__ import annotations

import socket

import pytest

from gobblin_dagster.core.utils.cut_off import cut_off, cut_off_all, cut_off_when_stopped, was_cut_off


def test_who_waits_on_a_connection_that_is_cut_off_sees_its_end() -> None:
    ours, other = socket.socketpair()
    with ours, other:
        cut_off(ours.fileno())
        assert ours.recv(1) == b""
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")
        assert ours.fileno() >= 0, "its owner closes it"
    cut_off(1 << 20)  # nothing has this number


def test_no_connection_is_made_once_all_were_cut_off() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        cut_off_when_stopped(ours)
        cut_off_all()
        assert theirs.recv(1) == b""
        with pytest.raises(KeyboardInterrupt):
            cut_off_when_stopped(theirs)
        assert (was_cut_off(), was_cut_off()) == (True, False)
        cut_off_when_stopped(theirs)
