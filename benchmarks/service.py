"""Measure the service: claims of due flows, a large catalog, REST under load, and runs on a warm worker.

`make bench-service`; a quick look: `make bench-service FLOWS=2000 SECONDS=10`. PostgreSQL runs on the same machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the database and the process are those of the tests

from sqlalchemy import insert, text, update  # noqa: E402 - after the path to it

from gobblin_dagster.core import serialization  # noqa: E402 - after the path to it
from gobblin_dagster.core.clock import SystemClock  # noqa: E402 - after the path to it
from gobblin_dagster.service.model import Change, Dag, FlowConfig, FlowId, Schedule  # noqa: E402 - after the path to it
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator  # noqa: E402 - after the path to it
from gobblin_dagster.service.scheduler.scheduler import BATCH, Scheduler, epoch_ms  # noqa: E402 - after the path to it
from gobblin_dagster.service.store.store import ServiceStore  # noqa: E402 - after the path to it
from gobblin_dagster.service.store.tables import flow_properties, flow_versions, flows  # noqa: E402 - after the path to it
from tests.services.gobblin_serve import serving  # noqa: E402 - after the path to it
from tests.services.postgres import PostgresServer, binaries, named_url, running_postgres  # noqa: E402 - after the path to it

TEMPLATE = """
template: small
parameters:
  table: {type: name, default: t}
job:
  source:
    type: files
    path: "landing/{dataset}/{date:%Y-%m-%d}.csv"
    format: {type: csv, columns: {id: int64, amount: int64}}
  extract: {namespace: bench, table: "${table}"}
  output: {path: lake}
"""
_URI = "FS:///small.template"
_CRON = "0 0 0 ? 1 1 2050"


def main() -> None:
    """Run all parts and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=100_000, help="flows of the large catalog")
    parser.add_argument("--due", type=int, default=10_000, help="flows that are due at one moment")
    parser.add_argument("--seconds", type=int, default=60, help="how long REST is under load")
    parser.add_argument("--runs", type=int, default=20, help="runs on the warm worker; 0: no Spark is started")
    chosen = parser.parse_args()
    folder = binaries()
    if folder is None:
        sys.exit("No PostgreSQL server is installed here.")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before")
    with running_postgres(folder) as server:
        _claims(server, chosen.due)
        _catalog(server, chosen.flows, chosen.seconds)
    if chosen.runs:
        _warm_runs(chosen.runs)
    print(f"load average {os.getloadavg()[0]:.1f} after")


def _fill(store: ServiceStore, count: int) -> None:
    """Store flows of 100 groups: the rows that creates would leave, 1,000 at a time."""
    for first in range(0, count, 1_000):
        rows: list[dict[str, Any]] = []
        properties: list[dict[str, str]] = []
        for number in range(first, min(first + 1_000, count)):
            own = {"table": f"t{number % 1_000}", "user.to.proxy": f"user{number % 500}"}
            flow = FlowId(f"group{number % 100:03}", f"flow{number:06}")
            config = FlowConfig(flow, _URI, own, Schedule(_CRON), f"team{number % 50}")
            key = {"flow_group": flow.group, "flow_name": flow.name}
            properties += [{**key, "name": name, "value": value} for name, value in own.items()]
            rows.append(
                {
                    **key,
                    "version": 1,
                    "number": number + 1,
                    "body": serialization.to_json(config),
                    "change": Change.CREATED.value,
                    "changed_at": datetime.now(UTC),
                    "changed_by": "bench",
                    "is_paused": False,
                    "managed_by": "",
                }
            )
        extra = {"template_uris": _URI, "cron": _CRON, "is_run_immediately": False, "next_fire_ms": 2_524_608_000_000}
        owned = [{**row, **extra, "owning_group": f"team{(row['number'] - 1) % 50}"} for row in rows]
        with store.write() as transaction:
            transaction.execute(insert(flow_versions), rows)
            transaction.execute(insert(flows), owned)
            transaction.execute(insert(flow_properties), properties)
    with store.write() as transaction:
        newest = text("SELECT setval(pg_get_serial_sequence('gobblin_flow_versions', 'number'), :number)")
        transaction.execute(newest, {"number": count})
        transaction.execute(text("ANALYZE"))


