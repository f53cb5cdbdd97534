"""TopologyCatalog: the newest topology without faults, read again when its files change.

Each node of a service reads its own copy of the folder; the folder is part of the project, as templates are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gobblin_dagster.core.errors import (
    GobblinDagsterError,
    InvalidSpecError,
    StorageError,
    StoreVersionError,
    TransientError,
)
from gobblin_dagster.service.topology.capabilities import Announced, EdgeNeeds
from gobblin_dagster.service.topology.files import read_topology, topology_files
from gobblin_dagster.service.topology.graph import EMPTY, FlowGraph
from gobblin_dagster.service.topology.stored import StoredTopology

log = logging.getLogger(__name__)


class TopologyListener(Protocol):
    """Hears of changes of the topology.

    Called in the thread that calls `refresh`, after compilers see the new graph, once for each change. An error that it
    raises is logged; the other listeners are called all the same.

    Source: gobblin-runtime `SpecCatalogListener` of the `TopologyCatalog`.
    """

    def topology_changed(self, old: FlowGraph, new: FlowGraph) -> None:
        """The topology is another one now."""


class TopologyCatalog:
    """Reads a folder, and holds what was last read without faults.

    Args:
        folder: the folder of topology files; one that is not there is an empty topology.
        listeners: called in this order.
        stored: files that came over REST, which belong to the topology too; None: there are none.
        needs: tells what executors lack for edges; None: executors count as able to run whatever their files say.

    Source: gobblin-runtime `TopologyCatalog`, gobblin-service `FSFlowGraphMonitor`. Differs: a folder with a fault
        changes nothing at all.
    """

    def __init__(
        self,
        folder: Path,
        listeners: Sequence[TopologyListener] = (),
        stored: StoredTopology | None = None,
        needs: EdgeNeeds | None = None,
    ) -> None:
        self._folder = folder
        self._stored = stored
        self._needs = needs
        self._announced: Mapping[str, Sequence[Announced | None]] = {}
        """What workers of executors announced, by executor."""
        self.is_known = False
        """Whether all files could be looked at once: before that, what is missing may be in a store that is away."""
        self._listeners = list(listeners)
        self._stamp: object = None
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """Held while files are read and listeners called, so that they hear of changes in order."""
        self.graph = EMPTY
        """What compilers search."""
        self.problem = ""
        """Why the topology as it is now cannot be used, or is not known; empty if it is used."""
        self._fault = ""
        """What was wrong with the files when they were read last."""
        self.refresh()

    def avoid(self, lost: frozenset[str], places: Mapping[str, frozenset[str]] = EMPTY.places) -> None:
        """Let compilers prefer other executors to those that are lost; no way changes, so no listener is called.

        Args:
            lost: the executors.
            places: as in `FlowGraph`: no executor takes the place of one that keeps its watermarks elsewhere.
        """
        with self._lock:
            if (lost, places) == (self.graph.lost, self.graph.places):
                return
            is_news = lost != self.graph.lost
            self.graph = replace(self.graph, lost=lost, places=places)
            if not is_news:
                return
            log.warning("executors that are lost: %s", ", ".join(sorted(lost)) or "none any more")
            for one in sorted(lost & set(self.graph.executors)):
                apart = [other for other in self.graph.executors if not self.graph.shares_state(one, other)]
                if apart:
                    told = "jobs of %s do not move to %s, which keep watermarks in other state stores"
                    log.warning(told, one, ", ".join(sorted(apart)))

    def note_workers(self, announced: Mapping[str, Sequence[Announced | None]]) -> bool:
        """Let edges be run only by executors whose workers can; return whether other edges can be taken now.

        Args:
            announced: what the workers of executors announced, by executor, as in `EdgeNeeds.lacking`.
        """
        with self._turn:
            self._announced = announced
            old = self.graph
            lacking = self._lacking(old)
            if lacking == old.lacking:
                return False
            with self._lock:
                new = self.graph = replace(self.graph, lacking=lacking)
            for name in sorted(lacking):
                for executor, told in lacking[name].items():
                    if told != old.lacking.get(name, {}).get(executor):
                        log.warning("edge %s is not run by %s: none of its workers has %s", name, executor, told)
            self._tell(old, new)
        return True

    def _lacking(self, graph: FlowGraph) -> Mapping[str, Mapping[str, str]]:
        return {} if self._needs is None else self._needs.lacking(graph, self._announced)

    def _tell(self, old: FlowGraph, new: FlowGraph) -> None:
        for listener in self._listeners:
            try:
                listener.topology_changed(old, new)
            except Exception:  # a listener of others must harm neither the service nor the other listeners
                log.exception("listener %s failed with a change of the topology", listener)

    def add_listener(self, listener: TopologyListener) -> None:
        """Tell a listener of the changes from now on."""
        self._listeners.append(listener)

    def refresh(self, *, waits: bool = True) -> bool:
        """Read the files again if one has changed; return whether the topology is another one now.

        Args:
            waits: whether to wait for another thread that is at it; if not, this call does nothing then.
        """
        if not self._turn.acquire(blocking=waits):
            return False
        try:
            return self._refresh()
        finally:
            self._turn.release()

    def _refresh(self) -> bool:
        try:
            stamp = self._look()
            if stamp == self._stamp:
                self.problem = self._fault  # the database may have been away since
                return False
            new = self._read()
        except (TransientError, StorageError, StoreVersionError) as error:
            # The database is away: what is known stays.
            self.problem = str(error)
            return False
        except GobblinDagsterError as error:
            self.problem = self._fault = str(error)
            log.warning("the topology stays as it was: %s", error)
            self._stamp, self.is_known = stamp, True
            return False
        self.problem = self._fault = ""
        self._stamp, self.is_known = stamp, True
        lacking = self._lacking(new)
        with self._lock:
            old = self.graph
            new = self.graph = replace(new, lost=old.lost, places=old.places, lacking=lacking)
        if (old.version, old.lacking) == (new.version, new.lacking):
            return False
        log.info(
            "the topology has %d node(s), %d edge(s), %d executor(s): version %s",
            len(new.nodes),
            len(new.edges),
            len(new.executors),
            new.version,
        )
        self._tell(old, new)
        return True

    def _read(self) -> FlowGraph:
        more = self._stored.texts() if self._stored is not None else {}
        if not self._folder.is_dir() and not more:
            return EMPTY
        found = read_topology(self._folder, more=more)
        if found.faults:
            raise InvalidSpecError(file=str(self._folder), faults=found.faults)
        return found.graph

    def _look(self) -> tuple[tuple[str, int, int], ...]:
        """Return what tells whether a file has changed."""
        stamps = [] if self._stored is None else [("", self._stored.version(), 0)]
        if not self._folder.is_dir():
            return tuple(stamps)
        for path in topology_files(self._folder):
            try:
                status = path.stat()
            except OSError:  # it goes away while we look: the next look sees that
                continue
            stamps.append((str(path), status.st_mtime_ns, status.st_size))
        return tuple(stamps)
