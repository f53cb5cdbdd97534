from __future__ import annotations

import os
import socket

import pytest

from gobblin_dagster.warm import messages
from gobblin_dagster.warm.messages import receive, send


def test_message_comes_whole_with_its_files() -> None:
    here, there = socket.socketpair()
    with here, there:
        send(here, "run", files=(1, 2), arguments=["ä", "x" * 10_000])
        message, files = receive(there, max_files=3)
        assert message is not None
        assert (message["kind"], message["arguments"]) == ("run", ["ä", "x" * 10_000])
        assert [os.fstat(file).st_ino for file in files] == [os.fstat(number).st_ino for number in (1, 2)]
        for file in files:
            os.close(file)


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x09{"])
def test_end_of_the_connection_is_no_message(sent: bytes) -> None:
    here, there = socket.socketpair()
    with there:
        here.sendall(sent)
        here.close()
        assert receive(there) == (None, [])


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\0\0\0\x02[]", "no message of protocol"),
        (b'\0\0\0\x0e{"protocol":0}', "no message of protocol"),
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes"),
        (b"\0\0\0\x02\x80\x04", "decode|utf"),
    ],
)
def test_what_is_no_message_is_refused(sent: bytes, said: str) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(sent)
        with pytest.raises(ValueError, match=said):
            receive(there)


def test_protocol_has_a_number() -> None:
    assert messages.PROTOCOL == 1
