"""References to environment variables inside text: `${VAR}`, `${VAR:-default}` and `$$` for a literal `$`.

Names follow the rules of the shell. `${VAR:-default}` gives the default if the variable is unset or empty; the default
is the plain text up to the closing brace. A value is never expanded again. A `$` before any other character stays as
it is, so that regular expressions and SQL need no escapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(r"\$\$|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with its references replaced."""

    text: str
    is_whole: bool = False
    """Whether the written text was a single reference."""
    values: tuple[tuple[str, str], ...] = ()
    """(reference, value) of each variable that was read; messages show the reference instead of the value."""
    names: tuple[str, ...] = ()
    """All variables that the references name, whether they are set or not."""
    problems: tuple[str, ...] = ()
    """Problems of the references; if there are any, `text` is the written text."""


def not_set(name: str) -> str:
    """Return how the problem of a variable without a value begins."""
    return f"environment variable {name} is not set"


def expand(written: str, environ: Mapping[str, str], *, has_defaults: bool = True) -> Expanded:
    """Replace the references in a text.

    Args:
        written: the text.
        environ: environment variables.
        has_defaults: whether messages may recommend a default for a variable that is not set.

    Example:
        >>> expand("jdbc://${HOST:-localhost}:${PORT}", {"PORT": "5432"}).text
        'jdbc://localhost:5432'
        >>> expand("costs $$5", {}).text
        'costs $5'
    """
    if "$" not in written:
        return Expanded(written)
    values: list[tuple[str, str]] = []
    names: list[str] = []
    problems: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        body = _BODY.fullmatch(match["body"])
        if body is None or not match["end"]:
            problems.append(
                f"{match[0][:60]!r} is not a reference; write ${{VAR}}, ${{VAR:-default}}, or $$ for a plain $"
            )
            return ""
        name, default = body["name"], body["default"]
        names.append(name)
        value = environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            advice = (
                f"set it, or give a default: ${{{name}:-...}}" if has_defaults else f"set it, or remove ${{{name}}}"
            )
            problems.append(f"{not_set(name)}; {advice}")
            return ""
        values.append((match[0], value))
        return value

    text = _TOKEN.sub(replace, written)
    if problems:
        return Expanded(written, names=tuple(names), problems=tuple(problems))
    whole = _TOKEN.fullmatch(written)
    return Expanded(text, whole is not None and written != "$$", tuple(values), tuple(names))
