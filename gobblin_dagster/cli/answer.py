"""Print the `--output json` document of a command that ended before it printed its own: error and jobs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from gobblin_dagster.cli.errors import describe
from gobblin_dagster.cli.render.json_document import Printed, print_json
from gobblin_dagster.core.errors import InvalidSpecError

_OUTPUT = re.compile(r"(?:--output(?:=|$)|-y*o=?)(.*)")
"""`--output json`, `--output=json`, `-o json`, `-ojson`, and `-yo json`: short options may stand together."""


def begin() -> None:
    """Begin a command: no document is printed yet."""
    Printed.document = False


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON, even if the parser refuses its other words."""
    words = list(arguments)
    words = words[: words.index("--")] if "--" in words else words
    asked = ""  # the last one counts, as for the parser
    for word, following in pairwise([*words, ""]):
        if found := _OUTPUT.fullmatch(word):
            asked = found[1] or following
    return asked == "json"


def error_view(error: BaseException) -> dict[str, Any]:
    """Return code and message of an error; for a faulty file also each fault."""
    code, message = describe(error)
    view: dict[str, Any] = {"code": code, "message": message}
    if isinstance(error, InvalidSpecError):
        faults = [
            {"file": f.file or error.file, "line": f.line, "path": f.path, "problem": f.problem} for f in error.faults
        ]
        view |= {"file": error.file, "faults": faults}
    return view


def print_refusal(error: BaseException | None, exit_code: int, jobs: Collection[str]) -> None:
    """Print the document of a command that ended before it printed one: by an error, or because a person declined.

    `jobs` are the names given on the command line.
    """
    if not Printed.document:
        view = {"code": "declined", "message": "Nothing was changed."} if error is None else error_view(error)
        print_json(exit_code=exit_code, error=view, jobs=[{"job": job, "error": view} for job in jobs])
