"""Descriptions of the fields of declarations in JSON schemas: the texts that stand below the fields in the source.

pydantic can read them too, but does so whenever a model's class is made, in each command, and took a tenth of the CPU
time of a short one. Here the source is read only if somebody asks for a schema.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


def described_schema(model: type[BaseModel], ref_template: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
    """Return the JSON schema of a model, with the descriptions of its fields and of those of the models in it.

    Args:
        model: the model.
        ref_template: how the schema refers to the models in it; pydantic's `ref_template`.
    """
    return model.model_json_schema(ref_template=ref_template, schema_generator=_Described)


def description_of(model: type[BaseModel], field: str) -> str:
    """Return the description of a field: of its `Field(description=...)`, else the text below it; empty without one."""
    declared = model.model_fields[field].description
    if declared is not None:
        return declared
    owners = [base for base in model.__mro__ if issubclass(base, BaseModel) and field in base.model_fields]
    return next((texts[field] for texts in map(_texts_below_fields, owners) if field in texts), "")


class _Described(GenerateJsonSchema):
    """Adds to the properties of each model what stands below its fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        model = schema["cls"]
        for name, field in model.model_fields.items():
            body = made.get("properties", {}).get(field.alias or name)
            text = description_of(model, name)
            if body is not None and text:
                body["description"] = text
        return made


@cache
def _texts_below_fields(owner: type[BaseModel]) -> dict[str, str]:
    """Return the text below each annotated name of a class; nothing if Python does not find its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, SyntaxError, TypeError):
        return {}
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for body in (node.body for node in tree.body if isinstance(node, ast.ClassDef))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
