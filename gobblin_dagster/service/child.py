"""A program that the service keeps running beside it, such as Dagster: started again when it ends, ended with it."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gobblin_dagster.core.memory import address_space
from gobblin_dagster.core.utils.text import count

log = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
"""Seconds until a program that ended is started again: they double while it ends soon after its start."""
SOUND_S = 60.0
"""A program that lived this long counts as started well."""
END_WAIT_S = 15.0
"""Seconds that a program gets to end."""


class Child:
    """Keeps one program running.

    Its standard input is a pipe that the service holds open: when the pipe ends, by the service's end or by `kill -9`
    of it, the program must end.

    Args:
        name: of the program, for the log.
        command: starts it.
        folder: where it runs.
        log_file: takes what it prints.
        end_wait_s: seconds that it gets to end, before it is killed; default: `END_WAIT_S`.
    """

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, log_file: Path, end_wait_s: float | None = None
    ) -> None:
        self._end_wait_s = END_WAIT_S if end_wait_s is None else end_wait_s
        self._name = name
        self._command = list(command)
        self._folder = folder
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._ends = 0
        """How often it ended since it was last started well."""
        self._last = ""
        """Why it ended last."""
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Name of the program."""
        return self._name

    @property
    def problem(self) -> str:
        """Why the program may not work, for people; empty if it runs and did not end lately."""
        is_sound = self._process is not None and time.monotonic() - self._began > SOUND_S
        if is_sound or not self._ends:
            return ""
        return f"ended {count(self._ends, 'time')}, last with {self._last}; see {self._log_file}"

    @property
    def pid(self) -> int | None:
        """The program's process id; None while it does not run."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the program, and keep it running in a thread."""
        self._thread = threading.Thread(target=self._keep, name=self._name, daemon=True)
        self._thread.start()

    def stop(self, *, at_once: bool = False) -> None:
        """End the program and wait for its end."""
        self._ending.set()
        with self._lock:
            process = self._process
        if process is not None:
            if at_once:
                process.kill()
            else:
                process.terminate()
            try:
                process.wait(self._end_wait_s)
            except subprocess.TimeoutExpired:
                log.warning("%s did not end within %d s and is killed", self._name, self._end_wait_s)
                process.kill()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._ending.is_set():
            self._began = time.monotonic()
            code = self._run()
            if self._ending.is_set():
                return
            was_sound = time.monotonic() - self._began > SOUND_S
            self._ends, self._last = 1 if was_sound else self._ends + 1, code
            wait_s = FIRST_WAIT_S if was_sound else min(2 * wait_s, LONGEST_WAIT_S)
            log.warning("%s ended (%s) and is started again in %d s; see %s", self._name, code, wait_s, self._log_file)
            self._ending.wait(wait_s)

    def _run(self) -> str:
        """Start the program and wait for its end; return why it ended."""
        with self._lock:
            if self._ending.is_set():
                return "never started"
            try:
                self._log_file.parent.mkdir(parents=True, exist_ok=True)
                with self._log_file.open("ab") as output, address_space.lifted():
                    process = subprocess.Popen(  # noqa: S603 - the service's own program
                        self._command,
                        cwd=self._folder,
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=output,
                        # A Ctrl-C for the service must not reach it: the service decides how it ends.
                        start_new_session=True,
                    )
            except OSError as error:
                return str(error)
            self._process = process
        code = process.wait()
        with self._lock:
            self._process = None
        if process.stdin is not None:
            process.stdin.close()
        return f"code {code}"
