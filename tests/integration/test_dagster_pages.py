"""A real Dagster webserver beside the service: reached through the login alone, and ended with the service."""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path

import pytest

from gobblin_dagster.service.server import CoreServices, DagsterPrograms
from gobblin_dagster.spec.project import ServiceSpec
from tests.services.rest_service import answering

DEFINITIONS = """
import dagster as dg

@dg.asset
def orders() -> None:
    pass

defs = dg.Definitions(assets=[orders])
"""
ASSETS = "{ assetNodes { assetKey { path } } }"


def asked(host: str, method: str, target: str, body: str | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode()
    connection.close()
    return told


@pytest.mark.slow
def test_real_pages_are_served_behind_the_login_and_end_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    socket = tmp_path / "d.sock"
    program = [sys.executable, "-m", "gobblin_dagster.orchestration.beside_service", "pages", str(socket)]
    # The daemon is a command of Dagster's own, and dear to start.
    core = CoreServices(tmp_path, ServiceSpec(port=0), ["false"], dagster=DagsterPrograms(socket, program, ["cat"]))
    core.start()
    with answering(core) as url:
        host, login = url.removeprefix("http://"), {"Authorization": f"Bearer {core.token}"}
        deadline = time.monotonic() + 180
        while asked(host, "GET", "/dagster/", **login)[0] == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
        status, page = asked(host, "GET", "/dagster/", **login)
        assert (status, 'src="/dagster/' in page) == (200, True), (tmp_path / ".gobblin/dagster-pages.log").read_text()
        assert asked(host, "GET", "/dagster/")[0] == 401
        body = json.dumps({"query": ASSETS})
        told = asked(host, "POST", "/dagster/graphql", body, **login, **{"Content-Type": "application/json"})
        assert json.loads(told[1]) == {"data": {"assetNodes": [{"assetKey": {"path": ["orders"]}}]}}
        assert socket.stat().st_mode & 0o077 == 0
        core.stop()
        assert not socket.exists(), "the program has ended, and tidied up"
        assert asked(host, "GET", "/dagster/", **login)[0] == 503
