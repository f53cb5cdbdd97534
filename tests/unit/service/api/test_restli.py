"""Rest.li's text format, as Gobblin's Java clients were seen to write it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.service.api import restli
from gobblin_dagster.service.api.errors import BadRequest


def test_key_of_a_java_client_is_read_and_written_as_it_stands_on_the_wire() -> None:
    raw = "($params:(),flowGroup:grp%20a,flowName:par%28en%29)"
    assert restli.parse_path_key(raw, version=2, what="the key") == {"flowGroup": "grp a", "flowName": "par(en)"}
    fields = {"flowGroup": "grp a", "flowName": "par(en)"}
    assert restli.encode_key(fields) == "(flowGroup:grp%20a,flowName:par%28en%29)"
    assert restli.encode_header_key(fields) == "(flowGroup:grp a,flowName:par%28en%29)"


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(group=NAMES, name=NAMES)
def test_any_group_and_name_survive_the_way_there_and_back(group: str, name: str) -> None:
    fields = {"flowGroup": group, "flowName": name}
    raw = restli.encode_key(fields)
    assert raw.isascii()
    assert "/" not in raw
    assert restli.parse_path_key(raw, version=2, what="the key") == fields
    assert restli.encode_header_key(fields).isprintable()


def test_plus_is_a_plus_in_a_path_and_a_space_in_a_query() -> None:
    assert restli.parse_path_key("(flowName:a+b)", version=2, what="the key") == {"flowName": "a+b"}
    assert restli.parse_query("flowName=a+b&group=(x:a+b)", version=2) == {"flowName": "a b", "group": {"x": "a b"}}


def test_query_keeps_semicolons_slashes_and_equals_signs_in_values() -> None:
    found = restli.parse_query("templateUri=FS:///a;b?c=d&q=filterFlows", version=2)
    assert found == {"templateUri": "FS:///a;b?c=d", "q": "filterFlows"}


def test_scalars_in_lists_of_one_count_as_the_scalar() -> None:
    parameters = restli.parse_query("count=List(5)&tag=List(t)&flag=List(true)", version=2)
    assert restli.int_parameter(parameters, "count", 1) == 5
    assert restli.text_parameter(parameters, "tag") == "t"
    assert restli.bool_parameter(parameters, "flag") is True


def test_protocol_1_writes_keys_as_pairs_and_records_with_dots() -> None:
    raw = "$params.x=1&flowGroup=g%2Fh&flowName=n"
    assert restli.parse_path_key(raw, version=1, what="the key") == {"flowGroup": "g/h", "flowName": "n"}
    query = "q=latestFlowExecution&flowId.flowGroup=g&flowId.flowName=n"
    expected = {"q": "latestFlowExecution", "flowId": {"flowGroup": "g", "flowName": "n"}}
    assert restli.parse_query(query, version=1) == expected


@pytest.mark.parametrize(
    "raw",
    [
        "(flowGroup:a",
        "(flowGroup:a,",
        "(flowGroup)",
        "(flowGroup:a)b",
        "flowGroup:a",
        "(a:1,a:2)",
        "List(a)",
        "(flowGroup:%ff)",
        "(flowGroup:(a:b))",
        "(a:" + "List(" * 10_000,
        "",
    ],
)
def test_broken_keys_are_bad_requests(raw: str) -> None:
    with pytest.raises(BadRequest):
        restli.parse_path_key(raw, version=2, what="the key")


@given(st.text(max_size=200))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for version in (1, 2):
        with contextlib.suppress(BadRequest):
            restli.parse_query(text, version=version)
        with contextlib.suppress(BadRequest):
            restli.parse_path_key(text, version=version, what="the key")
        with contextlib.suppress(BadRequest):
            restli.parse_mask(text)


@pytest.mark.parametrize("text", ["-1", "1.5", "", "2147483648", "99999999999999999999", "x", "٣"])
def test_numbers_out_of_range_are_bad_requests(text: str) -> None:
    with pytest.raises(BadRequest, match="takes a number from 0"):
        restli.int_parameter({"count": text}, "count", 1)


def test_mask_chooses_fields_of_records_and_of_lists() -> None:
    mask = restli.parse_mask("templateUris,id:(flowName),jobs:(name)")
    document = {"id": {"flowName": "n", "flowGroup": "g"}, "templateUris": "t", "x": 1, "jobs": [{"name": 1, "y": 2}]}
    assert restli.project(document, mask) == {"templateUris": "t", "id": {"flowName": "n"}, "jobs": [{"name": 1}]}


@pytest.mark.parametrize("text", ["", "a:(b", "a,,b", "a:(b))", "(" * 1000, "a:(" * 100])
def test_broken_masks_are_bad_requests(text: str) -> None:
    with pytest.raises(BadRequest):
        restli.parse_mask(text)
