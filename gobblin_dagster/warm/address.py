"""The address of a project's worker: a unix socket in a folder that nobody else can enter."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DAGSTER = "dagster"
"""Purpose of the worker of Dagster's runs; that of `gobblin run` has none."""
MAX_SOCKET_BYTES = 100
"""Longest path of a socket: systems allow 104 to 108 bytes with the end mark."""


@dataclass(frozen=True, slots=True)
class WarmAddress:
    """Where a worker of one project and one Python listens."""

    path: Path
    """The socket."""

    @classmethod
    def of(cls, root: Path, purpose: str = "") -> WarmAddress:
        """Return the address for a project folder and this Python.

        Workers for different purposes stand side by side. The folder is made if needed: below `XDG_RUNTIME_DIR`, or
        the folder of temporary files, or `/tmp`: the first in which the path is short enough for a socket.

        Raises:
            OSError: no such folder can be used; the message says why for each.
        """
        purposes = [purpose] if purpose else []  # the address of `gobblin run` stays what it was
        identity = "\0".join([str(root.resolve()), sys.executable, sys.prefix, sys.version, *purposes])
        name = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:16]
        problems = []
        places = [os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"]  # noqa: S108 - a private folder in it
        for place in dict.fromkeys(place for place in places if place):
            folder = Path(place, f"gobblin-dagster-{os.getuid()}")
            if len(os.fsencode(folder / f"{name}.sock")) > MAX_SOCKET_BYTES:
                problems.append(f"{folder}: the path is longer than {MAX_SOCKET_BYTES} bytes, too long for a socket")
                continue
            try:
                _make_private(folder)
            except OSError as error:
                problems.append(str(error))
                continue
            return cls(folder / f"{name}.sock")
        raise OSError("; ".join(problems))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock under which a worker is found, started, and ends because it was idle."""
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def connect(self) -> socket.socket | None:
        """Return a connection to the worker, or None if none listens.

        Raises:
            OSError: what listens belongs to another user.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
            require_own_peer(connection)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        return connection

    def listen(self) -> socket.socket:
        """Return a new listening socket at this address, in place of one that nobody serves; hold the lock."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        self.path.chmod(0o600)
        listener.listen(16)
        return listener


def require_own_peer(connection: socket.socket) -> None:
    """Raise PermissionError if the other end belongs to another user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return  # the folder's permissions alone keep others out
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.getuid():
        raise PermissionError(f"the other end of the socket belongs to user {uid}, not to {os.getuid()}")


def _make_private(folder: Path) -> None:
    """Make a folder that only its owner can enter; raises OSError if there is something else of this name."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user's")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
