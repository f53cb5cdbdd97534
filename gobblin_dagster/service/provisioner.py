"""Provisioner: keeps as many workers running as executors of the topology ask for, and ends those that none asks for.

The node that leads does so; when another one leads, it starts workers of its own, and these end. What a worker may do,
and what executor it works for, is said in the topology: a file that is stored or deleted registers or removes both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gobblin_dagster.service.child import Child
from gobblin_dagster.service.executors.turns import Turns
from gobblin_dagster.service.topology.graph import FlowGraph

log = logging.getLogger(__name__)

TICK_S = 0.5
"""How often the topology is looked at."""
END_WAIT_S = 300.0
"""Seconds that a worker gets to end the work units that run."""
LOG = ".gobblin/provisioned-{executor}-{number}.log"


class Launched(Protocol):
    """A worker that is kept running."""

    @property
    def problem(self) -> str:
        """Why it may not work, for people; empty if it runs."""

    def start(self) -> None:
        """Begin, and begin again whenever it ends; does not wait."""

    def stop(self, *, at_once: bool = False) -> None:
        """End it and wait for its end; what runs ends its work units, unless at once. May be called again to hurry."""


class SpecExecutorLauncher(Protocol):
    """Makes workers of an executor, on this machine or elsewhere.

    Called in one thread of the node that leads. A worker must end when the node that launched it is killed: the next
    one launches others.

    Source: gobblin-runtime `SpecExecutor`, and the provisioner of Gobblin-as-a-Service's design.
    """

    def launch(self, executor: str, number: int) -> Launched:
        """Return a worker, not started yet; `number` tells it from others of the executor, from 1."""


class LocalLauncher:
    """Makes workers that are processes beside the service.

    Args:
        command: starts a worker; the executor's name is added. Its standard input is a pipe: when that ends, by the end
            of the service or by `kill -9` of it, the worker must end.
        root: the folder where it runs: the service's project.
    """

    def __init__(self, command: Sequence[str], root: Path) -> None:
        self._command = tuple(command)
        self._root = root

    def launch(self, executor: str, number: int) -> Child:
        """Return a process that is started again, after longer and longer waits, when it ends."""
        log_file = self._root / LOG.format(executor=executor, number=number)
        name = f"worker {number} of {executor}"
        return Child(name, [*self._command, executor], self._root, log_file, END_WAIT_S)


class Provisioner:
    """Compares the workers that run with those that the topology asks for.

    Args:
        launcher: makes workers.
        topology: returns the topology as it is.
        is_active: whether this node provisions now.
    """

    def __init__(
        self, launcher: SpecExecutorLauncher, topology: Callable[[], FlowGraph], is_active: Callable[[], bool]
    ) -> None:
        self._launcher = launcher
        self._topology = topology
        self._is_active = is_active
        self._workers: dict[tuple[str, int], Launched] = {}
        self._lock = threading.Lock()
        self._ending: dict[tuple[str, int], tuple[Launched, threading.Thread]] = {}
        """Workers that end; no other one takes the place of one before it has ended."""
        self._turns = Turns("provisioner", self._turn)

    @property
    def problems(self) -> dict[str, str]:
        """Why workers may not work, by executor and number."""
        with self._lock:
            return {f"{name} {number}": one.problem for (name, number), one in self._workers.items() if one.problem}

    def start(self) -> None:
        """Begin, in a thread."""
        self._turns.start()

    def step(self) -> None:
        """Start the workers that are missing, and tell those to end that are too many."""
        wanted = {
            (name, number)
            for name, spec in (self._topology().executors.items() if self._is_active() else ())
            for number in range(1, (spec.workers or 0) + 1)
        }
        with self._lock:
            for key in self._workers.keys() - wanted:
                self._end(key, at_once=False)
            self._ending = {key: pair for key, pair in self._ending.items() if pair[1].is_alive()}
            for key in sorted(wanted - self._workers.keys() - self._ending.keys()):
                self._begin(key)

    def stop(self, *, at_once: bool = False) -> None:
        """End all workers and wait for them."""
        self._turns.end()
        self._turns.join()
        with self._lock:
            for key in list(self._workers):
                self._end(key, at_once=at_once)
            ending = list(self._ending.values())
        for worker, _ in ending if at_once else ():
            worker.stop(at_once=True)
        for _, thread in ending:
            thread.join()

    def kill(self) -> None:
        """End all workers at once, also those that are told to end; does not wait, so that signals may call it."""
        threading.Thread(target=self.stop, kwargs={"at_once": True}, daemon=True).start()

    def _begin(self, key: tuple[str, int]) -> None:
        log.info("worker %d of executor %s is started", key[1], key[0])
        try:
            self._workers[key] = self._launcher.launch(*key)
            self._workers[key].start()
        except Exception:  # a launcher may be a class of the user: its fault with one worker must not stop the others
            log.exception("worker %d of executor %s could not be started; it is tried again", key[1], key[0])
            if key in self._workers:
                self._end(key, at_once=True)

    def _end(self, key: tuple[str, int], *, at_once: bool) -> None:
        worker = self._workers.pop(key)
        log.info("worker %d of executor %s is ended", key[1], key[0])
        thread = threading.Thread(target=worker.stop, kwargs={"at_once": at_once}, name=f"end-{key[0]}", daemon=True)
        self._ending[key] = worker, thread
        thread.start()

    def _turn(self) -> float:
        try:
            self.step()
        except Exception:  # what is wrong with one executor must not end the supervision of the others
            log.exception("workers are looked at again")
        return TICK_S
