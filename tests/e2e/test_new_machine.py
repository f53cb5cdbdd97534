"""The scripts behind `make` on a machine that was installed a moment ago: real apt, real packages of the real
mirror."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.e2e.new_machine import NewMachine, new_machine, why_impossible

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# A project without dependencies that brings its own build: nothing but Python's own parts and pip is needed to install
# it.
_BUILD = """
import zipfile
def get_requires_for_build_editable(settings=None): return []
def build_editable(folder, settings=None, metadata=None):
    info = "tiny-1.dist-info/"
    with zipfile.ZipFile(folder + "/tiny-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n")
        text = "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", text)
        wheel.writestr(info + "RECORD", "")
    return "tiny-1-py3-none-any.whl"
"""
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n'


@pytest.fixture(scope="module")
def machine() -> Iterator[NewMachine]:
    if reason := why_impossible():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="gobblin-machine-"))
    try:
        folder.chmod(0o755)
        yield new_machine(folder)
    finally:
        shutil.rmtree(folder)


def _await(condition: Callable[[], bool], process: Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_packages_are_installed_while_another_apt_is_at_work_and_no_service_is_started(machine: NewMachine) -> None:
    programs = ("sshd", "mariadbd", "mariadb-install-db", "java")
    assert machine.has(*programs) == []
    logs = machine.root / "tmp"
    with (
        (machine.root / "var/lib/apt/lists/lock").open("w") as lists,
        (machine.root / "var/lib/dpkg/lock-frontend").open("w") as packages,
    ):
        fcntl.lockf(lists, fcntl.LOCK_EX)
        fcntl.lockf(packages, fcntl.LOCK_EX)
        # The list of running programs is taken in the end: a server that was started would be among them.
        script = "scripts/ensure-system.sh openssh-server mariadb-server; head -qn 1 /proc/[0-9]*/comm"
        process = machine.start(script)
        assert process.stderr is not None
        assert process.stderr.readline() == "Another process installs packages; waiting until it ends ...\n"
        fcntl.lockf(lists, fcntl.LOCK_UN)
        assert process.stderr.readline() == "Installing openssh-server mariadb-server (apt-get install) ...\n"
        _await(lambda: any("Waiting for cache lock" in log.read_text() for log in logs.glob("tmp.*")), process)
        # Packages ask this program whether to start their servers. In a root without an init none is started anyway.
        policy = machine.root / "usr/sbin/policy-rc.d"
        assert (policy.read_text(), policy.stat().st_mode & 0o777) == ("#!/bin/sh\nexit 101\n", 0o755)
        fcntl.lockf(packages, fcntl.LOCK_UN)
    running, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert set(running.split()) <= {"bash", "head"}
    assert machine.has(*programs) == ["sshd", "mariadbd", "mariadb-install-db"]
    assert machine.has("policy-rc.d") == []
    assert machine.run("scripts/ensure-system.sh openssh-server mariadb-server") == (0, "", "")


def test_java_is_installed_and_starts(machine: NewMachine) -> None:
    assert machine.has("java") == []
    code, _, err = machine.run("scripts/ensure-java.sh; java -version")
    assert code == 0
    assert "(apt-get install) ..." in err.splitlines()[0]
    assert " version " in err.splitlines()[1]


def test_python_without_its_venv_package_gets_one(machine: NewMachine) -> None:
    assert machine.run("python3 -c 'import ensurepip'")[0] == 1
    project = machine.root / "srv"
    (project / "build.py").write_text(_BUILD)
    (project / "pyproject.toml").write_text(_PROJECT)
    (project / "constraints.txt").touch()
    # As after a first attempt of the user's own: it ends without pip.
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to("/usr/bin/python3")
    install = "PIP_NO_INDEX=1 scripts/install.sh python3 .venv && .venv/bin/python -c 'import tiny; print(tiny.ANSWER)'"
    code, out, err = machine.run(install)
    assert (code, out.split()[-1:]) == (0, ["42"]), err
    assert "-venv (apt-get install) ..." in err


def test_package_that_no_source_offers_is_named_and_the_others_are_installed(machine: NewMachine) -> None:
    assert machine.has("less") == []
    script = ". scripts/lib.sh; set -o pipefail; install_packages no-such-package less || echo failed"
    assert machine.run(script) == (0, "failed\n", "Installing less (apt-get install) ...\n")
    assert machine.has("less") == ["less"]
