"""Turn a class name of a Gobblin file into the declaration (`type` and options) of our construct."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.spec.explain import nearest
from gobblin_dagster.spec.gobblin.classes import DEFAULTS, IN_FILES, PASSED, PREFIX


class ClassError(ValueError):
    """There is no construct for a class."""


@dataclass(frozen=True, slots=True)
class Construct:
    """The construct for a class."""

    declaration: dict[str, Any]
    """`type` and options."""
    name: str
    """Name for reports."""
    known_as: str = ""
    """Last part of the name of a Gobblin class; empty for classes that the project declares."""


def construct_of(
    kind: str, table: Mapping[str, str], class_name: str, own: Mapping[str, Mapping[str, Any]]
) -> Construct | None:
    """Return the construct for a class; None if the class is not needed here.

    Args:
        kind: kind of construct, for messages.
        table: our types by Gobblin's full class names.
        class_name: the name in the file: a full name, the last part of one, or `module:Class`.
        own: declarations of the project by class name (`classes` in gobblin.yaml); they win over `table`.

    Raises:
        ClassError: there is no construct for the class.
    """
    last = re.split(r"[.:]", class_name)[-1]
    name = snake(last.removesuffix("Policy") or last)
    if class_name in own:
        return Construct(dict(own[class_name]), name)
    if ":" in class_name:
        return Construct({"type": class_name}, name)
    full = PREFIX + class_name if class_name.startswith("gobblin.") else class_name
    if full in PASSED:
        return None
    found = table.get(full)
    if found is None and (full.startswith("org.apache.gobblin.") or "." not in full):
        # Compare last names: packages were renamed over the years, and Gobblin accepts last names for many classes.
        if any(known.rpartition(".")[2] == last for known in PASSED):
            return None
        found = next((meant for known, meant in table.items() if known.rpartition(".")[2] == last), None)
    if found is None:
        hint = nearest(last, (known.rpartition(".")[2] for known in table), 0.75)  # they share words
        shown = class_name[:120]
        raise ClassError(
            f"no {kind} stands for the class {shown!r}; {hint}{'' if hint.endswith('?') else '.'} Declare yours in "
            f"`classes` of gobblin.yaml: {{{shown}: {{type: 'module:Class'}}}}"
        )
    return Construct({"type": IN_FILES.get(last, found), **DEFAULTS.get(last, {})}, name, last)


def snake(text: str) -> str:
    """Return a name in small letters and `_`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"\W", "_", text)).lower()
