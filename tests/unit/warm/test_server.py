"""Worker and client as processes, with commands that need no Spark."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.warm import client as warm_client
from gobblin_dagster.warm.address import WarmAddress
from gobblin_dagster.warm.client import Order, Refusal, ask_at, ask_worker, begin_in_worker
from gobblin_dagster.warm.messages import receive, send
from gobblin_dagster.warm.watch import surroundings

WORKER = Path(__file__).with_name("echo_worker.py")
CLIENT = f"""
import sys
from pathlib import Path
from gobblin_dagster.core.errors import WorkerLostError
from gobblin_dagster.warm.client import Refusal, run_in_worker
try:
    code = run_in_worker(Path(sys.argv[1]), sys.argv[2:], may_start=True, program=(sys.executable, {str(WORKER)!r}))
except WorkerLostError as error:
    sys.exit(f"lost: {{error}}")
sys.exit(f"refused: {{code.reason}}" if isinstance(code, Refusal) else code)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a project folder whose worker is ended afterwards."""
    place = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", place)
    monkeypatch.setenv("TERM", "dumb")
    (tmp_path / "gobblin.yaml").write_text("project: x\n")
    yield tmp_path
    ask_worker(tmp_path, "stop", at_once=True)
    shutil.rmtree(place, ignore_errors=True)  # the worker, which answers before it ends, deletes its socket meanwhile


def start(root: Path, *arguments: str, program: str = CLIENT, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(root), *arguments],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def call(root: Path, *arguments: str, given: str = "", **env: str) -> tuple[int, str, str]:
    client = start(root, *arguments, **env)
    out, err = client.communicate(given, timeout=60)
    return client.returncode, out, err


def pid_of(root: Path) -> int | None:
    found = ask_worker(root, "status")
    return None if found is None else int(found["pid"])


def waiting(root: Path, *arguments: str) -> subprocess.Popen[str]:
    client = start(root, *arguments)
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n"
    return client


def until_ended(root: Path, pid: int | None) -> None:
    for _ in range(500):
        if pid_of(root) != pid:
            return
        time.sleep(0.02)
    raise AssertionError("the worker goes on")


def test_command_has_streams_folder_terminal_and_exit_code_of_the_client(root: Path, tmp_path: Path) -> None:
    for terminal in ("dumb", "xterm"):
        code, out, err = call(root, "say", "hello", given="from a pipe", TERM=terminal)
        assert (code, err) == (7, "and an error\n")
        assert out.splitlines() == ["native", f"hello {Path.cwd().name} {terminal} from a pipe"]
    status = ask_worker(root, "status")
    assert status is not None
    assert (status["commands"], status["runs_now"]) == (2, None)


def test_command_whose_client_cannot_be_told_errors_ends_as_always(root: Path) -> None:
    call(root, "say", "hello")  # the worker runs now
    with Path("/dev/full").open("wb") as full:
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, str(root), "say"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert client.returncode == 7
    status = ask_worker(root, "status")
    assert status is not None
    assert status["commands"] == 2


def test_second_client_is_refused_while_a_command_runs(root: Path) -> None:
    first = waiting(root, "wait")
    assert call(root, "say") == (1, "", "refused: another command runs\n")
    status = ask_worker(root, "status")
    assert status is not None
    assert status["runs_now"] == ["wait"]
    first.send_signal(signal.SIGINT)
    assert first.communicate(timeout=60) == ("stopped\n", "")
    assert first.returncode == 130
    assert call(root, "nothing") == (0, "", "")


def test_killed_client_stops_its_command_as_one_interrupt_does(root: Path) -> None:
    client = waiting(root, "wait")
    pid = pid_of(root)
    client.kill()
    assert client.stdout is not None
    assert client.stdout.read() == "stopped\n"
    client.communicate(timeout=60)
    for _ in range(500):
        status = ask_worker(root, "status")
        if status is not None and status["runs_now"] is None:
            break
        time.sleep(0.02)
    assert call(root, "nothing")[0] == 0
    assert pid_of(root) == pid


def test_signals_act_as_on_a_process_of_its_own(root: Path) -> None:
    pids = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        client = waiting(root, "stuck")
        pids.add(pid_of(root))
        client.send_signal(number)
        assert client.wait(timeout=60) == 130
        client.communicate()
    assert {pid_of(root)} == pids


def test_signal_that_interrupts_no_call_reaches_the_command(root: Path) -> None:
    """Such as one that comes just before the client waits; here another thread takes it."""
    elsewhere = (
        "import signal, threading, time\n"
        "threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
    )
    call(root, "nothing")  # the worker must not inherit the mask
    client = start(root, "wait", program=elsewhere + CLIENT)
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n"
    client.send_signal(signal.SIGINT)
    assert client.communicate(timeout=60) == ("stopped\n", "")
    assert client.returncode == 130


def test_signal_between_handing_over_and_waiting_reaches_the_command(root: Path) -> None:
    struck = f"""
