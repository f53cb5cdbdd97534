"""TopologyCatalog: files that change are read again; a fault changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.service.topology.graph import FlowGraph
from tests.unit.service.topology.conftest import SOUND, Write


class Listener:
    """Remembers how many edges there were and are."""

    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[tuple[int, int]] = []
        self._fails = fails

    def topology_changed(self, old: FlowGraph, new: FlowGraph) -> None:
        self.heard.append((len(old.edges), len(new.edges)))
        if self._fails:
            raise RuntimeError("not my day")


def later(folder: Path, text: str, seconds: int) -> None:
    """Write the file `a` as somebody would after some seconds."""
    path = folder / "a.yaml"
    path.write_text(text)
    status = path.stat()
    os.utime(path, (status.st_atime + seconds, status.st_mtime + seconds))


def test_listeners_hear_of_each_change_once_and_after_it(write: Write) -> None:
    folder = write(a=SOUND)
    catalog = TopologyCatalog(folder)
    bad, good = Listener(fails=True), Listener()
    catalog.add_listener(bad)
    catalog.add_listener(good)
    assert not catalog.refresh()
    later(folder, SOUND.rpartition("  out:")[0], 2)
    assert catalog.refresh()
    assert not catalog.refresh()
    assert set(catalog.graph.edges) == {"in"}
    assert good.heard == bad.heard == [(2, 1)], "a listener that fails stops no other"
    later(folder, SOUND.rpartition("  out:")[0] + "# a comment\n", 4)
    assert not catalog.refresh(), "the same topology in other words"


def test_topology_stays_as_it_was_while_a_file_has_a_fault(write: Write) -> None:
    folder = write(a=SOUND)
    catalog = TopologyCatalog(folder)
    later(folder, SOUND.replace("destination: shop", "destination: shp"), 2)
    assert not catalog.refresh()
    assert len(catalog.graph.edges) == 2
    assert "there is no node 'shp'" in catalog.problem
    later(folder, SOUND, 4)
    assert not catalog.refresh()
    assert catalog.problem == ""


def test_folder_that_is_not_there_is_an_empty_topology_until_it_is(write: Write, tmp_path: Path) -> None:
    catalog = TopologyCatalog(tmp_path / "later")
    assert (catalog.graph.nodes, catalog.problem) == ({}, "")
    write(a=SOUND).rename(tmp_path / "later")
    assert catalog.refresh()
    assert len(catalog.graph.nodes) == 3


def test_listeners_hear_of_a_change_after_the_one_before_it(write: Write) -> None:
    folder = write(a=SOUND)
    catalog = TopologyCatalog(folder)

    class Slow(Listener):
        """While it hears of the first change, there is another one, which a request and the service look at."""

        request: Thread | None = None

        def topology_changed(self, old: FlowGraph, new: FlowGraph) -> None:
            if self.request is None:
                later(folder, SOUND, 4)
                self.request = Thread(target=catalog.refresh)
                self.request.start()
                assert not catalog.refresh(waits=False)
                self.request.join(0.1)
            super().topology_changed(old, new)

    slow = Slow()
    catalog.add_listener(slow)
    later(folder, SOUND.rpartition("  out:")[0], 2)
    assert catalog.refresh()
    assert slow.request is not None
    slow.request.join()
    assert slow.heard == [(2, 1), (1, 2)]
