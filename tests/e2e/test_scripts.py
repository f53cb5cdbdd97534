"""The scripts behind `make`, on machines that lack something: small folders of programs stand in for the machines.

What real apt does with the scripts is tested in `test_new_machine.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
ORDINARY = ["bash", "sh", "dirname", "tail", "mktemp", "rm", "env", "cat", "chmod", "touch"]

BASH = shutil.which("bash")

pytestmark = pytest.mark.e2e


@dataclass
class Machine:
    """A machine that has the ordinary programs and those that a test gives it."""

    bin: Path

    def give(self, name: str, script: str) -> None:
        program = self.bin / name
        program.write_text(f"#!{BASH}\n{script}\n")
        program.chmod(0o755)

    def give_java(self, version: str, name: str = "java") -> None:
        self.give(name, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")

    def run(self, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPTS / script), *args],
            env={"PATH": str(self.bin), **env},
            capture_output=True,
            text=True,
            check=False,
            cwd=SCRIPTS.parent,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "bin")
    machine.bin.mkdir()
    for name in ORDINARY:  # as scripts, not as links: a link leads out of the folder, and a test may write through it
        machine.give(name, f'exec {shutil.which(name)} "$@"')
    return machine


def give_apt(machine: Machine, offered: str, effect: str, command: str = "install") -> None:
    """Give the machine an apt that offers some packages, and root rights; a command of it has an effect. `words` are
    what it is asked, without options."""
    machine.give("id", "echo 0")
    machine.give("sleep", "true")
    # Like the real one, it goes on to talk after the line that matters, and talks the language of its user.
    machine.give(
        "apt-cache",
        '[ "$LC_ALL" = C ] && word=Candidate || word=Installationskandidat\n'
        f'[[ " {offered} " = *" $2 "* ]] && echo "  $word: 1" || echo "  $word: (none)"\n'
        "for n in {1..20000}; do echo '     500 a mirror'; done",
    )
    machine.give(
        "apt-get",
        'words=(); while [ $# -gt 0 ]; do case "$1" in -o) shift ;; -*) ;; *) words+=("$1") ;; esac; shift; done\n'
        f'echo "${{words[*]}}" >> {machine.bin}/apt.log; [ "${{words[0]}}" = {command} ] || exit 0; {effect}',
    )


def asked_of_apt(machine: Machine) -> list[str]:
    return (machine.bin / "apt.log").read_text().splitlines()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_or_newer_is_enough_and_nothing_is_said(machine: Machine, version: str) -> None:
    machine.give_java(version)
    done = machine.run("ensure-java.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("version", "found"), [("11.0.2", "only Java 11"), ("1.8.0_392", "only Java 8"), (None, "none")]
)
def test_no_fit_java_and_no_right_to_install_is_one_sentence(machine: Machine, version: str | None, found: str) -> None:
    if version:
        machine.give_java(version)
    done = machine.run("ensure-java.sh")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert found in done.stderr
    assert "install openjdk-17-jre-headless" in done.stderr


def test_java_home_that_holds_no_java_is_named(machine: Machine) -> None:
    machine.give_java("17")
    done = machine.run("ensure-java.sh", JAVA_HOME="/nowhere")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "JAVA_HOME=/nowhere" in done.stderr


@pytest.mark.parametrize("offered", ["openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"])
def test_java_is_installed_from_what_the_distribution_offers(machine: Machine, offered: str) -> None:
    machine.give_java("17", name="hidden-java")
    give_apt(machine, offered, f"cat {machine.bin}/hidden-java > {machine.bin}/java; chmod +x {machine.bin}/java")
    assert machine.run("ensure-java.sh").returncode == 0
    assert asked_of_apt(machine)[-2:] == ["update", f"install {offered}"]


def test_java_that_cannot_be_installed_ends_with_the_remedy(machine: Machine) -> None:
    give_apt(machine, "openjdk-17-jre-headless", "echo 'E: Unable to fetch' >&2; exit 100")
    done = machine.run("ensure-java.sh")
    assert done.returncode == 2
    assert "E: Unable to fetch" in done.stderr
    assert asked_of_apt(machine)[:4] == ["update"] + 3 * ["install openjdk-17-jre-headless"]
    assert done.stderr.splitlines()[-1].startswith("Java could not be installed: install a Java 17 runtime")


def test_mirror_that_does_not_answer_is_asked_once_and_its_error_told(machine: Machine) -> None:
    give_apt(machine, "", "echo 'E: Could not connect to the mirror' >&2; exit 100", command="update")
    done = machine.run("ensure-java.sh")
    assert done.returncode == 2
    assert asked_of_apt(machine) == 3 * ["update"]
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["E", "Java could not be installed"]


def test_hiccup_of_the_mirror_is_tried_again(machine: Machine) -> None:
    give = f"echo true > {machine.bin}/mvn; chmod +x {machine.bin}/mvn"
    give_apt(machine, "maven", f"[ -e {machine.bin}/tried ] || {{ touch {machine.bin}/tried; exit 100; }}; {give}")
    done = machine.run("ensure-system.sh", "maven")
    assert (done.returncode, done.stderr) == (0, "Installing maven (apt-get install) ...\n")
    assert asked_of_apt(machine) == ["update", "install maven", "install maven"]


def test_all_missing_programs_are_installed_in_one_go(machine: Machine) -> None:
    give_apt(machine, "maven mmdebstrap", f"for p in mvn mmdebstrap; do echo true > {machine.bin}/$p; done")
    machine.run("ensure-system.sh", "maven", "mmdebstrap")
    assert asked_of_apt(machine) == ["update", "install maven mmdebstrap"]


def test_program_that_cannot_be_installed_does_not_keep_the_others_away(machine: Machine) -> None:
    give = f"echo true > {machine.bin}/mvn; chmod +x {machine.bin}/mvn"
    give_apt(machine, "maven mmdebstrap", f'[ "${{words[*]}}" = "install maven" ] || exit 100; {give}')
    done = machine.run("ensure-system.sh", "maven", "mmdebstrap", "chromium")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "mmdebstrap is missing for the tests that need it: sudo apt-get install mmdebstrap.",
        "chromium is missing for the tests that need it: sudo apt-get install chromium.",
    ]


def test_missing_program_of_the_system_is_named_and_the_others_are_looked_at(machine: Machine) -> None:
    done = machine.run("ensure-system.sh", "postgresql", "chromium")
    programs = [line.split()[0] for line in done.stderr.splitlines()]
    assert done.returncode == 2
    assert "chromium" in programs  # postgresql is found by its folder, where this machine has it


def test_program_that_is_there_is_not_installed(machine: Machine) -> None:
    machine.give("chromium", "true")
    done = machine.run("ensure-system.sh", "chromium")
    assert (done.returncode, done.stderr) == (0, "")


def test_old_python_is_one_sentence(machine: Machine, tmp_path: Path) -> None:
    machine.give("old-python", 'case "$2" in *platform*) echo 3.9.2 ;; *) exit 1 ;; esac')
    done = machine.run("install.sh", "old-python", str(tmp_path / "venv"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer is needed, and 'old-python' is 3.9.2" in done.stderr


def test_missing_python_is_one_sentence(machine: Machine, tmp_path: Path) -> None:
    done = machine.run("install.sh", "no-python", str(tmp_path / "venv"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "'no-python' was not found" in done.stderr


def test_environment_whose_python_is_gone_is_made_again(machine: Machine, tmp_path: Path) -> None:
    """As after an upgrade of the system."""
    make = f'exec {sys.executable} -m venv --without-pip "${{@:3}}"'
    machine.give("new-python", f'if [ "$2" = venv ]; then {make}; else exec {sys.executable} "$@"; fi')
    venv = tmp_path / "venv"
    for name in ("python", "python3"):
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        (venv / "bin" / name).symlink_to("/gone/python")
    (venv / "pyvenv.cfg").touch()
    machine.run("install.sh", "new-python", str(venv))  # ends without pip
    subprocess.run([venv / "bin" / "python", "-c", ""], check=True)


def test_python_without_venv_and_no_right_to_install_is_one_sentence(machine: Machine, tmp_path: Path) -> None:
    machine.give("bare-python", f'[[ "$2" != *ensurepip* ]] && exec {sys.executable} "$@"')
    done = machine.run("install.sh", "bare-python", str(tmp_path / "venv"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "install its venv package" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("cleared", ["true", "false"], ids=["cleared", "another installation holds the lock"])
def test_installation_clears_builds_that_nothing_uses_from_the_store_of_uv(
    machine: Machine, tmp_path: Path, cleared: str
) -> None:
    """uv builds pyspark anew where the registry forbids to keep it, and keeps each build: 1.4 GB per installation."""
    environment = Machine(tmp_path / "venv" / "bin")
    environment.bin.mkdir(parents=True)
    environment.give("python", "true")
    environment.give("uv", f'echo "$*" >> {tmp_path}/uv.log; [ "$1" = pip ] || {cleared}')
    done = machine.run("install.sh", "python3", str(tmp_path / "venv"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(" --")[0] for line in (tmp_path / "uv.log").read_text().splitlines()] == [
        "pip install",
        "cache prune",
    ]
