"""Settings that a job takes from environment variables: no secret stands in its file, in plans, logs or state."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gobblin_dagster.core.errors import EnvironmentFaultError

_HINT = "Set it where the work runs: here, and on every Spark worker."


def from_environment(variables: Mapping[str, str], what: str, hint: str = _HINT) -> dict[str, str]:
    """Return the settings that environment variables hold, by the setting's name.

    Args:
        variables: Variable by name of the setting.
        what: What a setting is, for the message: `header`.
        hint: Where the variables have to be set.

    Raises:
        EnvironmentFaultError: variables are not set; all of them are named.
    """
    missing = [
        f"{name!r} is taken from {variable}" for name, variable in variables.items() if variable not in os.environ
    ]
    if missing:
        raise EnvironmentFaultError(
            problem=f"The {what} {' and '.join(missing)}, which the environment lacks.", hint=hint
        )
    return {name: os.environ[variable] for name, variable in variables.items()}
