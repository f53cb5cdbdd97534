"""Texts that look like URLs, and texts that become parts of them."""

from __future__ import annotations

import re
from urllib.parse import unquote

_CUT_PASSWORD = re.compile(r"[a-z0-9+]+://[^/@]*:[^@]*@[^?]*@", re.IGNORECASE)
_ONE_SLASH = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/(?!/)")


def path_problem(text: str) -> str:
    """Return why a text is no path or URL; empty if it may be one.

    With one slash, it would be a folder called `file:`; only shells make a home folder of `~`.

    Example:
        >>> path_problem("file:/lake")
        "'file:/lake' has one slash behind its scheme; write file:///lake"
        >>> path_problem("file:///lake"), path_problem("C:/lake"), path_problem("a/b:/c")
        ('', '', '')
        >>> path_problem("~/lake")
        "'~/lake' would be a folder named '~' in the project; write ${HOME}/lake, or ./~/lake if you mean it"
    """
    if text == "~" or text.startswith("~/"):
        shown = text[1:60]
        meant = f"write ${{HOME}}{shown}, or ./~{shown} if you mean it"
        return f"{text[:80]!r} would be a folder named '~' in the project; {meant}"
    if "\0" in text:
        return f"{text[:80]!r} has a character NUL, which no path has"
    match = _ONE_SLASH.match(text)
    if match is None:
        return ""
    return f"{text[:80]!r} has one slash behind its scheme; write {match['scheme']}://{text[match.end() - 1 :][:60]}"


def cuts_password(url: str) -> bool:
    """Return whether a database's URL has a password with an `@`: what follows would count as host, and be shown.

    Example:
        >>> cuts_password("postgresql://me:p@ss@db/shop"), cuts_password("postgresql://me:p%40ss@db/shop?x=a@b")
        (True, False)
    """
    return _CUT_PASSWORD.match(url) is not None


def climbs(text: str) -> bool:
    """Return whether a text leads to the folder above as a part of a path or of a URL, where `%2e` is a dot.

    Example:
        >>> climbs("a/../b"), climbs("%2e%2E%2fb"), climbs("a..b/50%")
        (True, True, False)
    """
    return ".." in re.split(r"[/\\]", unquote(text))


def stays_inside(path: str) -> bool:
    """Return whether a path is a relative one that does not leave its folder, wherever it is put in.

    Example:
        >>> stays_inside("in/2026"), stays_inside("/in"), stays_inside("s3:%2F%2Fb/c"), stays_inside("in/%2e%2e/b")
        (True, False, False, False)
    """
    decoded = unquote(path)
    return "\\" not in decoded and not any(part in ("", ".", "..") for part in decoded.split("/"))


def is_address(host: str | None, port: int | None = None) -> bool:
    """Return whether a server may have this name and port: other ones end as errors that no library explains.

    Example:
        >>> is_address("db.example", 5432), is_address("::1"), is_address(None)
        (True, True, True)
        >>> is_address("db..example"), is_address("a" * 64), is_address("db", 99999)
        (False, False, False)
    """
    try:
        if host is not None:
            host.encode("idna")
    except UnicodeError:
        return False
    return port is None or 0 < port < 1 << 16
