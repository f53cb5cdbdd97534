"""What pyarrow says of JSON that does not fit: asked of pyarrow itself, whose words may change."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import json as arrow_json

from gobblin_dagster.constructs.converters.json_text import JsonTextConverter
from gobblin_dagster.constructs.decoders.base import DecodeError, JsonDecoder
from gobblin_dagster.constructs.types.arrow_json import json_problem
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError

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


@pytest.mark.parametrize("text", ['{"n": 1},"w": {}', '{"n": 1} , "x":{"n":2}', 'null,"w":1'])
def test_text_that_goes_on_after_its_object_is_no_json(text: str) -> None:
    assert JsonDecoder({"n": "int64"}).decode([rb'{"n": 5, "k": "\\\\\"},", "m": {"x": {}, "y": 1}}']).to_pylist() == [
        {"n": 5}
    ]
    with pytest.raises(DecodeError, match="it goes on after its end"):
        JsonDecoder({"n": "int64"}).decode([b'{"n": 5}', text.encode()])
    options = JsonTextConverter.Options.model_validate({"column": "a", "columns": {"n": "int64"}})
    converter = JsonTextConverter(options, ConstructContext("j", ""))
    given = pa.record_batch({"a": ['{"n": 5, "m": {"x": {}, "y": 1}}', None]})
    assert converter.convert_batch(given).column("n").to_pylist() == [5, None]
    with pytest.raises(ConvertError, match="it goes on after its end"):
        converter.convert_batch(pa.record_batch({"a": [text]}))
