from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.formats.encodings import EncodingName, without_signature


def test_aliases_are_replaced_by_the_name() -> None:
    field = TypeAdapter(EncodingName)
    assert [field.validate_python(name) for name in ("UTF8", "latin-1")] == ["utf-8", "iso8859-1"]


@pytest.mark.parametrize("name", ["no-such", "base64"], ids=["unknown", "of bytes"])
def test_what_encodes_no_text_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"there is no encoding '{name}'"):
        TypeAdapter(EncodingName).validate_python(name)


def test_signature_before_utf_8_is_skipped_and_only_there() -> None:
    assert b"\xef\xbb\xbfa".decode(without_signature("utf-8")) == "a"
    assert without_signature("utf-16") == "utf-16"
