"""The client: finds or starts the worker of a project, hands it a command, and waits for the end."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any, Self

from gobblin_dagster.core.errors import WorkerLostError
from gobblin_dagster.warm.address import WarmAddress
from gobblin_dagster.warm.messages import Message, receive, send
from gobblin_dagster.warm.watch import surroundings

WORKER_LOG = ".gobblin/warm-worker.log"
"""What the worker itself says; below the project folder."""
DAGSTER_LOG = ".gobblin/dagster-worker.log"
"""The same for the worker of Dagster's runs, with what these print."""
ANSWER_S = 60
"""Seconds in which a worker must take a command, its own start included; after them the command runs without it."""
MAX_LOG_BYTES = 1 << 20
PROGRAM = (sys.executable, "-m", "gobblin_dagster", "worker", "listen", "--socket")
"""The program of a worker; it is started in the project folder."""
_TRIES = 3
"""Workers that may end under a client before it gives up: each can end because it was idle, or because of a change."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A worker did not take a command, which may be run without one."""

    reason: str


def run_in_worker(
    root: Path, arguments: Sequence[str], *, may_start: bool, program: Sequence[str] = PROGRAM
) -> int | Refusal:
    """Run a command line in the project's worker, on this process's streams; return its exit code.

    Args:
        root: the project folder.
        arguments: the command line, without the program.
        may_start: whether to start a worker if none runs.
        program: the command that starts one; the number of its listening socket is added.

    Raises:
        WorkerLostError: the worker died while it ran the command.
    """
    try:
        address = WarmAddress.of(root)
        for _ in range(_TRIES):
            connection = _connect(address, root, root / WORKER_LOG, program if may_start else ())
            if connection is None:
                return Refusal("no worker runs")
            with connection, _PassedSignals(connection) as signals:
                answer = _hand_over(connection, arguments, signals)
                if answer is None or answer.get("reason") == "changed":
                    continue  # it ended, and nothing of the command has run
                if answer["kind"] != "begun":
                    return Refusal(str(answer.get("detail")))
                signals.pid = int(answer["pid"])
                return _wait(connection, signals, root)
    except (OSError, ValueError) as error:
        return Refusal(str(error))
    return Refusal(f"the worker ended {_TRIES} times before it began; see {root / WORKER_LOG}")


@dataclass(frozen=True, slots=True)
class Order:
    """A command that a worker runs to its end, whatever becomes of the client: see `begin_in_worker`."""

    arguments: Sequence[str]
    """The command line. `gobblin worker status` shows it, and it is logged."""
    given: str
    """What the command reads from its standard input; nobody else sees it."""
    noted: Mapping[str, str]
    """What must be as at the worker's start, beside the environment; names are such as `(job files)`."""


def begin_in_worker(address: WarmAddress, order: Order, program: Sequence[str], log: Path) -> int | Refusal:
    """Let a worker begin a command, and return the worker's process id; start the worker if none runs.

    Unlike `run_in_worker`, nobody waits for the end: the command goes on if this process ends. Its output, and what a
    new worker says, is appended to the log.

    Args:
        address: where the worker listens.
        order: the command.
        program: the command that starts a worker; the number of its listening socket is added.
        log: a file; its folder is made if needed.
    """
    try:
        for _ in range(_TRIES):
            connection = _connect(address, Path.cwd(), log, program, {**os.environ, **order.noted})
            if connection is None:
                return Refusal("no worker runs")
            with connection:
                answer = _begun(connection, order, log)
            if answer is None or answer.get("reason") == "changed":
                continue  # it ended, and nothing of the command has run
            return int(answer["pid"]) if answer["kind"] == "begun" else Refusal(str(answer.get("detail")))
    except (OSError, ValueError) as error:
        return Refusal(str(error))
    return Refusal(f"the worker ended {_TRIES} times before it began; see {log}")


def ask_worker(root: Path, kind: str, **fields: Any) -> Message | None:
    """Send a question to the worker for a project's commands; returns and raises as `ask_at`."""
    return ask_at(WarmAddress.of(root), kind, **fields)


def ask_at(address: WarmAddress, kind: str, *, timeout_s: float | None = None, **fields: Any) -> Message | None:
    """Send a question to a worker and return the answer.

    None if no worker runs, or if it ended before it answered. Raises OSError, TimeoutError if no answer comes in time.
    """
    with address.locked():
        connection = address.connect()
    if connection is None:
        return None
    with connection, suppress(BrokenPipeError, ConnectionResetError):
        connection.settimeout(timeout_s)
        send(connection, kind, **fields)
        return receive(connection)[0]
    return None


