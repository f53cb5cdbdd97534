from __future__ import annotations

import sys

import pytest

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.optional import optional_package


def test_package_that_is_missing_is_named_with_its_purpose_and_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with (
        pytest.raises(EnvironmentFaultError) as caught,
        optional_package("fastavro", "Avro files", extra="avro"),
    ):
        import fastavro  # noqa: F401  # the import is what is tested

    assert str(caught.value) == (
        "The package fastavro is not installed; it is needed for Avro files. "
        "Install it with: pip install 'gobblin-dagster[avro]'."
    )
    assert isinstance(caught.value.__cause__, ImportError)


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="of its own"), optional_package("fastavro", "Avro files", extra="avro"):
        raise ValueError("of its own")
