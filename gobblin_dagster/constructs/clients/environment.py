"""Read settings of a job from environment variables, so that job files, plans, logs and state hold no secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.secrets import as_written, known_values, variable
from gobblin_dagster.spec.env import expand

_HINT = "Set it where the work runs, here and on every Spark worker, or under `secrets` of gobblin.yaml."


def from_environment(variables: Mapping[str, str], what: str, hint: str = _HINT) -> dict[str, str]:
    """Return settings by name, with their values from environment variables or from the project's `secrets`.

    Args:
        variables: name of the variable, by name of the setting; or a text with references, as `to_store` returns it.
        what: kind of the settings for messages, e.g. `header`.
        hint: where the variables must be set, for messages.

    Raises:
        EnvironmentFaultError: variables are not set; the message names all of them.
        InvalidSpecError: a file or command of `secrets` gives no value.
    """
    known = {**os.environ, **known_values()}
    values: dict[str, str] = {}
    missing: list[str] = []
    for name, wanted in variables.items():
        if "${" in wanted:
            expanded = expand(wanted, known)
            is_set, values[name] = not expanded.problems, expanded.text
        else:
            value = variable(wanted)
            is_set, values[name] = value is not None, value or ""
        if not is_set:
            missing.append(f"{name!r} is taken from {wanted}")
    if missing:
        raise EnvironmentFaultError(
            problem=f"The {what} {' and '.join(missing)}, which is not set in the environment.", hint=hint
        )
    return values


def to_store(settings: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return settings and variables as they may be stored: no value that a job file has as `${NAME}` is in them.

    Such a setting is moved to the variables, as a text with references: `{"header": "Bearer ${TOKEN}"}`. What uses the
    stored settings later, perhaps in another process, takes the value from the environment there.
    """
    written = {name: as_written(value) for name, value in settings.items() if isinstance(value, str)}
    moved = {name: text for name, text in written.items() if text is not None}
    return {name: value for name, value in settings.items() if name not in moved}, {**moved, **variables}
