"""`gobblin dev`: serve Dagster's web pages for a project, on this machine only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.launcher.run_launcher import LOCATION, PROJECT_MODULE

HOST = "127.0.0.1"
HOME = ".dagster"
"""DAGSTER_HOME below the project folder, if the variable is not set."""

_SUPERSEDED = "ignore:Function `dev_command` is superseded:FutureWarning"
"""Dagster's advice to use another command, which does not read our workspace."""
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_INSTANCE = """\
telemetry:
  enabled: false
nux: # no invitation to a newsletter
  enabled: false
run_monitoring: # ends runs that exceed their time, and those whose process died
  enabled: true
compute_logs: # runs log through Dagster; capturing their output would start two processes per step
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
_WORKSPACE = f"""\
load_from:
  - python_module:
      module_name: {PROJECT_MODULE}
      location_name: {LOCATION}
"""


def serve(project_root: Path, port: int = 3000) -> int:
    """Run `dagster dev` for a project until it is interrupted, and return its exit code.

    If the project has a `workspace.yaml` or `definitions.py`, it is used.

    Raises:
        EnvironmentFaultError: the port is in use.
    """
    check_port(port)
    environment = dev_environment(project_root)
    command = [sys.executable, "-m", "dagster", "dev", *target_options(project_root, Path(environment["DAGSTER_HOME"]))]
    command += ["--host", HOST, "--port", str(port)]
    process: subprocess.Popen[bytes] | None = None

    def end(*_: object) -> None:
        if process is not None:
            process.terminate()

    # Set before the process starts, which inherits it: otherwise a shell that ignores Ctrl-C (`gobblin dev &`) would
    # make Dagster ignore it too.
    former = {number: signal.signal(number, end) for number in _ENDS}
    try:
        # A new session: Ctrl-C in a terminal reaches only this process, which then ends Dagster once.
        process = subprocess.Popen(  # noqa: S603 - fixed words
            command, cwd=project_root, env=environment, start_new_session=True
        )
        return process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def check_port(port: int) -> None:
    """Raise EnvironmentFaultError if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EnvironmentFaultError(
                problem=f"Port {port} on {HOST} cannot be used: {error.strerror}.",
                hint=f"End the program that uses it, or choose another: `gobblin dev --port {port + 1}`.",
            ) from error


def dev_environment(project_root: Path) -> dict[str, str]:
    """Return the environment for `dagster dev`; create a DAGSTER_HOME if the variable is not set."""
    environment = dict(os.environ) | {"GOBBLIN_PROJECT": str(project_root.resolve())}
    home = dagster_home(project_root)
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(_INSTANCE, encoding="utf-8")
    filters = ",".join(filter(None, (environment.get("PYTHONWARNINGS"), _SUPERSEDED)))
    return environment | {"DAGSTER_HOME": str(home), "PYTHONWARNINGS": filters}


def dagster_home(root: Path) -> Path:
    """Return the folder of the project's Dagster instance: DAGSTER_HOME, or by default one in the project."""
    return Path(os.environ.get("DAGSTER_HOME") or root.resolve() / HOME)


def target_options(root: Path, home: Path) -> list[str]:
    """Return the options that name the definitions: the project's own ones, else those made from its job files."""
    if (root / "workspace.yaml").is_file():
        return ["-w", "workspace.yaml"]
    workspace = home / "gobblin-workspace.yaml"
    if (root / "definitions.py").is_file():
        path = root.resolve() / "definitions.py"
        text = f"load_from:\n  - python_file: {{relative_path: {path}, location_name: {LOCATION}}}\n"
    else:
        text = _WORKSPACE
    workspace.write_text(text, encoding="utf-8")
    return ["-w", str(workspace)]
