"""A Debian or Ubuntu as it is right after its installation, in a folder: real apt, real packages, none of ours there
yet."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.services.missing import missing

_BUILD_S = 900
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class NewMachine:
    """A folder with a system of its own; commands run in it with processes of their own, which end with the command."""

    root: Path

    def start(self, script: str) -> subprocess.Popen[str]:
        """Start lines of bash in a copy of this repository's scripts."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={self.root}", "--mount-proc"]
        return subprocess.Popen(
            [*apart, "--wd=/srv", "/bin/bash", "-euc", script],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str) -> tuple[int, str, str]:
        """Run lines of bash; return the exit code, what they said, and what they said on the error stream."""
        process = self.start(script)
        out, err = process.communicate()
        return process.returncode, out, err

    def has(self, *programs: str) -> list[str]:
        """Return which of the programs are there."""
        return [name for name in programs if shutil.which(name, path=f"{self.root}/usr/bin:{self.root}/usr/sbin")]


def why_impossible() -> str | None:
    """Return why no such machine can be made here."""
    if os.geteuid() != 0:
        return "only root may make a new machine in a folder"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        return f"a new machine in a folder may not have processes of its own here: {tried.stderr.strip()}"
    if shutil.which("apt-get") is None:
        return (
            "a new machine in a folder is made from packages of Debian or Ubuntu (apt-get), and this system has others"
        )
    return None


def new_machine(folder: Path) -> NewMachine:
    """Make the machine in a folder; its system is fetched once and kept in the user's cache folder."""
    with subprocess.Popen(["tar", "--extract", f"--file={_system()}", f"--directory={folder}"]) as unpacked:
        pass
    if unpacked.returncode != 0:
        raise RuntimeError(f"the system of a new machine could not be unpacked into {folder}")
    shutil.copytree(_REPOSITORY / "scripts", folder / "srv" / "scripts")
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    (folder / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
    return NewMachine(folder)


def _system() -> Path:
    """Return a tar file of the smallest system with apt and Python, of the release and the mirror of this machine."""
    release = dict(re.findall(r'^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    codename = release["VERSION_CODENAME"]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gobblin-dagster" / "systems"
    kept = home / f"{codename}.tar"
    if kept.exists():
        return kept
    if shutil.which("mmdebstrap") is None:
        missing("mmdebstrap, which makes the system of a new machine, is not installed here (looked for it on PATH)")
    asked = _said("apt-get", "indextargets", "--format", "$(CODENAME) $(CREATED_BY) $(COMPONENT) $(REPO_URI)")
    targets = [line.split() for line in asked.splitlines()]
    found = [(target[2], target[3]) for target in targets if target[:2] == [codename, "Packages"]]
    if not found:
        missing(f"apt knows no mirror of {codename} here (sudo apt-get update)")
    # How this machine reaches its mirror: proxies, certificates, mirrors that keep old lists.
    network = re.findall(r"^Acquire::(?:https?|Check)[^ ]* \"[^\"]+\";$", _said("apt-config", "dump"), re.MULTILINE)
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gobblin-system-") as work:
        made = Path(work) / "system.tar"
        command = ["mmdebstrap", "--mode=root", "--variant=apt", "--include=python3-minimal"]
        command += ["--components", ",".join(dict.fromkeys(component for component, _ in found))]
        command += ["--dpkgopt=force-unsafe-io", *(f"--aptopt={line}" for line in network)]
        done = subprocess.run(
            [*command, codename, str(made), found[0][1]], capture_output=True, text=True, check=False, timeout=_BUILD_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"mmdebstrap failed: {done.stderr[-2000:]}")
        # Renamed when whole: another test run may make the same at this moment.
        shutil.copy(made, home / f".{Path(work).name}")
        (home / f".{Path(work).name}").rename(kept)
    return kept


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
