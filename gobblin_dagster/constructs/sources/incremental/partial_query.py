"""Find the LIMIT of a query that surely leaves rows out, by its shape: dialects are many, and there is no parser here.

A LIMIT that cuts all rows of the result is found: at the end, in an arm of a UNION, or in the only subquery or common
table expression that the query reads. One in a join, a condition, a value or a lateral subquery is not: it may pick the
newest row of a key.
"""

from __future__ import annotations

import re

_IGNORED = re.compile(r"'[^']*'|/\*.*?\*/|(?:--|#(?![>-]))[^\n]*", re.DOTALL)
"""Texts and comments of SQL; `#` begins a comment in MySQL, `#>` and `#-` are operators of PostgreSQL."""
_QUOTED = re.compile(r'"[^"]*"|`[^`]*`')
_INNERMOST = re.compile(r"\(([^()]*)\)")
_PART = re.compile("\0(\\d+)\0")
_CUT = re.compile(
    r"(?<![\w.])(?:limit\s+[\d\0]|offset\s+(?!0\b)[\d\0]|fetch\s+(?:first|next)\b|(?<=select\s)top\s*[\d\0]).*",
    re.IGNORECASE | re.DOTALL,
)
_ARMS = re.compile(r"\b(?:union|intersect|except|minus)(?:\s+(?:all|distinct)\b)?", re.IGNORECASE)
_NAMED = re.compile("(\\w+)\\s*(?:\0\\d+\0\\s*)?as\\s+(?:(?:not\\s+)?materialized\\s*)?\0(\\d+)\0", re.IGNORECASE)
_ONLY_SOURCE = re.compile(
    "(?<!distinct\\s)\\bfrom\\s*(\0\\d+\0|\\w+)(?:\\s+(?:as\\s+)?(?!\\w*join\\b)\\w+)?(?:\\s*\0\\d+\0)?"
    "\\s*(?:$|\\b(?:where|group|having|window|order|qualify)\\b)",
    re.IGNORECASE,
)


def cut_of(query: str) -> str | None:
    """Return the words of a query that leave a part of its rows out; None if it has none that surely do."""
    text = _QUOTED.sub(lambda name: "q_" + re.sub(r"\W", "_", name[0]), _IGNORED.sub("", query))
    parts: list[str] = []

    def taken_out(part: re.Match[str]) -> str:
        parts.append(part[1])
        return f"\0{len(parts) - 1}\0"

    while (shorter := _INNERMOST.sub(taken_out, text)) != text:
        text = shorter
    found = _cut(text.rstrip("; \t\r\n"), parts, {})
    while found and _PART.search(found):
        found = _PART.sub(lambda part: f"({parts[int(part[1])]})", found)
    return found


def _cut(text: str, parts: list[str], outer: dict[str, int]) -> str | None:
    """Return the cut of a query whose brackets were taken out; `outer`: common table expressions that it may name."""
    named = outer
    if re.match(r"\s*with\b", text, re.IGNORECASE):
        named = outer | {name.lower(): int(number) for name, number in _NAMED.findall(text)}
    if found := _CUT.search(text):
        return found[0].strip()
    for arm in _ARMS.split(text):
        source = _PART.fullmatch(arm.strip())
        name = _ONLY_SOURCE.search(arm)
        if source is not None:
            number: int | None = int(source[1])
        elif name is not None:
            inside = _PART.fullmatch(name[1])
            number = int(inside[1]) if inside is not None else named.get(name[1].lower())
        else:
            continue
        # A common table expression may name itself: what it says is searched once.
        rest = {one: part for one, part in named.items() if part != number}
        if number is not None and (found_inside := _cut(parts[number], parts, rest)):
            return found_inside
    return None
