"""The process that forks workers, started as a module by `ProcessRunner`.

Forking the driver itself would not be safe: libraries run threads in it. This process has one thread, and has imported
what work units need, so that a worker begins within milliseconds.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress

import gobblin_dagster.engine.task.multi_work_unit  # noqa: F401 - before workers fork
from gobblin_dagster.constructs.sql.stuck import let_process_end
from gobblin_dagster.core.utils.pandas_when_used import import_pandas_when_used
from gobblin_dagster.core.utils.parent_process import end_with_parent
from gobblin_dagster.engine.processes.worker import serve_packs

READY = b"r"
"""What the server sends when it can fork."""
FORK = b"f"
"""What the driver sends, with a socket, for each worker."""


class _Forker:
    """Forks a worker for each socket that arrives, and tells the driver by that socket how the worker ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, socket.socket] = {}
        """Sockets of running workers by process id."""
        self._ended, wake = os.pipe()
        for end in (self._ended, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with no handler at all, nothing would be written
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork until the driver closes its end, or dies; then kill the workers that are left."""
        self._control.sendall(READY)
        control = self._control.fileno()
        while True:
            ready, _, _ = select.select([control, self._ended], [], [])
            if self._ended in ready:
                os.read(self._ended, 1024)
                self._reap()
            if control in ready:
                message, files, _, _ = socket.recv_fds(self._control, 1, 1)
                if not message:
                    break
                for file in files:
                    self._fork(socket.socket(fileno=file))
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, connection: socket.socket) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._workers[pid] = connection
            return
        code = 1
        try:
            end_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # The driver sees the end of another worker only when nobody holds its socket any more.
            for other in (*self._workers.values(), self._control):
                other.close()
            serve_packs(connection)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may reach the loop of the parent, in which this process still is
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            connection = self._workers.pop(pid)
            # A worker that was killed may have sent half of a line. The driver may have closed its end.
            with suppress(OSError):
                connection.send(f"\nexit {os.waitstatus_to_exitcode(status)}\n".encode(), socket.MSG_DONTWAIT)
            connection.close()


def main() -> None:
    """Serve the socket whose number is the argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    os.dup2(2, 1)  # what constructs print goes into the log, too
    let_process_end()
    import_pandas_when_used()
    # A worker looks for cycles no longer among the modules; and pages that nobody writes to stay shared.
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError):
        _Forker(control).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