def _claims(server: PostgresServer, count: int) -> None:
    with ServiceStore(server.url(server.new_database()), SystemClock()) as store:
        _fill(store, count)
        due = datetime.now(UTC) - timedelta(seconds=1)
        with store.write() as transaction:
            transaction.execute(update(flows).values(next_fire_ms=epoch_ms(due)))
        orchestrator = Orchestrator(store, lambda _: Dag(()))
        scheduler = Scheduler(store, orchestrator)
        began = time.perf_counter()
        late: list[float] = []
        executions = 0
        while True:
            fired = scheduler.fire_due()
            executions += fired.executions
            late += [time.perf_counter() - began] * fired.flows
            if fired.flows < BATCH:
                break
        took = time.perf_counter() - began
    if executions != count:
        sys.exit(f"{count} flows were due, {executions} executions were stored")
    print(
        f"claims: {count:,} flows due at one moment, each with a durable execution: {took:.1f} s, "
        f"{count / took:,.0f} flows/s, lateness p99 {_percentile(late, 99):.1f} s"
    )


def _catalog(server: PostgresServer, count: int, seconds: int) -> None:
    url = server.url(server.new_database())
    with ServiceStore(url, SystemClock()) as store:
        _fill(store, count)
    with _project(url) as root:
        began = time.perf_counter()
        with serving(root) as served:
            print(f"catalog: {count:,} flows in PostgreSQL; ready {time.perf_counter() - began:.1f} s after the start")
            last = count - 1
            for name, query in {
                "first page": "start=0&count=50",
                "last page": f"start={max(0, count - 50)}&count=50",
                "one group": "q=filterFlows&flowGroup=group007&start=0&count=50",
                "name": f"q=filterFlows&flowName=flow{last:06}&start=0&count=50",
                "owner": "q=filterFlows&owningGroup=team7&start=0&count=50",
                "user to proxy": "q=filterFlows&userToProxy=user77&start=0&count=50",
                "property": "q=filterFlows&propertyFilter=table=t77&start=0&count=50",
                "search": f"q=filterFlows&search={last:06}&start=0&count=50",
            }.items():
                took = [_timed(served.port, "GET", f"/flowconfigsV2?{query}") for _ in range(21)][1:]
                print(f"  {name}: median {statistics.median(took):.0f} ms, worst of 20 {max(took):.0f} ms")
            status = Path(f"/proc/{served.process.pid if served.process else 'self'}/status")
            if status.exists():
                kib = int(status.read_text().partition("VmRSS:")[2].split()[0])
                print(f"  memory of the service: {kib // 1024} MiB")
            _load(served.port, count, seconds)


def _load(port: int, count: int, seconds: int) -> None:
    """Ask for 300 reads and 100 creates a second, from 16 connections of 4 processes."""
    began = time.monotonic()
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(_ask_for, kind, port, count, seconds, first) for first, kind in enumerate(_KINDS)]
        told = [one.result() for one in asked]
    errors = [error for _, _, _, found in told for error in found]
    print(f"REST: 300 reads/s and 100 creates/s asked for, over {seconds} s, {len(errors)} errors {errors[:3] or ''}")
    lasted = max(lasted for _, _, lasted, _ in told)
    for kind in dict.fromkeys(_KINDS):
        times = [time_ms for one, found, _, _ in told if one == kind for time_ms in found]
        print(
            f"  {kind}: {len(times) / lasted:.0f}/s, median {statistics.median(times):.0f} ms, "
            f"p99 {_percentile(times, 99):.0f} ms"
        )
    print(f"  load average {os.getloadavg()[0]:.1f} after {time.monotonic() - began:.0f} s")


_KINDS = ("reads", "reads", "reads", "creates")
"""What each process asks for; each asks 100 times a second, from 4 connections."""


