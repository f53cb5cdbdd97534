from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.options.targets import Target


def test_module_and_name_stand_on_both_sides_of_the_colon() -> None:
    assert TypeAdapter(Target).validate_python("my.parts:Reader.read") == "my.parts:Reader.read"


@pytest.mark.parametrize("text", ["my.parts", ":read", "my parts:read", "a:b:c", "a/b:c"])
def test_what_names_no_function_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        TypeAdapter(Target).validate_python(text)
