"""Read settings of a job from environment variables, so that job files, plans, logs and state hold no secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gobblin_dagster.core.errors import EnvironmentFaultError

_HINT = "Set it where the work runs: here, and on every Spark worker."


def from_environment(variables: Mapping[str, str], what: str, hint: str = _HINT) -> dict[str, str]:
    """Return settings by name, with their values from environment variables.

    Args:
        variables: name of the variable, by name of the setting.
        what: kind of the settings for messages, e.g. `header`.
        hint: where the variables must be set, for messages.

    Raises:
        EnvironmentFaultError: variables are not set; the message names all of them.
    """
    missing = [
        f"{name!r} is taken from {variable}" for name, variable in variables.items() if variable not in os.environ
    ]
    if missing:
        raise EnvironmentFaultError(
            problem=f"The {what} {' and '.join(missing)}, which is not set in the environment.", hint=hint
        )
    return {name: os.environ[variable] for name, variable in variables.items()}