def _ask_for(kind: str, port: int, count: int, seconds: int, first: int) -> tuple[str, list[float], float, list[str]]:
    """Ask for one kind; return it, the milliseconds of each answer, the seconds it took, and errors."""
    took: list[float] = []
    errors: list[str] = []
    began = time.monotonic()
    until = began + seconds

    def work(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        at = time.monotonic()
        turn = 0
        while at < until:
            time.sleep(max(0.0, at - time.monotonic()))
            if kind == "reads":
                flow = (number * 7919 + turn * 104_729) % count
                target = f"/flowconfigsV2/(flowGroup:group{flow % 100:03},flowName:flow{flow:06})"
                told, milliseconds = _asked(connection, "GET", target)
            else:
                told, milliseconds = _asked(connection, "POST", "/flowconfigsV2", _body(f"new-{number}-{turn}"))
            took.append(milliseconds)
            if told not in (200, 201):
                errors.append(f"{kind}: {told}")
            turn += 1
            at += 1 / 25
        connection.close()

    threads = [threading.Thread(target=work, args=(4 * first + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return kind, took, time.monotonic() - began, errors


def _warm_runs(count: int) -> None:
    with _project("sqlite:///.gobblin/service.db") as root:
        for dataset in range(count + 1):
            folder = root / "landing" / f"d{dataset}"
            folder.mkdir(parents=True)
            (folder / "2026-01-01.csv").write_text("id,amount\n" + "".join(f"{n},{n}\n" for n in range(1, 101)))
        with serving(root) as served:
            cold = _run(served.port, ["cold"])
            took = [_run(served.port, [f"warm{number}"]) for number in range(count)]
            together = _run(served.port, [f"together{number}" for number in range(count)])
    print(
        f"runs: {count + 1} files of 100 rows into Parquet, from the request to COMPLETE: cold {cold:.1f} s, "
        f"then median {statistics.median(took):.1f} s, worst of {count} {max(took):.1f} s"
    )
    print(f"  {count} flows at once: {together:.1f} s, {60 * count / together:.0f} a minute")


def _run(port: int, names: list[str]) -> float:
    """Create flows that run once, and return the seconds until all are complete."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for name in names:
        body = json.dumps(
            {
                "id": {"flowGroup": "bench", "flowName": name},
                "templateUris": _URI,
                "properties": {"table": name},
            }
        )
        if _asked(connection, "POST", "/flowconfigsV2", body)[0] != 201:
            sys.exit(f"flow {name} was not created")
    for name in names:
        target = f"/flowexecutions?q=latestFlowExecution&flowId=(flowGroup:bench,flowName:{name})"
        while True:
            connection.request("GET", target, headers={"X-RestLi-Protocol-Version": "2.0.0"})
            (element,) = json.loads(connection.getresponse().read())["elements"]
            if element["executionStatus"] == "COMPLETE":
                break
            if element["executionStatus"] in ("FAILED", "CANCELLED"):
                sys.exit(f"flow {name}: {element['message']}")
            time.sleep(0.02)
    connection.close()
    return time.perf_counter() - began


@contextmanager
def _project(store: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gobblin-bench-") as folder:
        root = Path(folder)
        settings = f"service: {{port: 0, anonymous: true, store: '{named_url(store)}'}}\n"
        (root / "gobblin.yaml").write_text(f"project: bench\n{settings}")
        (root / "templates").mkdir()
        (root / "templates" / "small.template").write_text(TEMPLATE)
        yield root


def _body(name: str) -> str:
    document = {
        "id": {"flowGroup": "new", "flowName": name},
        "templateUris": _URI,
        "properties": {"table": "t"},
        "schedule": {"cronSchedule": _CRON},
    }
    return json.dumps(document)


def _timed(port: int, method: str, target: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    status, milliseconds = _asked(connection, method, target)
    connection.close()
    if status != 200:
        sys.exit(f"{target}: {status}")
    return milliseconds


def _asked(
    connection: http.client.HTTPConnection, method: str, target: str, body: str | None = None
) -> tuple[int, float]:
    """Return the status of an answer, and the milliseconds until it was there whole."""
    began = time.perf_counter()
    connection.request(method, target, body, {"X-RestLi-Protocol-Version": "2.0.0"})
    answer = connection.getresponse()
    answer.read()
    return answer.status, 1000 * (time.perf_counter() - began)


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


if __name__ == "__main__":
    main()
