"""Texts that look like URLs."""

from __future__ import annotations

import re

_ONE_SLASH = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/(?!/)")


def one_slash_problem(text: str) -> str:
    """Return a sentence if a URL lacks a slash, else an empty text: it would be a folder called `file:`.

    Example:
        >>> one_slash_problem("file:/lake")
        "'file:/lake' has one slash behind its scheme; write file:///lake"
        >>> one_slash_problem("file:///lake"), one_slash_problem("C:/lake"), one_slash_problem("a/b:/c")
        ('', '', '')
    """
    match = _ONE_SLASH.match(text)
    if match is None:
        return ""
    return f"{text[:80]!r} has one slash behind its scheme; write {match['scheme']}://{text[match.end() - 1 :][:60]}"
