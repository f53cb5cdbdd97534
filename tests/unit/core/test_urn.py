from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.errors import InvalidUrnError
from gobblin_dagster.core.urn import MAX_SEGMENT_BYTES, DatasetUrn

URNS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)


@given(URNS)
def test_encodings_are_reversible_and_safe(text: str) -> None:
    urn = DatasetUrn(text)
    assert DatasetUrn.from_key(urn.partition_key) == urn
    assert DatasetUrn.from_key(urn.path_segment) == urn
    assert "/" not in urn.path_segment
    assert urn.path_segment[0] not in "._"
    assert "," not in urn.partition_key


@pytest.mark.parametrize("text", ["a:b", "a.b", "a_b", "a b", "a/b", "..", ".", "_x", "ü", "a%2Fb", "%00", ""])
def test_no_two_urns_share_a_folder(text: str) -> None:
    others = {"a:b", "a.b", "a_b", "a b", "a/b", "..", ".", "_x", "ü", "a%2Fb", "%00", ""} - {text}
    assert DatasetUrn(text).path_segment not in {DatasetUrn(other).path_segment for other in others}


@pytest.mark.parametrize("text", ["a\nb", "\x00", "\x7f", "\ud800"])
def test_control_characters_are_refused(text: str) -> None:
    with pytest.raises(InvalidUrnError, match="control character"):
        DatasetUrn(text)


def test_too_long_for_a_folder_is_refused_by_its_encoded_length() -> None:
    DatasetUrn("a" * MAX_SEGMENT_BYTES)
    with pytest.raises(InvalidUrnError, match="longer than 240 bytes once percent-encoded"):
        DatasetUrn("日" * 27)
