"""What pyarrow says of JSON that does not fit its columns, in plain words."""

from __future__ import annotations

import re

import pyarrow as pa

from gobblin_dagster.core.utils.text import first_line

_FIELD = re.compile(r"Column\(/(.*?)\)")
_OTHER_TYPE = re.compile(r"changed from ([a-z-]+) to ([a-z-]+)")


def json_problem(error: pa.ArrowException, within: str = "") -> str:
    """Return pyarrow's message without its row number, which counts from the block's beginning.

    Args:
        error: of `pyarrow.json`.
        within: name of the field around the record, which is ours and nothing to the user.

    Example:
        >>> json_problem(pa.ArrowInvalid("JSON parse error: Column(/v/a/b) changed from number to null in row 7"), "v")
        "field 'a.b' is of the type null, expected number"
        >>> json_problem(pa.ArrowInvalid("JSON parse error: Column(/v) changed from object to array in row 7"), "v")
        'it is of the type array, expected object'
    """
    text = first_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0].rstrip(".")
    text = _FIELD.sub(lambda found: _place(found[1], within), text)
    return _OTHER_TYPE.sub(r"is of the type \2, expected \1", text)


def _place(path: str, within: str) -> str:
    """Return a field as shown to people; `it` for the record itself."""
    return "it" if path == within else f"field {path.removeprefix(f'{within}/').replace('/', '.')!r}"
