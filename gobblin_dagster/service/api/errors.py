"""Errors of REST: each is an HTTP status and a message that clients show."""

from __future__ import annotations

from typing import Any


class RestError(Exception):
    """An answer that is no success."""

    status = 500

    def __init__(self, message: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or {}

    def document(self) -> dict[str, Any]:
        """Return Rest.li's ErrorResponse; without class and stack trace, which clients do not need."""
        return {"status": self.status, "message": self.message}


class BadRequest(RestError):
    """The request cannot be read, or asks for what cannot be."""

    status = 400


class NotFound(RestError):
    """What the request names does not exist."""

    status = 404


class NotAllowed(RestError):
    """The resource has no such method."""

    status = 405


class NotAcceptable(RestError):
    """The client wants another type of answer than JSON."""

    status = 406


class Conflict(RestError):
    """What is asked for exists already, or was changed by another."""

    status = 409


class PreconditionFailed(RestError):
    """The flow has another version than `If-Match` names."""

    status = 412


class TooLarge(RestError):
    """The body is too large."""

    status = 413


class Invalid(RestError):
    """A record has the wrong shape; one line for each fault, as Rest.li's validation writes them."""

    status = 422


class Unavailable(RestError):
    """The store cannot be used now; comes with `Retry-After`."""

    status = 503

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after_s)})


class Unauthenticated(RestError):
    """Nobody, or nobody known, asks."""

    status = 401


class Forbidden(RestError):
    """No rule allows it."""

    status = 403
