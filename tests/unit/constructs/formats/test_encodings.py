from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.formats.encodings import EncodingName, without_signature


def test_aliases_are_replaced_by_the_name() -> None:
    field = TypeAdapter(EncodingName)
    assert [field.validate_python(name) for name in ("UTF8", "latin-1")] == ["utf-8", "iso8859-1"]


def test_utf_8_with_a_signature_is_read_as_utf_8_which_knows_of_it() -> None:
    # Comments are searched for in the bytes: as `utf-8-sig`, the first one was taken for the header.
    assert TypeAdapter(EncodingName).validate_python("utf-8-sig") == "utf-8"


@pytest.mark.parametrize("name", ["no-such", "base64"], ids=["unknown", "of bytes"])
def test_what_encodes_no_text_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"there is no encoding '{name}'"):
        TypeAdapter(EncodingName).validate_python(name)


def test_signature_before_utf_8_is_skipped_and_only_there() -> None:
    assert b"\xef\xbb\xbfa".decode(without_signature("utf-8")) == "a"
    assert without_signature("utf-16") == "utf-16"
