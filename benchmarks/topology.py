"""How long it takes to compile and to explain a flow over a large topology, and to read its files: CPU milliseconds.

Run: python benchmarks/topology.py [--nodes 1000] [--edges 5000]. The graph is made at random from a fixed seed; one
in ten edges is not enabled, half of them take one format only.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.multi_hop import MultiHopCompiler
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, INPUT, SOURCE
from gobblin_dagster.service.model import FlowConfig, FlowId
from gobblin_dagster.service.topology.files import read_topology

TEMPLATE = """\
template: hop
job:
  source: {type: files, path: "landing/{dataset}.csv", format: {type: csv}}
  extract: {namespace: test, table: orders}
  output: {path: lake}
"""
TURNS = 21
FORMATS = ("csv", "parquet", "orc")


def topology(nodes: int, edges: int) -> dict[str, object]:
    """Return a topology as one file; the last node is reached by no edge, the one before it by edges not enabled."""
    chance = random.Random(17)
    names = [f"node-{number}" for number in range(nodes)]
    found = {}
    for number in range(edges):
        source, destination = chance.sample(names[:-1], 2)
        format_name = chance.choice(FORMATS) if number % 2 else "any"
        is_enabled = number % 10 > 0 and destination != names[-2]
        found[f"edge-{number}"] = {
            "source": source,
            "destination": destination,
            "template": "FS:///hop.template",
            "cost": chance.randint(1, 9),
            "enabled": is_enabled,
            "input": {"format": format_name},
            "output": {"format": chance.choice([*FORMATS, "any", "any"])},
        }
    return {
        "nodes": {name: {"type": chance.choice(["files", "lake", "database"])} for name in names},
        "executors": {"here": {"capabilities": [{}]}},
        "edges": found,
    }


def measured(what: str, call: Callable[[], object], turns: int = TURNS) -> None:
    """Print the median and the longest of some turns, in CPU milliseconds of this process."""
    times = []
    for _ in range(turns):
        begun = time.process_time()
        call()
        times.append((time.process_time() - begun) * 1000)
    print(f"{what:<58} median {statistics.median(times):8.1f} ms   longest {max(times):8.1f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "hop.template").write_text(TEMPLATE)
        (root / "topology").mkdir()
        (root / "topology" / "all.yaml").write_text(yaml.safe_dump(topology(options.nodes, options.edges)))
        measured("read and check the files", lambda: read_topology(root / "topology"), 3)
        graph = read_topology(root / "topology").graph
        compiler = MultiHopCompiler(TemplateCatalog(root), lambda: graph)

        def explain(*destinations: int) -> Callable[[], object]:
            to = ",".join(f"node-{options.nodes + number if number < 0 else number}" for number in destinations)
            properties = {SOURCE: "node-0", DESTINATIONS: to, f"{INPUT}format": "csv"}
            config = FlowConfig(FlowId("g", "n"), "", properties)
            found = compiler.explain(config)
            ways = ", ".join(f"{len(way.hops)} hops" for way in found.ways) or found.reasons[0][:60]
            print(f"  -> {to}: {ways}; {len(found.refused)} refused edges")
            return lambda: compiler.explain(config)

        measured("explain, one destination", explain(options.nodes // 2))
        measured("explain, five destinations", explain(*range(100, 105)))
        measured("explain, destination whose edges are not enabled", explain(-2))
        measured("explain, destination without edges", explain(-1))


if __name__ == "__main__":
    main()
