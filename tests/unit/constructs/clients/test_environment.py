from __future__ import annotations

import pytest

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import EnvironmentFaultError


def test_settings_are_what_their_variables_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    assert from_environment({"Authorization": "API_TOKEN"}, "header") == {"Authorization": "secret"}
    assert from_environment({}, "header") == {}


def test_all_variables_that_are_missing_are_named_and_no_value_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "secret")
    for name in ("API_TOKEN", "API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(EnvironmentFaultError) as caught:
        from_environment({"Authorization": "API_TOKEN", "X-Here": "HERE", "X-Key": "API_KEY"}, "header", "Set them.")

    assert str(caught.value) == (
        "The header 'Authorization' is taken from API_TOKEN and 'X-Key' is taken from API_KEY, which is not set "
        "in the environment. "
        "Set them."
    )
