"""Keys of converters that hide values: the job file names variables of the environment, or of `secrets`."""

from __future__ import annotations

import base64
from typing import Annotated, TypeAlias

from pydantic import StringConstraints

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.secrets import variable as value_of

EnvName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of an environment variable."""
MIN_SECRET_BYTES = 16
_AES_BYTES = (16, 24, 32)


def secret(variable: str, construct: str) -> bytes:
    """Return a secret from the environment; raises EnvironmentFaultError if it is missing or too short."""
    value = (value_of(variable) or "").encode("utf-8", "surrogateescape")
    if len(value) < MIN_SECRET_BYTES:
        problem = f"is {len(value)} bytes long" if value else "is not set"
        raise EnvironmentFaultError(
            problem=f"The environment variable {variable}, key of {construct}, {problem}.",
            hint=f"Set it to a secret of at least {MIN_SECRET_BYTES} bytes wherever tasks run.",
        )
    return value


def aes_key(variable: str, construct: str) -> bytes:
    """Return an AES key from the environment, decoded from base64.

    Raises EnvironmentFaultError if there is no valid one.
    """
    value = value_of(variable) or ""
    try:
        key = base64.b64decode(value, validate=True)
    except ValueError:  # no base64, or other letters than ASCII
        key = b""
    if len(key) not in _AES_BYTES:
        problem = "is not base64 of 16, 24 or 32 bytes" if value else "is not set"
        raise EnvironmentFaultError(
            problem=f"The environment variable {variable}, key of {construct}, {problem}.",
            hint="Make a key with `openssl rand -base64 32` and set it wherever tasks run.",
        )
    return key
