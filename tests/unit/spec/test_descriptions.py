from __future__ import annotations

from pydantic import BaseModel, Field

from gobblin_dagster.spec.descriptions import described_schema, description_of
from gobblin_dagster.spec.model import SpecModel


class Part(SpecModel):
    width: int
    """Its width,
    in metres."""

    def area(self) -> int:
        "Not a text below a field."
        return self.width


class Whole(Part):
    """A part with parts."""

    parts: dict[str, Part] = Field(default={})
    """The parts, by name."""
    silent: int = 0
    said: int = Field(default=0, alias="told", description="Said in its place.")
    """Not this."""


def test_descriptions_are_the_texts_below_fields_also_of_bases() -> None:
    told = [description_of(Whole, name) for name in ("width", "parts", "silent", "said")]
    assert told == ["Its width,\nin metres.", "The parts, by name.", "", "Said in its place."]


def test_schema_describes_fields_of_the_models_inside_too() -> None:
    schema = described_schema(Whole, ref_template="#/models/{model}")
    assert schema["properties"]["parts"]["additionalProperties"] == {"$ref": "#/models/Part"}
    assert schema["properties"]["parts"]["description"] == "The parts, by name."
    assert schema["$defs"]["Part"]["properties"]["width"]["description"] == "Its width,\nin metres."
    assert "description" not in schema["properties"]["silent"]
    assert schema["properties"]["told"]["description"] == "Said in its place."


def test_field_declared_again_without_a_text_keeps_the_text_of_its_base() -> None:
    class Wider(Part):
        width: int = 2

    assert description_of(Wider, "width") == "Its width,\nin metres."


def test_models_without_source_have_no_descriptions() -> None:
    namespace: dict[str, type[BaseModel]] = {}
    text = "class Made(Base):\n    size: int = 0\n    'Its size.'\n"
    exec(text, {"Base": SpecModel, "__name__": "no_file"}, namespace)
    assert description_of(namespace["Made"], "size") == ""


def test_making_a_model_reads_no_source() -> None:
    assert Whole.model_fields["parts"].description is None
