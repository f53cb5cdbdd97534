"""What of a job file is a secret: values of variables are hidden, passwords that stand there as text are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gobblin_dagster.spec.document import Document, Loc

SECRET_NAME = re.compile(
    r"password|passphrase|secret|credential|token(?!-expires)|(account|sas|api).?key", re.IGNORECASE
)
"""Names of settings whose values are secrets."""
_SHOWN = frozenset(
    {"job", "path", "table", "tables", "namespace", "topics", "brokers", "branch", "name", "state", "jobs"}
)
"""Keys whose values are names of things that people look for: messages, stored states and lists hold them anyway."""
_NO_SECRET = ("_env", ".provider", ".class")
"""Ends of names that speak of a secret and hold none."""
_IN_URL = re.compile(r"://[^/@:?#]*:([^/@]+)@|[?&;](?:password|pwd)=([^&;]+)", re.IGNORECASE)
_REFUSED = "must not hold a password; take it from the environment: ${NAME}"


def values_to_hide(document: Document) -> dict[str, str]:
    """Return the values of variables that are no names of places, with their references."""
    return {
        value: reference for loc, values in document.values.items() if not _is_shown(loc) for reference, value in values
    }


def _is_shown(loc: Loc) -> bool:
    return next((part for part in reversed(loc) if isinstance(part, str)), "") in _SHOWN


def literal_secrets(loc: Loc, node: Mapping[str, Any], written: Mapping[Loc, str]) -> Iterator[tuple[Loc, str]]:
    """Yield (place, problem) of each password of a construct that stands in the file itself, in a URL or as an option.

    Args:
        loc: where the construct stands.
        node: it, references replaced.
        written: the text of values that held references, by place.
    """
    for key, value in node.items():
        here = (*loc, key)
        if isinstance(value, dict):
            yield from literal_secrets(here, value, written)
        elif isinstance(value, str) and value:
            text = written.get(here, value)
            is_option = bool(loc) and loc[-1] == "options" and SECRET_NAME.search(key) is not None
            is_secret = is_option and not key.endswith(_NO_SECRET) and "${" not in text
            if is_secret or any("${" not in "".join(found) for found in _IN_URL.findall(text)):
                yield here, _REFUSED
