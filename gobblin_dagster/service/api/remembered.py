"""Answers to GET that are given again while the store is away, so that reads go on; marked as stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from gobblin_dagster.service.api.messages import STALE, Answer, Request

MAX_BYTES = 64 << 20
"""Bytes of all remembered bodies together; the ones that were asked for longest ago are forgotten first."""
MAX_ANSWER_BYTES = 4 << 20
"""A longer body is not remembered."""

_Key = tuple[str, str, str, int]


class RememberedAnswers:
    """The newest answer to each GET that succeeded, in the memory of this process.

    An answer is given again only to who got it: what somebody may read was decided then.

    Args:
        now_s: seconds of a clock that never goes back.
        max_bytes: bytes of all bodies together at most.
    """

    def __init__(self, now_s: Callable[[], float], max_bytes: int = MAX_BYTES) -> None:
        self._now_s = now_s
        self._max_bytes = max_bytes
        self._answers: OrderedDict[_Key, tuple[float, Answer]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def remember(self, request: Request, answer: Answer) -> None:
        """Keep an answer, in place of an older one."""
        size = len(answer.body)
        with self._lock:
            self._forget(_key(request))
            if answer.status != 200 or answer.more is not None or size > min(MAX_ANSWER_BYTES, self._max_bytes):
                return
            self._answers[_key(request)] = (self._now_s(), answer)
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._answers)))

    def find(self, request: Request) -> Answer | None:
        """Return what was answered last, with its age in the headers; None if nothing is remembered."""
        with self._lock:
            found = self._answers.get(_key(request))
        if found is None:
            return None
        at, answer = found
        age = {"Age": str(int(self._now_s() - at)), "Warning": STALE}
        return replace(answer, headers={**answer.headers, **age})

    def _forget(self, key: _Key) -> None:
        found = self._answers.pop(key, None)
        if found is not None:
            self._bytes -= len(found[1].body)


def _key(request: Request) -> _Key:
    return request.principal.name, request.path, request.query, request.version