def _connect(
    address: WarmAddress, folder: Path, log: Path, program: Sequence[str], environment: Mapping[str, str] | None = None
) -> socket.socket | None:
    with address.locked():
        connection = address.connect()
        if connection is None and program:
            _start(address, folder, log, program, environment)
            connection = address.connect()
        return connection


def _start(
    address: WarmAddress, folder: Path, log: Path, program: Sequence[str], environment: Mapping[str, str] | None
) -> None:
    """Start a worker that serves a socket made here: clients can connect at once, and wait until it is ready."""
    log.parent.mkdir(parents=True, exist_ok=True)
    is_large = log.exists() and log.stat().st_size > MAX_LOG_BYTES
    with address.listen() as listener, log.open("w" if is_large else "a") as output:
        number = listener.fileno()
        subprocess.Popen(  # noqa: S603 - our own program
            [*program, str(number)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(number,),
            # Signals of the terminal reach the client, which passes on what concerns its command.
            start_new_session=True,
        )


def _begun(connection: socket.socket, order: Order, log: Path) -> Message | None:
    """Return the worker's answer to an order, and let it go on; None if it ended without one."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFile() as given, log.open("ab") as output, suppress(BrokenPipeError, ConnectionResetError):
        given.write(order.given.encode())
        given.seek(0)
        files = (given.fileno(), output.fileno(), output.fileno())
        connection.settimeout(ANSWER_S)
        here, environment = str(Path.cwd()), {**surroundings(), **order.noted}
        words = list(order.arguments)
        send(connection, "run", files=files, stays=True, arguments=words, folder=here, environment=environment)
        answer, _ = receive(connection)
        if answer is not None and answer["kind"] == "begun":
            send(connection, "go")  # from here on the command is the worker's; before, it is nobody else's than ours
        return answer
    return None


def _hand_over(connection: socket.socket, arguments: Sequence[str], signals: _PassedSignals) -> Message | None:
    """Return the worker's answer to a command; None if it ended without one."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        here, environment = str(Path.cwd()), surroundings()
        with signals.held():  # one that came in between would end the client as if nothing had been handed over
            connection.settimeout(ANSWER_S)  # a worker that was stopped (SIGSTOP) reads nothing
            send(connection, "run", files=(0, 1, 2), arguments=list(arguments), folder=here, environment=environment)
            connection.settimeout(None)
            signals.is_passing = True
        signals.await_message(ANSWER_S)
        return receive(connection)[0]
    except (BrokenPipeError, ConnectionResetError):
        return None


def _wait(connection: socket.socket, signals: _PassedSignals, root: Path) -> int:
    """Wait for the end of a command."""
    try:
        signals.await_message()
        message, _ = receive(connection)
    except OSError:
        message = None
    if message is None:
        raise WorkerLostError(pid=signals.pid, log=str(root / WORKER_LOG))
    return int(message["code"])


class _PassedSignals:
    """Sends Ctrl-C and SIGTERM to the worker that has the command; the third one kills it, if it has not ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self._is_held = False
        self._waiting: list[int] = []
        self.is_passing = False
        """Before the command is handed over, a signal ends the client."""
        self.pid = 0
        """Process of the worker, once it has begun the command."""

    def __enter__(self) -> Self:
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._former_wake = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_wake)
        self._woken.close()
        self._wake.close()

    def await_message(self, timeout_s: float | None = None) -> None:
        """Wait until the worker has said something, or has closed the connection; raises TimeoutError.

        Signals are passed on meanwhile. One that comes just before a call that waits does not end it: a byte wakes it.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for one in (self._connection, self._woken):
                selector.register(one, selectors.EVENT_READ)
            while True:
                ready = selector.select(None if end is None else max(end - time.monotonic(), 0))
                if any(key.fileobj is self._connection for key, _ in ready):
                    return
                if not ready:
                    raise TimeoutError("the worker does not answer")
                self._woken.recv(4096)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let signals wait until the block has ended. Blocking them would not do: another thread may take one."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            for number in self._waiting:
                self._handle(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_held:
            self._waiting.append(number)
            return
        self._count += 1
        if self._count > 2 and self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        if self._count > 2 or not self.is_passing:
            raise KeyboardInterrupt
        with suppress(OSError):
            send(self._connection, "signal", number=number)
