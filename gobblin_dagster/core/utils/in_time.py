"""Call what may wait for a server, and give up after a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def interruptible(call: Callable[[], T]) -> T:
    """Return what a call returns; in the main thread, Ctrl-C need not wait for its end, as for a library in C."""
    return in_time(call, None) if threading.current_thread() is threading.main_thread() else call()


def in_time(call: Callable[[], T], seconds: float | None) -> T:
    """Return what a call returns; it is made in a thread, which goes on alone if it takes longer.

    Raises:
        TimeoutError: it has not ended after so many seconds; None: it may take as long as it takes.
        Exception: raised by the call.

    Example:
        >>> in_time(lambda: 2, 10)
        2
    """
    answer: Future[T] = Future()

    def make() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=make, name="in time", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # the call's own
            raise
        raise TimeoutError(f"no answer in {seconds:g} seconds") from None
