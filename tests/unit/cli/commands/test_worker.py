"""`gobblin worker --listen`: the address comes from the command line, the certificates from gobblin.yaml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gobblin_dagster.cli.commands.worker import listening
from gobblin_dagster.cli.main import app
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.executors.rest import HttpsClient, RestExecutor
from gobblin_dagster.service.topology.model import RestAddress
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import WorkerSpec
from gobblin_dagster.warm.client import WORKER_LOG
from tests.services.certificates import Authority
from tests.services.worker_channel import InlineChannel
from tests.unit.cli.conftest import Cli

INLET = "{type: rest, port: 1, certificate: worker.pem, key: worker.key, ca: ca.pem}"


def test_worker_listens_on_the_address_of_the_command_line_with_the_certificates_of_its_project(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.signed("both")
    files = {"certificate": str(certificate), "key": str(key), "ca": str(authority.ca)}
    inlet = ", ".join(f"{name}: '{file}'" for name, file in files.items())
    (tmp_path / "gobblin.yaml").write_text(f"project: south\nworker: {{inlet: {{type: rest, {inlet}}}}}\n")
    spec = load_project(tmp_path)
    spec = spec.model_copy(update={"worker": listening(spec.worker, "127.0.0.1:0")})
    node = WorkerNode("south", tmp_path, spec, [], channel=InlineChannel(Project(tmp_path, spec)))
    node.start()
    executor = RestExecutor("south", node.inlet, HttpsClient(RestAddress(url=node.inlet, **files), tmp_path))
    assert executor.health() == ""
    assert [one.name for one in executor.take_announcements()] == [node.name]
    executor.close()
    node.stop()


def test_address_replaces_that_of_the_file() -> None:
    spec = WorkerSpec.model_validate({"inlet": {"type": "rest", "host": "10.0.0.1", "port": 1, "ca": "ca.pem"}})
    assert listening(spec, "[::1]:8443").inlet.options == {"host": "::1", "port": 8443, "ca": "ca.pem"}
    assert listening(spec, "south.example:0").inlet.options["host"] == "south.example"


@pytest.mark.parametrize("address", ["8443", ":8443", "south:", "south:http", "::1:8443", "south:-1", "south:８"])
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"`--listen {address}` is no address.")):
        listening(WorkerSpec(), address)


def test_port_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: south\nworker: {{inlet: {INLET}}}\n")
    spec = load_project(tmp_path)
    spec = spec.model_copy(update={"worker": listening(spec.worker, "south:65536")})
    with pytest.raises(UsageError, match="port: Input should be less than or equal to 65535"):
        WorkerNode("south", tmp_path, spec, [])


@pytest.mark.parametrize("inlet", ["store", "{type: kafka, brokers: b, orders: o, reports: r}"])
def test_address_is_refused_if_the_project_names_another_inlet(inlet: str, tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: south\nworker: {{inlet: {inlet}}}\n")
    arguments = ["-C", str(tmp_path), "worker", "--executor", "south", "--listen", "127.0.0.1:0"]
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, UsageError)
    told = f"`worker.inlet` in gobblin.yaml is '{'store' if inlet == 'store' else 'kafka'}'"
    assert told in str(found.exception)
    assert "type: rest, certificate" in str(found.exception)


def test_address_without_an_executor_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["-C", str(tmp_path), "worker", "--listen", "127.0.0.1:8443"])
    assert "gobblin worker --executor NAME --listen 127.0.0.1:8443" in str(found.exception)


def test_worker_is_not_told_of_a_project_with_faults(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: south\nprojects: 2\n")
    called = cli("-C", tmp_path, "worker", "status", "-o", "json")
    assert called.code == called.json()["exit_code"] == 2
    assert "projects: unknown key" in called.json()["error"]["message"]


def test_control_characters_of_a_workers_log_are_shown(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: south\n")
    (tmp_path / WORKER_LOG).parent.mkdir()
    (tmp_path / WORKER_LOG).write_text("older\nread a\x1b[2J\n")
    assert cli("-C", tmp_path, "worker", "logs", "-n", "1").out == "read a\\x1b[2J\n"
