"""Column types in job files as shapes: a type's name, a list with one shape, or a mapping of names to shapes.

`int64`, `[string]` (a list of texts), `{city: string, tags: [string]}` (a struct). It is plain YAML.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import pyarrow as pa
from pydantic import BeforeValidator

from gobblin_dagster.constructs.types.arrow import arrow_type
from gobblin_dagster.constructs.types.json_shapes import JSON


def arrow_shape(shape: Any) -> pa.DataType:
    """Return the Arrow type of a shape; raises ValueError.

    Example:
        >>> arrow_shape({"city": "string", "tags": ["string"]})
        StructType(struct<city: string, tags: list<item: string>>)
    """
    match shape:
        case str():
            return arrow_type(shape)
        case [item]:
            return pa.list_(arrow_shape(item))
        case dict() if shape:
            return pa.struct([(str(name), arrow_shape(inner)) for name, inner in shape.items()])
    raise ValueError(f"expected a type's name, a list around one shape, or names with shapes; got {str(shape)[:80]!r}")


def _known(shape: Any) -> Any:
    arrow_shape(shape)
    return shape


def json_type(shape: Any) -> pa.DataType:
    """Return the Arrow type of a field of JSON; `json` is text with the JSON of the values. Raises ValueError."""
    return pa.string() if shape == JSON else arrow_shape(shape)


def _json_known(shape: Any) -> Any:
    json_type(shape)
    return shape


Shape: TypeAlias = Annotated[str | list[Any] | dict[str, Any], BeforeValidator(_known)]
"""Option type: a shape."""
JsonShape: TypeAlias = Annotated[str | list[Any] | dict[str, Any], BeforeValidator(_json_known)]
"""Option type: a shape, or `json`."""