import os, signal
from gobblin_dagster.warm import client
send = client.send
def send_and_strike(connection, kind, **fields):
    send(connection, kind, **fields)
    if kind == "run":
        os.kill(os.getpid(), signal.SIGINT)
client.send = send_and_strike
{CLIENT}"""
    client = start(root, "wait", program=struck)
    client.communicate(timeout=60)
    assert client.returncode == 130


def test_worker_that_reads_nothing_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_client, "ANSWER_S", 0.1)
    with WarmAddress.of(root).listen():
        refused = warm_client.run_in_worker(root, ["x" * 1_000_000], may_start=False)
    assert refused == warm_client.Refusal("timed out")


def test_streams_of_a_client_that_gave_up_are_closed(root: Path) -> None:
    assert call(root, "nothing")[0] == 0
    connection = WarmAddress.of(root).connect()
    assert connection is not None
    seen, written = os.pipe()
    with connection:
        socket.send_fds(connection, [(100).to_bytes(4, "big")], [written] * 3)
    os.close(written)
    assert select.select([seen], [], [], 10)[0]
    assert os.read(seen, 1) == b""
    os.close(seen)


def test_second_interrupt_ends_the_worker_too_and_the_third_kills_it(root: Path) -> None:
    client = waiting(root, "twice")
    pid = pid_of(root)
    client.send_signal(signal.SIGINT)
    assert client.stdout is not None
    assert client.stdout.readline() == "once\n"
    client.send_signal(signal.SIGINT)
    assert client.wait(timeout=60) == 130
    client.communicate()
    until_ended(root, pid)
    client = waiting(root, "deaf")
    pid = pid_of(root)
    for _ in range(3):
        client.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert client.wait(timeout=60) != 0
    client.communicate()
    until_ended(root, pid)


def test_worker_that_dies_is_told_and_the_next_command_has_another(root: Path) -> None:
    code, out, err = call(root, "die")
    assert (code, out) == (1, "")
    assert "No row is lost or doubled" in err
    assert call(root, "nothing")[0] == 0


def test_changes_start_another_worker(root: Path) -> None:
    assert call(root, "nothing")[0] == 0
    first = pid_of(root)
    assert call(root, "nothing", TERM="xterm")[0] == 0
    assert pid_of(root) == first
    (root / "gobblin.yaml").write_text("project: other\n")
    assert call(root, "nothing")[0] == 0
    second = pid_of(root)
    assert second != first
    assert call(root, "nothing", OTHER="1")[0] == 0
    third = pid_of(root)
    assert third not in (first, second)
    before = os.umask(0o027)
    assert call(root, "nothing", OTHER="1")[0] == 0
    os.umask(before)
    assert pid_of(root) not in (first, second, third)
    (root / "unfit").write_text("Spark has ended")
    assert "the worker ended 3 times" in call(root, "nothing", OTHER="1")[2]
    (root / "unfit").unlink()


def test_idle_worker_ends_and_leaves_no_socket(root: Path) -> None:
    assert call(root, "nothing", KEEP_S="0.2")[0] == 0
    until_ended(root, pid_of(root))
    assert not WarmAddress.of(root).path.exists()


def test_stop_lets_the_command_end(root: Path) -> None:
    client = waiting(root, "wait")
    pid = pid_of(root)
    assert ask_worker(root, "stop") is not None
    assert client.communicate(timeout=60)[0] == "stopped\n"
    assert client.returncode == 130
    until_ended(root, pid)


def test_clients_at_once_start_one_worker(root: Path) -> None:
    clients = [start(root, "nothing") for _ in range(4)]
    ended = [(client.communicate(timeout=60), client.returncode) for client in clients]
    codes = [code for _, code in ended]
    assert codes.count(0) >= 1
    assert all("another command runs" in err for (_, err), code in ended if code)


def test_nonsense_does_not_harm_the_worker(root: Path) -> None:
    assert call(root, "nothing")[0] == 0
    pid = pid_of(root)
    for sent in (b"\xff\xff\xff\xff", b"\0\0\0\x02\x80\x04", b"x", b'\0\0\0\x1d{"protocol":1,"kind":"run"}  '):
        connection = WarmAddress.of(root).connect()
        assert connection is not None
        with connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    deep = b"[" * 100_000
    for kind, fields in ((b'"dance"', b""), (b'"status"', b', "deep": ' + deep), (b'"run"', b', "arguments": 1')):
        body = b'{"protocol": 1, "kind": ' + kind + fields + b"}"
        connection = WarmAddress.of(root).connect()
        assert connection is not None
        with connection:
            connection.sendall(len(body).to_bytes(4) + body)
            connection.settimeout(60)
            assert connection.recv(1) == b"", "the client does not wait"
    connection = WarmAddress.of(root).connect()
    assert connection is not None
    with connection:  # no streams come with it
        send(connection, "run", arguments=["nothing"], folder="/", environment=dict(os.environ))
        assert receive(connection) == (None, [])
    assert pid_of(root) == pid


def begin(root: Path, *arguments: str, given: str = "", **noted: str) -> int | Refusal:
    """Let a worker of another purpose begin a command, and leave it alone."""
    words = [
        sys.executable,
        "-m",
        "gobblin_dagster.warm.process",
        str(root),
        "other",
        "tests.unit.warm.echo_worker",
        "30",
    ]
    return begin_in_worker(WarmAddress.of(root, "other"), Order(arguments, given, noted), words, root / "log")


def until_idle(root: Path) -> None:
    for _ in range(500):
        status = ask_at(WarmAddress.of(root, "other"), "status")
        if status is None or status["runs_now"] is None:
            return
        time.sleep(0.02)
    raise AssertionError("the command goes on")


def until_logged(root: Path, text: str) -> None:
    for _ in range(500):
        if text in (root / "log").read_text():
            return
        time.sleep(0.02)
    raise AssertionError((root / "log").read_text())


def test_order_goes_on_without_its_client_and_is_interrupted_by_name(root: Path) -> None:
    address = WarmAddress.of(root, "other")
    assert ask_at(address, "status") is None
    pid = begin(root, "say", "hello", given="secret words")
    until_idle(root)
    until_logged(root, f"hello {Path.cwd().name} dumb secret words")
    assert "command: ['say', 'hello']" in (root / "log").read_text()
    assert address.path != WarmAddress.of(root).path

    assert begin(root, "wait") == pid
    until_logged(root, "waiting")
    assert begin(root, "say") == Refusal("another command runs")
    assert ask_at(address, "interrupt", arguments=["say"]) == {
        "kind": "interrupted",
        "protocol": 1,
        "was_running": False,
    }
    assert (ask_at(address, "interrupt", arguments=["wait"]) or {})["was_running"] is True
    until_logged(root, "stopped")
    while ask_at(address, "status") is not None:
        time.sleep(0.02)
    second = begin(root, "nothing")
    assert second != pid  # what the command began, such as a job of Spark, has ended with the worker
    until_idle(root)

    # Nobody says `go`: the client went away, and may have run the command elsewhere.
    with (root / "log").open() as log, address.connect() or socket.socket() as gone:
        words = {"arguments": ["say", "twice"], "folder": "/", "environment": surroundings()}
        send(gone, "run", files=[log.fileno()] * 3, stays=True, **words)
        assert (receive(gone)[0] or {})["kind"] == "begun"
    until_idle(root)
    assert "command: ['say', 'twice']" not in (root / "log").read_text()

    # What is noted is watched as the environment is.
    other = begin(root, "nothing", **{"(job files)": "changed"})
    assert other not in (pid, second)
    assert "the environment changed: (job files)" in (root / "log").read_text()
    assert (ask_at(address, "stop", at_once=True) or {})["pid"] == other
