"""Ctrl-C and SIGTERM before the command runs: while Python imports what it needs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FRESH = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is begun with SIGINT ignored
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""
AT_IMPORT = """\
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and self in sys.meta_path:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.Signals({number}))

sys.meta_path.insert(0, Interrupter())
sys.argv = ["gobblin", *{arguments!r}]
from gobblin_dagster.cli.program import program
program()
"""
HANGS = """\
import os, signal, threading
os.kill(os.getpid(), signal.SIGINT)
threading.Event().wait(60)
"""
DROPS = """\
import os, signal, threading, time
class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
Dropping()
threading.Event().wait(60)
"""

SENDS_ANOTHER = """\
import os, signal, threading
tell = threading.Condition.notify_all
def interrupted(condition):
    if threading.current_thread() is threading.main_thread():
        threading.Condition.notify_all = tell
        os.kill(os.getpid(), signal.SIGINT)
    tell(condition)
threading.Condition.notify_all = interrupted
os.kill(os.getpid(), signal.SIGINT)
"""


def interrupted_at(module: str, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return how a command ended that got a signal when it began to import a module."""
    code = FRESH + AT_IMPORT.format(module=module, number=int(number), arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module",
    [
        "gobblin_dagster.cli.import_interrupt",  # before there is a handler
        "gobblin_dagster.cli.warm",
        "typer",
        "pydantic_core",  # which prints and drops exceptions
        "gobblin_dagster.cli.commands.check",
    ],
)
def test_signal_during_an_import_ends_as_elsewhere(module: str, number: signal.Signals) -> None:
    done = interrupted_at(module, number, "check")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_interrupt_during_an_import_is_told_as_json() -> None:
    done = interrupted_at("pydantic_core", signal.SIGTERM, "check", "--output", "json")
    assert done.returncode == 130
    assert json.loads(done.stdout)["error"]["code"] == "interrupted"


def test_sigterm_that_the_caller_ignores_stays_ignored() -> None:
    code = AT_IMPORT.format(module="typer", number=int(signal.SIGTERM), arguments=("--version",))
    before = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    done = subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def told_by(folder: Path, module: str, more: str = "", longest_s: float = 5.0) -> tuple[str, str]:
    """Return the output and errors of a program that imports a module, does more, and tells if it is interrupted."""
    (folder / "imported.py").write_text(module)
    code = FRESH + (
        f"from gobblin_dagster.cli import import_interrupt; import_interrupt.LONGEST_S = {longest_s}; "
        "import_interrupt.interrupt_between_imports()\n"
        f"try:\n import imported\n {more}\nexcept KeyboardInterrupt:\n print('interrupted')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout, done.stderr


def test_import_that_hangs_is_interrupted(tmp_path: Path) -> None:
    assert told_by(tmp_path, HANGS, longest_s=0.1) == ("interrupted\n", "")


def test_interrupt_that_native_code_drops_is_asked_for_again(tmp_path: Path) -> None:
    # Python drops exceptions of `__del__`, as Cython those of its callbacks.
    assert told_by(tmp_path, DROPS, longest_s=0) == ("interrupted\n", "")


def test_interrupt_in_the_midst_of_another_one_does_not_wait_for_itself(tmp_path: Path) -> None:
    raises = "import_interrupt.raise_interrupt_of_import()"
    assert told_by(tmp_path, SENDS_ANOTHER, raises) == ("interrupted\n", "")
