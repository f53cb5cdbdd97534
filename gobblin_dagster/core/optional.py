"""Packages that only some jobs need: where one is missing, the message says what for, and how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gobblin_dagster.core.errors import EnvironmentFaultError


@contextmanager
def optional_package(package: str, purpose: str, *, extra: str) -> Iterator[None]:
    """Surround the import of an optional package.

    Args:
        package: its name, as it is installed by.
        purpose: what needs it, e.g. `Avro files`.
        extra: the extra of this package that installs it.

    Raises:
        EnvironmentFaultError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise EnvironmentFaultError(
            problem=f"The package {package} is not installed; it is needed for {purpose}.",
            hint=f"Install it with: pip install 'gobblin-dagster[{extra}]'.",
        ) from error
