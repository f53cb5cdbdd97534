"""One place that decides: (principal, action, resource) -> allow or deny. What no rule allows is denied."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.service.model import FlowId

TOKEN_BYTES = 32


class Action(StrEnum):
    """What somebody wants to do."""

    READ = "read"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RUN = "run"
    KILL = "kill"
    RESUME = "resume"
    OPERATE = "operate"
    """Change something in Dagster's pages."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    name: str


OWNER = Principal("owner")
"""Everybody who holds the token that the service printed at its first start."""
ANONYMOUS = Principal("anonymous")


class Access:
    """Decides who may do what.

    Args:
        token_digest: SHA-256 of the service's token, as hex.
        allows_anonymous: whether everybody who reaches the service's address counts as its owner does.

    Source: gobblin-service `RequesterService`, `DataMovementAuthorizer`. Differs: nobody is allowed by default.
    """

    def __init__(self, token_digest: str, *, allows_anonymous: bool = False) -> None:
        self._token_digest = token_digest
        self._allows_anonymous = allows_anonymous

    def authenticate(self, authorization: str | None) -> Principal | None:
        """Return who sends a header `Authorization`; None for nobody that is known."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(digest(token.strip()), self._token_digest):
            return OWNER
        return ANONYMOUS if self._allows_anonymous and authorization is None else None

    def allows(self, principal: Principal, action: Action, resource: FlowId | None) -> bool:
        """Tell whether somebody may do something; `resource` is None for the catalog as a whole."""
        del action, resource  # rules by flow and group stand here
        return principal == OWNER or (self._allows_anonymous and principal == ANONYMOUS)


def digest(token: str) -> str:
    """Return the SHA-256 of a token, as hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def load_token(path: Path) -> tuple[str, bool]:
    """Return the service's token, and whether it was made now.

    The file is readable for its owner alone: everybody who reads it may do everything.

    Raises:
        StorageError: the file cannot be read or made.
    """
    try:
        try:
            return path.read_text(encoding="ascii").strip(), False
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            token = secrets.token_urlsafe(TOKEN_BYTES)
            # O_EXCL: of two services that start at once, one makes the token and the other reads it.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(token + "\n")
            return token, True
    except FileExistsError:
        return path.read_text(encoding="ascii").strip(), False
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(operation="read the token", path=str(path), problem=str(error)) from error
