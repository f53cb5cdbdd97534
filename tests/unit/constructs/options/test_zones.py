from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.options.zones import ZoneName


def test_zone_is_kept_as_it_is_written() -> None:
    assert TypeAdapter(ZoneName).validate_python("Europe/Berlin") == "Europe/Berlin"


@pytest.mark.parametrize("zone", ["Berlin", "", "../zone", "Europe"])
def test_zone_that_is_not_known_is_refused_with_an_example(zone: str) -> None:
    with pytest.raises(ValidationError, match=r"expected an IANA zone, .* Europe/Berlin; got"):
        TypeAdapter(ZoneName).validate_python(zone)
