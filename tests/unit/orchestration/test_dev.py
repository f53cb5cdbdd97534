"""`gobblin dev`: the port, Dagster's home and the definitions that are opened."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.orchestration.dev import HOME, check_port, dev_environment, serve, target_options


def test_port_in_use_is_one_sentence_with_a_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFaultError, match=rf"Port {port} .* cannot be used.*--port {port + 1}"):
            serve(tmp_path, port)
    check_port(port)


def test_home_is_made_once_and_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    environment = dev_environment(tmp_path)
    assert environment["DAGSTER_HOME"] == str(tmp_path / HOME)
    settings = tmp_path / HOME / "dagster.yaml"
    assert yaml.safe_load(settings.read_text())["run_monitoring"] == {"enabled": True}
    settings.write_text("mine: true\n")
    dev_environment(tmp_path)
    assert settings.read_text() == "mine: true\n"


def test_home_that_the_user_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "mine"))
    assert dev_environment(tmp_path / "project")["DAGSTER_HOME"] == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (None, {"python_module": {"module_name": "gobblin_dagster.orchestration.project", "location_name": "gobblin"}}),
        ("definitions.py", {"python_file": {"relative_path": "{root}/definitions.py", "location_name": "gobblin"}}),
    ],
    ids=["job-files", "own-definitions"],
)
def test_definitions_of_the_project_are_opened_under_one_name(
    tmp_path: Path, file: str | None, expected: dict[str, dict[str, str]]
) -> None:
    if file:
        (tmp_path / file).touch()
    option, workspace = target_options(tmp_path, tmp_path)
    (found,) = yaml.safe_load(Path(workspace).read_text())["load_from"]
    assert option == "-w"
    assert found == {kind: {k: v.format(root=tmp_path) for k, v in body.items()} for kind, body in expected.items()}


def test_workspace_of_the_project_comes_first(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").touch()
    (tmp_path / "definitions.py").touch()
    assert target_options(tmp_path, tmp_path) == ["-w", "workspace.yaml"]


def test_advice_to_call_another_command_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error::BytesWarning")
    environment = dev_environment(tmp_path)
    program = "import warnings; from dagster._cli.dev import dev_command; dev_command.callback()"
    for kept, expected in ((environment, False), ({**environment, "PYTHONWARNINGS": ""}, True)):
        said = subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True, check=False)
        assert ("SupersessionWarning" in said.stderr) is expected, said.stderr
    assert environment["PYTHONWARNINGS"].startswith("error::BytesWarning,")
