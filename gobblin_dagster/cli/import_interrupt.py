"""Ctrl-C or SIGTERM while Python imports: it waits until the import is done, then interrupts as it does elsewhere.

An exception in the midst of an import leaves half a module behind, and native code that an import calls (pydantic's)
prints and drops it: the command would go on. One that is dropped all the same is asked for again, without a word.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from types import FrameType

RETRY_S = 0.02
LONGEST_S = 5.0
"""How long an import is waited for: one that hangs, such as that of a module of the project, can be interrupted."""

_IMPORT = "<frozen importlib"
"""How the file names of Python's own import code begin, in the frames of the stack."""


def interrupt_between_imports() -> None:
    """Let signals that raise KeyboardInterrupt do so once the main thread imports nothing, at the latest after 5 s."""
    # Not those that who called us ignores, and not on Windows.
    if hasattr(signal, "pthread_kill"):
        handler = _Handler()
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, handler)
                sys.unraisablehook = handler.ask_again_if_dropped


def raises_interrupt(handler: object) -> bool:
    """Return whether the handler of a signal raises KeyboardInterrupt, and does nothing else."""
    return handler is signal.default_int_handler or isinstance(handler, _Handler)


def raise_interrupt_of_import() -> None:
    """Raise KeyboardInterrupt if a signal came during an import that is done now."""
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if isinstance(handler, _Handler):
            handler.raise_if_asked()


class _Handler:
    """Handler of signals, which asks again a little later while there is an import.

    It takes no lock: a signal may come in the midst of the handler of another one, and would wait for itself.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        """When a signal that waits is raised, whatever is imported then; None: none waits."""

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if _imports(frame) and (self._until is None or now < self._until):
            self._ask_again(signum, self._until or now + LONGEST_S)
            return
        self._until = now
        self.raise_if_asked()

    def raise_if_asked(self) -> None:
        """Raise KeyboardInterrupt if a signal waits."""
        if self._until is None:
            return
        self._until = None
        raise KeyboardInterrupt

    def ask_again_if_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """Send the signal again if native code dropped its KeyboardInterrupt; Python's `sys.unraisablehook`."""
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            self._ask_again(signal.SIGINT, time.monotonic() + LONGEST_S)
        else:
            sys.__unraisablehook__(dropped)

    def _ask_again(self, signum: int, until: float) -> None:
        self._until = until
        _thread.start_new_thread(self._send_again, (signum,))  # the process does not wait for it

    def _send_again(self, signum: int) -> None:
        time.sleep(RETRY_S)
        if self._until is not None and (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, signum)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORT):
            return True
        frame = frame.f_back
    return False
