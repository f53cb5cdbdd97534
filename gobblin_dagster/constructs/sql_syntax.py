"""SQL in job files, parsed when the file is checked: what is no SQL is a fault of its line, before anything runs.

Columns and functions are not looked at: they are known only once rows are there.
"""

from __future__ import annotations

from typing import Annotated

import duckdb
from pydantic import AfterValidator


def _parse(text: str, statement: str) -> str:
    """Return the text; raises ValueError where the statement that holds it is not one statement of SQL."""
    try:
        count = len(duckdb.extract_statements(statement))
    except duckdb.Error as error:
        raise ValueError(f"is no SQL: {str(error).split(chr(10))[0]}") from None
    if count != 1:
        raise ValueError("expected one expression of SQL, got several statements")
    return text


def _expression(text: str) -> str:
    return _parse(text, f"SELECT (\n{text}\n)")


def _select_list(text: str) -> str:
    return _parse(text, f"SELECT {text}\nFROM batch")


SqlExpression = Annotated[str, AfterValidator(_expression)]
"""One expression of SQL on a row."""
SqlSelectList = Annotated[str, AfterValidator(_select_list)]
"""What stands between SELECT and FROM."""
