"""Values of environment variables that job files take in, kept out of whatever is stored or printed.

A process knows the values of the job files that it loaded, or that the run's context told it (`known_in`, `remember`). Every
error of ours passes `hidden` when it becomes text, and so does what a work unit says of itself: in state stores, in
documents, in Dagster's events and in logs stands the reference `${NAME}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

SHORTEST = 4
"""Values shorter than this are not hidden: they would blot out half of every sentence."""
_WORDS = frozenset({"true", "false", "null", "none"})
_CUT = r"(?=…|\.\.\.|$)"
"""Where a text was cut short, the beginning of a value may stand."""
_PASSWORD = re.compile(r"[?&;](?:password|pwd|token)=([^&;]+)", re.IGNORECASE)

_known: dict[str, str] = {}
"""References by value."""


def remember(references: Mapping[str, str]) -> None:
    """Hide values from now on, in this process; `references` says by value what is shown instead.

    The password of a URL is hidden by itself too: drivers tell it alone.
    """
    for value, reference in references.items():
        for secret in (value, *_passwords(value)):
            if (
                len(secret) >= SHORTEST
                and secret.lower() not in _WORDS
                and not (secret.isdecimal() and len(secret) < 6)
            ):
                _known[secret] = reference


def forget() -> None:
    """Hide nothing any more; for tests, whose projects share a process."""
    _known.clear()


def known_in(job_json: str) -> dict[str, str]:
    """Return what is to be hidden of a job, for those who work on it in other processes."""
    return {
        value: reference
        for value, reference in _known.items()
        if json.dumps(value, ensure_ascii=False)[1:-1] in job_json
    }


def hidden(text: str) -> str:
    """Return a text with the values replaced by their references, also where one was cut short.

    Example:
        >>> remember({"s3cr3t-word": "${WORD}"})
        >>> hidden("near 's3cr3t-word' and 's3cr3t…"), forget()
        ("near '${WORD}' and '${WORD}…", None)
    """
    for value, reference in sorted(_known.items(), key=lambda pair: -len(pair[0])):
        for form in dict.fromkeys((value, repr(value)[1:-1], " ".join(value.split()))):
            text = text.replace(form, reference)
            text = _without_beginning(text, form, reference)
    return text


def _without_beginning(text: str, form: str, reference: str) -> str:
    """Replace the beginning of a value that stands where the text was cut."""
    if form[:SHORTEST] not in text:
        return text
    beginnings = "|".join(re.escape(form[:length]) for length in range(len(form) - 1, SHORTEST - 1, -1))
    return re.sub(f"(?:{beginnings}){_CUT}", lambda _: reference, text)


def _passwords(value: str) -> list[str]:
    """Return the passwords of a URL, as they are written and as they are meant."""
    if "://" not in value:
        return []
    try:
        written = urlsplit(value).password or ""
    except ValueError:
        written = ""
    found = [written, *_PASSWORD.findall(value)]
    return [form for one in found if one for form in dict.fromkeys((one, unquote(one)))]
