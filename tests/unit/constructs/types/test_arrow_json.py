"""What pyarrow says of JSON that does not fit: asked of pyarrow itself, whose words may change."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import json as arrow_json

from gobblin_dagster.constructs.types.arrow_json import json_problem

KIND = pa.struct([("n", pa.int64()), ("place", pa.struct([("city", pa.string())])), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"n": "x"}', "field 'n' is of the type string, expected number"),
        (b'{"place": {"city": [1]}}', "field 'place.city' is of the type array, expected string"),
        (b'{"tags": ["a", 1]}', "field 'tags.[]' is of the type number, expected string"),
        (b'{"new": 1}', "unexpected field"),
    ],
)
def test_problem_names_the_field_as_the_user_does(value: bytes, said: str) -> None:
    options = arrow_json.ParseOptions(explicit_schema=pa.schema([("v", KIND)]), unexpected_field_behavior="error")
    with pytest.raises(pa.ArrowInvalid) as caught:
        arrow_json.read_json(pa.BufferReader(b'{"v": {}}\n{"v": ' + value + b"}"), parse_options=options)
    assert json_problem(caught.value, "v") == said
