"""The worker: runs the commands of clients one at a time, in the main thread, on the standard streams of the client.

It ends when it was idle for long, after many commands, when it is told to, and whenever it might run a command in
another way than a fresh process would: see `watch`. A client that is refused runs its command without a worker, or
starts a new one.

If a client is killed, its command is stopped as by one Ctrl-C: work units that run end, and what is whole is committed.
A command that is interrupted twice stops at once, and the worker ends with it, since Spark may still be at work. It
ends too with a command that goes on without its client (see `messages`) and is interrupted once.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.utils.environment import PASSING
from gobblin_dagster.core.utils.standard_error import unfailing_stderr
from gobblin_dagster.warm.address import WarmAddress, require_own_peer
from gobblin_dagster.warm.messages import Message, receive, send
from gobblin_dagster.warm.watch import Watch

log = logging.getLogger(__name__)

MAX_COMMANDS = 200
"""Commands after which a worker makes room for a fresh one."""
MAX_AGE_S = 24 * 3600
_GREETING_S = 10
"""Seconds in which a client must say what it wants."""
_GO_S = 60
"""Seconds in which a client must say `go`: as many as it waits for an answer itself."""


@dataclass(slots=True)
class _Command:
    """A command that a client handed over."""

    connection: socket.socket
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]
    stays: bool = False
    """Whether it goes on when its client has gone."""
    signals: int = 0
    """Signals that came for it."""
    is_running: bool = False


class WarmServer:
    """A worker.

    Args:
        address: where the clients find it.
        listener: listens there.
        run: runs a command line and returns its exit code; called in the thread that calls `serve`, the main one.
        watch: notices changes.
        unfit: says why no further command can be run (Spark is dead); empty if one can.
        keep_s: seconds without a command after which the worker ends.
        about: facts for `gobblin worker status`.
    """

    def __init__(
        self,
        address: WarmAddress,
        listener: socket.socket,
        run: Callable[[Sequence[str]], int],
        watch: Watch,
        unfit: Callable[[], str],
        keep_s: float,
        about: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._address = address
        self._listener = listener
        self._run = run
        self._watch = watch
        self._unfit = unfit
        self._keep_s = keep_s
        self._about = about
        self._commands: queue.Queue[_Command | None] = queue.Queue()
        self._current: _Command | None = None
        self._count = 0
        self._started = time.time()
        self._idle_since = time.time()
        self._is_ending = False
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Run commands until there is a reason to end; then nobody can connect any more."""
        # The worker's own end is ordered by messages; signals are for the command that runs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # who started the worker may have ignored it
        threading.Thread(target=self._accept, name="warm-accept", daemon=True).start()
        command: _Command | None
        while True:
            try:
                command = self._commands.get(timeout=self._keep_s)
            except queue.Empty:
                self._end_if_idle()
                continue
            if command is None:
                break
            self._serve(command)
        with suppress(queue.Empty):
            while command := self._commands.get_nowait():  # it came while the worker was told to end
                self._serve(command)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed: the worker ends
            threading.Thread(target=self._talk, args=(connection,), name="warm-client", daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        """Answer one client."""
        try:
            require_own_peer(connection)
            connection.settimeout(_GREETING_S)
            message, files = receive(connection, max_files=3)
            connection.settimeout(None)
            if message is None:
                _close_files(files)
                connection.close()
            elif message["kind"] == "run":
                self._take(connection, message, files)
            elif message["kind"] == "status":
                send(connection, "status", **self._status())
                connection.close()
            elif message["kind"] == "stop":
                self._stop(connection, at_once=bool(message.get("at_once")))
            elif message["kind"] == "interrupt":
                self._interrupt(connection, message["arguments"])
            else:
                raise ValueError(f"a message of the kind {message['kind']!r}")  # of a newer version, maybe
        except Exception as error:  # noqa: BLE001 - whatever came, its client must not wait for an answer
            log.warning("a client was not understood: %s: %s", type(error).__name__, error)
            connection.close()

    def _take(self, connection: socket.socket, message: Message, files: list[int]) -> None:
        if len(files) != 3:
            _close_files(files)
            raise ValueError(f"{len(files)} streams came with a command instead of 3")
        command = _Command(connection, message["arguments"], message["folder"], message["environment"], files)
        command.stays = bool(message.get("stays"))
        with self._lock:
            refused = "busy" if self._current else ""
            reason = "another command runs" if refused else self._reason_to_end(command.environment)
            if not refused and not reason:
                self._current = command
        if self._current is not command:
            _close_files(files)
            if not refused:
                log.info("the worker ends: %s", reason)
                self._close()  # before the answer: the client may start another at once
            send(connection, "refused", reason=refused or "changed", detail=reason)
            connection.close()
            return
        try:
            # Said before it is true: a client that has not heard of the beginning runs the command elsewhere.
            send(connection, "begun", pid=os.getpid())
            if command.stays:
                _require_go(connection)
        except (OSError, ValueError):
            with self._lock:
                self._current = None
            _close_files(files)
            raise
        self._commands.put(command)
        if not command.stays:
            self._attend(command)

    def _reason_to_end(self, environment: dict[str, str]) -> str:
        if self._is_ending:
            return "the worker ends"
        if self._count >= MAX_COMMANDS:
            return f"the worker has run {self._count} commands"
        if time.time() - self._started > MAX_AGE_S:
            return "the worker is a day old"
        return self._unfit() or self._watch.changed(environment)

    def _attend(self, command: _Command) -> None:
        """Pass on the signals of a client until its command has ended, or the client has."""
        while True:
            try:
                message, _ = receive(command.connection)
            except (OSError, ValueError):
                message = None
            if message is None:
                self._signal(command, signal.SIGINT if not command.signals else None)
                return
            if message["kind"] == "signal":
                self._signal(command, message["number"])

    def _interrupt(self, connection: socket.socket, arguments: list[str]) -> None:
        """Send a SIGINT to the command that runs, if it is the one meant, and tell whether it was."""
        with self._lock:
            current = self._current
        is_meant = current is not None and current.arguments == arguments and current.is_running
        send(connection, "interrupted", was_running=is_meant)  # before the worker ends with the command
        connection.close()
        if is_meant and current is not None:
            self._signal(current, signal.SIGINT)

    def _signal(self, command: _Command, number: int | None) -> None:
        with self._lock:
            if self._current is command and number in (signal.SIGINT, signal.SIGTERM):
                command.signals += 1
                if command.is_running:
                    os.kill(os.getpid(), signal.Signals(number))

    def _serve(self, command: _Command) -> None:
        began = time.time()
        log.info("command: %s", command.arguments)
        with _streams_of(command.files), _place_of(command), _default_signals():
            code = self._run_unless_stopped(command)
        with self._lock:
            self._current = None
            self._count += 1
            self._idle_since = time.time()
            if command.signals > (0 if command.stays else 1):
                self._is_ending = True
        self._watch.learn(began)
        log.info("ended with %d after %.1f s", code, time.time() - began)
        if self._is_ending:
            self._close()
        with suppress(OSError):
            send(command.connection, "ended", code=code)
            command.connection.shutdown(socket.SHUT_RDWR)
        command.connection.close()

    def _run_unless_stopped(self, command: _Command) -> int:
        with self._lock:
            if command.signals:
                return ExitCode.INTERRUPTED  # it was stopped before it began
            command.is_running = True
        return self._run(command.arguments)

    def _stop(self, connection: socket.socket, *, at_once: bool) -> None:
        """End the worker: after the command that runs, which is stopped as by one Ctrl-C, or without waiting for it."""
        with self._lock:
            current = self._current
        send(connection, "stopping", pid=os.getpid())
        connection.close()
        if at_once and current is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        self._close()
        if current is not None:
            self._signal(current, signal.SIGINT)

    def _end_if_idle(self) -> None:
        with self._address.locked(), self._lock:
            # Under the lock nobody is connecting; a client that connected before is served.
            if self._current is None and not _has_waiting(self._listener):
                log.info("idle for %.0f s", self._keep_s)
                self._close()

    def _close(self) -> None:
        """Let nobody find this worker any more."""
        self._is_ending = True
        if self._listener.fileno() < 0:
            return
        # The name first: once the listener is closed, another worker may take the name.
        with suppress(OSError):
            self._address.path.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it
        self._listener.close()
        self._commands.put(None)

    def _status(self) -> dict[str, Any]:
        with self._lock:
            current = self._current
            return {
                "pid": os.getpid(),
                "python": sys.executable,
                "age_s": round(time.time() - self._started, 1),
                "commands": self._count,
                "runs_now": None if current is None else current.arguments,
                "idle_s": None if current else round(time.time() - self._idle_since, 1),
                "keep_s": self._keep_s,
                **self._about(),
            }


def _require_go(connection: socket.socket) -> None:
    """Wait until a client has read that its command begins; raises OSError or ValueError if it went away instead."""
    connection.settimeout(_GO_S)
    answer, _ = receive(connection)
    if answer is None or answer["kind"] != "go":
        raise ValueError("the client went away before its command began")


def _close_files(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _has_waiting(listener: socket.socket) -> bool:
    return bool(select.select([listener], [], [], 0)[0])


@contextmanager
def _streams_of(files: Sequence[int]) -> Iterator[None]:
    """Let standard input, output and error be those of the client, also for what native code prints."""
    own = [os.dup(number) for number in range(3)]
    streams = sys.stdin, sys.stdout, sys.stderr
    for stream in streams[1:]:
        stream.flush()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, closefd=False),  # noqa: SIM115 - they end with the command
        open(1, "w", closefd=False, buffering=1 if os.isatty(1) else -1),  # noqa: SIM115 - as above
        unfailing_stderr(),
    )
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, file in enumerate(own):
            os.dup2(file, number)
            os.close(file)


@contextmanager
def _place_of(command: _Command) -> Iterator[None]:
    """Be in the folder of the client, with the variables that belong to its call."""
    before = os.getcwd()  # noqa: PTH109 - may be gone
    own = {name: os.environ[name] for name in PASSING if name in os.environ}
    _set_passing(command.environment)
    with suppress(OSError):
        os.chdir(command.folder)
    try:
        yield
    finally:
        os.chdir(before)
        _set_passing(own)


def _set_passing(values: dict[str, str]) -> None:
    for name in PASSING:
        if name in values:
            os.environ[name] = values[name]
        else:
            os.environ.pop(name, None)


@contextmanager
def _default_signals() -> Iterator[None]:
    """Let a command find the handlers of signals that a fresh process has."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGTERM as `cli.program` sets it
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
