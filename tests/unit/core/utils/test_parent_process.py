from __future__ import annotations

import os
import subprocess
import sys

ORPHAN = """
import os, sys
from gobblin_dagster.core.utils.parent_process import end_with_parent
end_with_parent(int(sys.argv[1]))
print("lives")
"""


def _said(parent: int) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", ORPHAN, str(parent)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def test_process_lives_with_its_parent_and_ends_if_that_has_died_before() -> None:
    assert _said(os.getpid()) == (0, "lives")
    assert _said(os.getppid()) == (-9, "")
