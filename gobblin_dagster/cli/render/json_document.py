"""The document of `--output json`: each command prints exactly one. Imports no rich, so that `--help` stays fast."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any, ClassVar

SCHEMA_VERSION = 1
"""Version of all `--output json` documents; grows when a key changes its meaning or is removed."""


class Printed:
    """True if the running command has printed its document."""

    document: ClassVar[bool] = False


def print_json(**document: Any) -> None:
    """Print one JSON document with its schema version on stdout."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, ensure_ascii=False, default=_plain)
    Printed.document = True
    sys.stdout.write(text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
