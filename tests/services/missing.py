"""What happens to a test whose service is not there: it is skipped by name, and in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it if `CI=true`: a green run of CI has run every test.

    Args:
        reason: What is not there and where it was looked for, without a full stop.
    """
    if os.environ.get("CI") == "true":
        pytest.fail(
            f"{reason}; with CI=true a missing service is an error: install it (`make test` does, where it may)",
            pytrace=False,
        )
    pytest.skip(reason)
