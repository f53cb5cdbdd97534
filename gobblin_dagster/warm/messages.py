"""Messages between a client and the warm worker: a length of four bytes (big-endian), then that many bytes of JSON.

One connection serves one command:

1. client: `run` with the command line, the current folder and the environment, beside it (SCM_RIGHTS) its standard
   input, output and error.
2. worker: `begun`, or `refused` with the reason: `busy` (another command runs) or `changed` (this worker ends, because
   something that it holds in memory was changed).
3. client: any number of `signal`. If the connection ends before the command, the client was killed.
4. worker: `ended` with the exit code. If the connection ends without it, the worker was killed.

A `run` with `stays` goes on without its client, which says `go` once it has read `begun`: if it does not, it went away
or runs the command elsewhere, and the worker drops it. `interrupt` names such a command: it gets a SIGINT, and the
worker ends with it.

`status`, `stop` and `interrupt` are answered at once, also while a command runs. No pickle: only JSON comes in.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

PROTOCOL = 1
MAX_BYTES = 8 << 20
"""Longest message; an environment may have megabytes."""
_HEAD = struct.Struct(">I")
Message = dict[str, Any]


def send(connection: socket.socket, kind: str, *, files: Sequence[int] = (), **fields: Any) -> None:
    """Send a message, and file descriptors with it; raises OSError if the other end is gone."""
    body = json.dumps({"kind": kind, "protocol": PROTOCOL, **fields}).encode()
    head = _HEAD.pack(len(body))
    if files:
        socket.send_fds(connection, [head], list(files))
    else:
        connection.sendall(head)
    connection.sendall(body)


def receive(connection: socket.socket, max_files: int = 0) -> tuple[Message | None, list[int]]:
    """Wait for a message; return it with the file descriptors that came with it, or None if the connection ended.

    Raises:
        ValueError: what came is no message.
        OSError: the connection broke.
    """
    if max_files:
        head, files, _, _ = socket.recv_fds(connection, _HEAD.size, max_files)
        head += _exactly(connection, _HEAD.size - len(head)) if head else b""
    else:
        head, files = _exactly(connection, _HEAD.size), []
    if len(head) < _HEAD.size:
        return None, files
    (size,) = _HEAD.unpack(head)
    if size > MAX_BYTES:
        raise ValueError(f"a message of {size:,} bytes; at most {MAX_BYTES:,} are read")
    body = _exactly(connection, size)
    if len(body) < size:
        return None, files
    message = json.loads(body)
    if not isinstance(message, dict) or message.get("protocol") != PROTOCOL:
        raise ValueError(f"no message of protocol {PROTOCOL}: {body[:100]!r}")
    return message, files


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next bytes; fewer only if the connection ended."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)
