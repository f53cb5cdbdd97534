"""Hand a command to the project's warm worker, if `gobblin.yaml` asks for one: before anything heavy is imported.

Whatever is doubtful (wrong options, a faulty file) is left to the command itself, which says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLD = ("-h", "--help", "--crash-at")
"""Options of commands that need no worker, or a process of their own."""
PROJECT_FILE = "gobblin.yaml"


def hand_over(arguments: Sequence[str]) -> int | None:
    """Run `gobblin run` or `gobblin plan` in the worker, and return its exit code; None if it is to be run here.

    Only `run` starts a worker; `plan` uses one that runs.

    Raises:
        WorkerLostError: the worker died while it ran the command.
    """
    command, start, rest = _split(arguments)
    if command not in ("run", "plan") or any(word.split("=")[0] in COLD for word in rest):
        return None
    root = _root(start)
    if root is None or not _is_wanted(root):
        return None
    from gobblin_dagster.warm.client import Refusal, run_in_worker  # noqa: PLC0415 - most projects have no worker

    code = run_in_worker(root, arguments, may_start=command == "run")
    return None if isinstance(code, Refusal) else code


def _split(arguments: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Return command, project folder, and the words after the command; no command if the options are others."""
    words, folder = list(arguments), os.environ.get("GOBBLIN_PROJECT") or "."
    while words:
        word = words.pop(0)
        if word in ("-C", "--project") and words:
            folder = words.pop(0)
        elif word.startswith("--project="):
            folder = word.partition("=")[2]
        elif word.startswith("-C") and len(word) > 2:
            folder = word[2:]
        elif word.startswith("-"):
            break
        else:
            return word, folder, words
    return "", folder, ()


def _root(start: str) -> Path | None:
    """Return the nearest folder with a `gobblin.yaml`, as `spec.load.find_project` does, which imports pydantic."""
    try:
        here = Path(start).resolve()
        return next((folder for folder in (here, *here.parents) if (folder / PROJECT_FILE).is_file()), None)
    except OSError:
        return None


def _is_wanted(root: Path) -> bool:
    """Return whether `spark.keep_warm` is set; the worker itself checks its value."""
    try:
        text = (root / PROJECT_FILE).read_text(encoding="utf-8")
        if "keep_warm" not in text or os.name != "posix":
            return False
        import yaml  # noqa: PLC0415 - most projects do not get here

        document: Any = yaml.safe_load(text)
        return bool(document["spark"]["keep_warm"])
    except Exception:  # noqa: BLE001 - the command itself reads the file again and says what is wrong with it
        return False
