"""A real OpenSSH server on 127.0.0.1 for tests, run as this user; it ends with the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.ports import free_port, wait_until_listening


@dataclass(frozen=True)
class SftpServer:
    """A running server."""

    url: str
    """`sftp://user@127.0.0.1:port`, without a path."""
    home: Path
    """A home folder whose `.ssh` holds the key that the server lets in, and the server as a known host."""
    log: Path
    pid: int

    def connections(self) -> list[int]:
        """Return the processes that serve a connection each."""
        return [int(child) for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]


def sshd_binary() -> Path | None:
    """Return the server's program; it may be unpacked somewhere, named by `SSHD`."""
    named = os.environ.get("SSHD")
    found = named or shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


@contextmanager
def running_sftp(sshd: Path) -> Iterator[SftpServer]:
    """Start a server with keys of its own and end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="gobblin-sftp-") as folder:
        root, port = Path(folder), free_port()
        home = root / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        for key in (root / "host_key", home / ".ssh/id_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (root / "authorized_keys").write_text((home / ".ssh/id_ed25519.pub").read_text())
        host_key = " ".join((root / "host_key.pub").read_text().split()[:2])
        (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        (root / "sshd_config").write_text(_config(root, port))
        log = root / "log"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # sshd asks for it; Debian makes it when the service starts
        process = subprocess.Popen([str(sshd), "-D", "-f", str(root / "sshd_config"), "-E", str(log)])
        try:
            wait_until_listening(port, process, log, "sshd")
            yield SftpServer(f"sftp://{getpass.getuser()}@127.0.0.1:{port}", home, log, process.pid)
        finally:
            process.terminate()
            process.wait()


def _config(root: Path, port: int) -> str:
    return "\n".join(
        [
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {root}/host_key",
            f"AuthorizedKeysFile {root}/authorized_keys",
            f"PidFile {root}/pid",
            "StrictModes no",  # the folder is a temporary one
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin yes",  # containers run tests as root
            "Subsystem sftp internal-sftp",
            "",
        ]
    )
