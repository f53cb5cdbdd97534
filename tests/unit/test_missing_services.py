"""A test whose service is not there is skipped on a contributor's machine, and fails in CI."""

from __future__ import annotations

import pytest

from tests.services.missing import missing


@pytest.mark.parametrize(("ci", "outcome"), [(None, pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_missing_service_skips_the_test_and_fails_it_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str | None, outcome: type[BaseException]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no sshd is installed here"):
        missing("no sshd is installed here")
