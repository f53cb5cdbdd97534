from __future__ import annotations

import socket
from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_dev_port_in_use_is_one_sentence_with_a_remedy(cli: Cli, project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        called = cli("dev", "--port", port)
    assert called.code == 1
    assert called.err == (
        f"error[environment]: Port {port} on 127.0.0.1 cannot be used: Address already in use. "
        f"End the program that uses it, or choose another: `gobblin dev --port {port + 1}`.\n"
    )
