from __future__ import annotations

import pytest

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import EnvironmentFaultError, SourceError


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


def test_values_of_variables_are_hidden_in_what_libraries_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "open-sesame")
    (value,) = from_environment({"sasl.mechanism": "KAFKA_PASSWORD"}, "Kafka setting").values()
    problem = f'Invalid value "{value}" for configuration property "sasl.mechanism"'
    said = str(SourceError(job="events", problem=problem))
    assert 'Invalid value "${KAFKA_PASSWORD}" for configuration' in said
